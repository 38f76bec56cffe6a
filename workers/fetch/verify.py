"""Checks a file's bytes against a SHA-256, once: a mark remembers what was found."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from workers.fetch.failure import CHECKSUM, FetchFailed

_BLOCK: Final = 8 * 1024**2


class Mark(msgspec.Struct, frozen=True):
    """A file as it was when its bytes were hashed."""

    path: str
    size: int
    mtime_ns: int
    sha256: str


def check(path: Path, expected: str, marks: Path, still_wanted: Callable[[], object]) -> None:
    """Raise FetchFailed unless the file's SHA-256 is the expected one; hashes only what no mark vouches for."""
    mark = _mark_file(marks, path)
    if _read(mark) == _state_of(path, expected):
        return
    found = hash_file(path, still_wanted)
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


def hash_file(path: Path, still_wanted: Callable[[], object]) -> str:
    """Return the SHA-256 of a file; `still_wanted` is called at each block and may raise to give up."""
    hashed = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            hashed.update(block)
            still_wanted()
    return hashed.hexdigest()


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
