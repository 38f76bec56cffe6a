"""Starts programs for a test and ends all of them afterwards, with what they started in sessions of their own."""

import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[1]
MARK = "LLMGW_STARTED_BY_TEST"


class Processes:
    """Every program it starts carries a mark in its environment, which children inherit wherever they go."""

    def __init__(self) -> None:
        self.mark = secrets.token_hex(8)
        self._started: list[subprocess.Popen[Any]] = []

    def start(
        self, argv: Sequence[str], *, env: Mapping[str, str | None] | None = None, **how: Any
    ) -> subprocess.Popen[Any]:
        """Start a program in the repository's root and a session of its own.

        `env` is added to ours; a value that is None takes the name away.
        """
        how = {"cwd": ROOT, "start_new_session": True, "stdin": subprocess.DEVNULL, **how}
        told = {name: value for name, value in {**os.environ, **(env or {})}.items() if value is not None}
        process = subprocess.Popen(argv, env=told | {MARK: self.mark}, **how)
        self._started.append(process)
        return process

    def manage(self, *words: str, **how: Any) -> subprocess.Popen[Any]:
        """Start a management command."""
        return self.start([sys.executable, "manage.py", *words], **how)

    def alive(self) -> list[psutil.Process]:
        """Every living process that carries the mark, whoever started it."""
        return [process for process in psutil.process_iter() if self._is_ours(process)]

    def _is_ours(self, process: psutil.Process) -> bool:
        with suppress(psutil.Error):
            return process.environ().get(MARK) == self.mark and process.status() != psutil.STATUS_ZOMBIE
        return False

    def end(self) -> None:
        """Kill what is left, again until nothing is: a process may start another while it dies."""
        while left := self.alive():
            for process in left:
                with suppress(psutil.NoSuchProcess):
                    process.send_signal(signal.SIGKILL)
            psutil.wait_procs(left, timeout=5)
        for started in self._started:
            started.wait(10)
            for pipe in (started.stdout, started.stderr):
                if pipe is not None:
                    pipe.close()


def ended_afterwards() -> Iterator[Processes]:
    """Lend one for the length of a test."""
    processes = Processes()
    yield processes
    processes.end()
