"""Which process is which: a pid alone may have been given to somebody else since."""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec
import psutil

_LOOK_EVERY_S: Final = 0.02
_KILL_PATIENCE_S: Final = 2.0


class Identity(msgspec.Struct, frozen=True):
    """A process as the kernel tells it from all others."""

    pid: int
    started: float
    """In the kernel's own ticks since boot where it says so."""
    argv: tuple[str, ...]

    def command(self) -> str:
        """Say what it is in a line."""
        return f"{' '.join(self.argv)[:120]} (pid {self.pid})"


def identify(pid: int) -> Identity | None:
    """Look a process up; None when there is none, or only its remains."""
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        if process.status() != psutil.STATUS_ZOMBIE:
            return Identity(pid, _started(process), tuple(process.cmdline()))
    return None


def _started(process: psutil.Process) -> float:
    try:
        # The name, in parentheses, may hold spaces.
        return float(Path(f"/proc/{process.pid}/stat").read_text("utf-8").rpartition(")")[2].split()[19])
    except OSError:
        return process.create_time()


def is_alive(known: Identity) -> bool:
    """Tell whether exactly this process still runs."""
    return identify(known.pid) == known


def ask_to_end(known: Identity, patience_s: float, number: int = signal.SIGTERM) -> bool:
    """Signal this process and nobody else; True when it is gone in time."""
    if is_alive(known):
        with suppress(ProcessLookupError):
            os.kill(known.pid, number)
        _wait_until_gone(known, patience_s)
    return not is_alive(known)


def end(known: Identity, patience_s: float) -> bool:
    """Ask a process to end, then insist; True when it is gone."""
    return ask_to_end(known, patience_s) or ask_to_end(known, _KILL_PATIENCE_S, signal.SIGKILL)


def _wait_until_gone(known: Identity, patience_s: float) -> None:
    deadline = time.monotonic() + patience_s
    while is_alive(known) and time.monotonic() < deadline:
        time.sleep(_LOOK_EVERY_S)


def read(file: Path) -> Identity | None:
    """Read a record; one that is missing or torn names nobody."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=Identity)
    except (OSError, msgspec.MsgspecError):
        return None


def to_json(known: Identity) -> bytes:
    """Return what `read` reads."""
    encoded: Any = msgspec.json.encode(known)
    return bytes(encoded)
