"""An engine's log: bounded on the disk, and its last lines for people."""

import os
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

WIDEST: Final = 500
_READ: Final = 64 * 1024
_ESCAPES: Final = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b[@-Z\\-_]")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def older(log: Path) -> Path:
    """Where the log's older half goes."""
    return log.with_name(f"{log.name}.1")


def tail(log: Path, lines: int, is_noise: Callable[[str], bool] | None = None) -> tuple[str, ...]:
    """Return the last lines that are not empty, oldest first, over a rotation too; cut to what fits a report.

    Noise is left out, unless there is nothing else.
    """
    text = _last_bytes(log)
    if len(text) < _READ:
        text = _last_bytes(older(log)) + text
    told = clean(text[-_READ:])
    telling = told if is_noise is None else tuple(line for line in told if not is_noise(line))
    return (telling or told)[-lines:]


def clean(raw: bytes) -> tuple[str, ...]:
    """Make printable lines of an engine's output: no control characters, of a progress bar its last state."""
    text = _ESCAPES.sub("", raw.decode("utf-8", errors="replace").replace("\r\n", "\n"))
    told = (_CONTROL.sub("", line.rstrip("\r").rpartition("\r")[2]).rstrip() for line in text.split("\n"))
    return tuple(line if len(line) <= WIDEST else f"{line[: WIDEST - 1]}…" for line in told if line)


def bound(log: Path, limit: int) -> bool:
    """Move the log aside if it is too large; lines that the engine writes in that instant are lost.

    The engine keeps the file open and appends, so the file is copied and emptied, not renamed.
    """
    try:
        if log.stat().st_size <= limit:
            return False
        _keep_end(log, older(log), limit)
        os.truncate(log, 0)
    except OSError:
        return False
    return True


def _keep_end(log: Path, target: Path, limit: int) -> None:
    new = target.with_name(f"{target.name}.new")
    try:
        with log.open("rb") as source, new.open("wb") as copy:
            source.seek(-limit, os.SEEK_END)
            shutil.copyfileobj(source, copy)
        new.replace(target)
    except OSError:  # a full disk, say: then the lines go, or it would stay full
        with suppress(OSError):
            new.unlink(missing_ok=True)


def _last_bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _READ))
            return file.read(_READ)
    except OSError:
        return b""
