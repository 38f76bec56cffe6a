"""Makes the fake llama-server a program that a node's settings can name."""

import shlex
import sys
from pathlib import Path

SCRIPT = Path(__file__).with_name("llama_server.py")


def fake_llama_server(folder: Path) -> Path:
    """Write an executable `llama-server` into a folder and return its path."""
    program = folder / "llama-server"
    # Without the site module Python starts in a third of the time.
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -IS {shlex.quote(str(SCRIPT))} "$@"\n', "utf-8")
    program.chmod(0o755)
    return program
