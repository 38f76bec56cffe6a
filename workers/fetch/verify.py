"""Checks a file against what the catalog says of it; bytes are hashed once, a mark remembers what was found."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from llmgw.core.units import Bytes
from llmgw.core.wanted import Source
from llmgw.core.wire import Progress
from workers.fetch.failure import CHECKSUM, FetchFailed

_BLOCK: Final = 8 * 1024**2


OnProgress = Callable[[Progress], object]
"""Called again and again during a fetch; may raise to give the fetch up, what was fetched is kept for the next."""


class Mark(msgspec.Struct, frozen=True):
    """A file as it was when its bytes were hashed."""

    path: str
    size: int
    mtime_ns: int
    sha256: str


def check(path: Path, expected: str, marks: Path, progress: OnProgress) -> None:
    """Raise FetchFailed unless the file's SHA-256 is the expected one; hashes only what no mark vouches for."""
    mark = _mark_file(marks, path)
    if _read(mark) == _state_of(path, expected):
        return
    found = hash_file(path, progress)
    if found != expected:
        raise mismatch(str(path), expected, found)
    remember(path, found, marks)


def remember(path: Path, sha256: str, marks: Path) -> None:
    """Leave a mark for a file whose bytes were just hashed."""
    mark = _mark_file(marks, path)
    mark.parent.mkdir(parents=True, exist_ok=True)
    temporary = mark.with_suffix(".new")
    temporary.write_bytes(msgspec.json.encode(_state_of(path, sha256)))
    temporary.replace(mark)


def hash_file(path: Path, progress: OnProgress) -> str:
    """Return the SHA-256 of a file, which is all there already: `progress` only may give up."""
    told = whole(path.stat().st_size)
    hashed = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            hashed.update(block)
            progress(told)
    return hashed.hexdigest()


def whole(size: int) -> Progress:
    """Say that all bytes are there."""
    return Progress(Bytes(size), Bytes(size))


def check_size(what: str, size: int, source: Source) -> None:
    """Raise FetchFailed unless the size is the declared one."""
    if source.size not in {None, size}:
        cure = "replace the file, or correct the catalog entry"
        raise FetchFailed(CHECKSUM, f"{what} has {size} bytes, the catalog says {source.size} – {cure}")


def mismatch(what: str, expected: str, found: str) -> FetchFailed:
    """Say that the bytes are not the declared ones."""
    text = f"{what} has SHA-256 {found}, the catalog says {expected} – replace the file, or correct the catalog entry"
    return FetchFailed(CHECKSUM, text)


def _state_of(path: Path, sha256: str) -> Mark:
    stat = path.stat()
    return Mark(str(path), stat.st_size, stat.st_mtime_ns, sha256)


def _mark_file(marks: Path, path: Path) -> Path:
    return marks / f"{hashlib.sha256(str(path).encode()).hexdigest()[:32]}.json"


def _read(mark: Path) -> Mark | None:
    try:
        return msgspec.json.decode(mark.read_bytes(), type=Mark)
    except (OSError, msgspec.DecodeError):
        return None
