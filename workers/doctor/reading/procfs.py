"""Reads what /proc says of a process and of memory."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from workers.doctor.reading.words import whole
from workers.ports import Machine

_LIMIT: Final = re.compile(r"^(Max [a-z ]+?)\s{2,}(\S+)\s+(\S+)", re.MULTILINE)
SETTINGS: Final = Path("/proc/sys")


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit of a process; None is unlimited."""

    soft: int | None
    hard: int | None


def parse_limits(text: str) -> dict[str, Limit]:
    """Read `/proc/<pid>/limits`: `Max locked memory` → its limits, in the unit that stands there."""
    found: dict[str, Limit] = {}
    for name, soft, hard in _LIMIT.findall(text):
        values = [_limit(word) for word in (soft, hard)]
        if all(is_known for is_known, _ in values):
            found[name] = Limit(values[0][1], values[1][1])
    return found


def _limit(word: str) -> tuple[bool, int | None]:
    if word in {"unlimited", "infinity"}:
        return True, None
    value = whole(word)
    return value is not None, value


def parse_counts(text: str) -> dict[str, int]:
    """Read `name number` and `Name:   number kB` lines, of /proc/vmstat and /proc/meminfo; kB become bytes."""
    found: dict[str, int] = {}
    for name, digits, unit in re.findall(r"^([\w()]+):?\s+([0-9]{1,20})( kB)?$", text, re.MULTILINE | re.ASCII):
        found[name] = int(digits) * (1024 if unit else 1)
    return found


def setting(machine: Machine, name: str) -> int | None:
    """Return a kernel setting below /proc/sys, such as `kernel/numa_balancing`; None when it is not told."""
    return whole(machine.read_text(SETTINGS / name))


@dataclass(frozen=True, slots=True)
class Owner:
    """As whom a process runs."""

    uid: int | None
    capabilities: int

    @property
    def is_root(self) -> bool:
        return self.uid == 0

    def may(self, capability: int) -> bool:
        """Tell whether it has a capability, by the kernel's number."""
        return self.is_root or bool(self.capabilities >> capability & 1)


def parse_owner(text: str) -> Owner:
    """Read the effective user and the effective capabilities from `/proc/<pid>/status`."""
    uid = re.search(r"^Uid:\s+[0-9]{1,10}\s+([0-9]{1,10})", text, re.MULTILINE)
    mask = re.search(r"^CapEff:\s+([0-9a-fA-F]{1,32})$", text, re.MULTILINE)
    return Owner(int(uid[1]) if uid else None, int(mask[1], 16) if mask else 0)
