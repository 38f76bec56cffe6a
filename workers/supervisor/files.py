"""Writing a file so that whoever reads it finds the old or the new one, never half of either."""

import os
from pathlib import Path


def write_atomically(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Replace a file; raises OSError. A durable one is on the disk when this returns.

    The death of this process never tears a file, durable or not; only a power cut can, and only one that is not.
    """
    new = path.with_name(f"{path.name}.new")
    with new.open("wb") as file:
        file.write(data)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    new.replace(path)


def read_or_none(path: Path) -> bytes | None:
    """Read a file; None when there is none; raises OSError when it is there and cannot be read."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


class FileShelf:
    """A file of a few kilobytes that is replaced whole or not at all."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> bytes | None:
        """Return what lies there; None for nothing; raises OSError."""
        return self._path.read_bytes() if self._path.exists() else None

    def write(self, data: bytes) -> None:
        """Replace it; raises OSError."""
        write_atomically(self._path, data, durable=False)
