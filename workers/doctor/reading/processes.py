"""Finds the processes of engines among all that run here, by how they were called."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from workers.discovery.ours import parse_stat
from workers.ports import Machine

_PROC: Final = Path("/proc")
_ENGINE: Final = re.compile(
    r"(?:^|[\s/])(?:llama-server|vllm serve|vllm\.entrypoints\S*|sglang\.launch_server|workers\.engines\.llama_server)"
    r"(?=\s|$)"
    r"|^(?:VLLM|vllm|sglang)::\w+"
)
_WORDS: Final = 6
"""So many words of a command line are looked at: the program, Python's own flags, the module."""


@dataclass(frozen=True, slots=True)
class EngineProcess:
    """A process that looks like an engine."""

    pid: int
    name: str
    session: int | None


def engine_name(command_line: str) -> str | None:
    """Return as which engine a process was called, by `/proc/<pid>/cmdline`; None for any other program."""
    words = [word for word in command_line.split("\0") if word][:_WORDS]
    found = _ENGINE.search(" ".join(words))
    return found[0].strip(" /") if found else None


def engines(machine: Machine) -> Iterator[EngineProcess]:
    """Return all processes that look like engines."""
    for pid in (name for name in machine.names_in(_PROC) if name.isascii() and name.isdigit()):
        name = engine_name(machine.read_text(_PROC / pid / "cmdline") or "")
        if name:
            stat = parse_stat(machine.read_text(_PROC / pid / "stat") or "")
            yield EngineProcess(int(pid), name, stat.session if stat else None)
