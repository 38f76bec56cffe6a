"""Reads /proc/self/mountinfo: what file system holds a path, of which kind, and whether it may be written."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FILE: Final = Path("/proc/self/mountinfo")
NETWORK: Final = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "ceph", "lustre", "gpfs", "beegfs", "afs"})
_FUSE: Final = "fuse."
_MEMORY: Final = frozenset({"tmpfs", "ramfs"})


@dataclass(frozen=True, slots=True)
class Mount:
    """One mounted file system."""

    point: str
    kind: str
    """`ext4`, `nfs4`, …"""
    source: str
    device: str
    """`259:2`, as below /sys/dev/block."""
    options: frozenset[str]

    @property
    def is_read_only(self) -> bool:
        return "ro" in self.options

    @property
    def is_network(self) -> bool:
        """Tell whether other machines hold it; what goes through FUSE counts, since it mostly does."""
        return self.kind in NETWORK or self.kind.startswith(_FUSE)

    @property
    def is_memory(self) -> bool:
        return self.kind in _MEMORY


def parse(text: str) -> tuple[Mount, ...]:
    """Read all rows that are whole; proc(5) describes them."""
    return tuple(mount for line in text.splitlines() if (mount := _row(line)))


def _row(line: str) -> Mount | None:
    ours, is_there, theirs = line.partition(" - ")
    left, right = ours.split(" "), theirs.split(" ")
    if not is_there or len(left) < 6 or len(right) < 3:
        return None
    options = frozenset((*left[5].split(","), *right[2].split(",")))
    return Mount(_unescaped(left[4]), right[0], _unescaped(right[1]), left[2], options)


def _unescaped(text: str) -> str:
    r"""Undo the kernel's octal spelling of blanks: `/mnt/two\040words`."""
    return re.sub(r"\\([0-3][0-7]{2})", lambda octal: chr(int(octal[1], 8)), text)


def holding(mounts: Iterable[Mount], path: Path) -> Mount | None:
    """Return the file system that a path is on: of the deepest mount point, the one that was mounted last."""
    over = [mount for mount in mounts if path.is_relative_to(mount.point)]
    return max(reversed(over), key=lambda mount: len(mount.point), default=None)
