"""Finds what the worker's control groups allow, which in a container is less than the machine has."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from llmgw.core.units import Bytes
from workers.ports import Machine

ROOT: Final = Path("/sys/fs/cgroup")
OWN: Final = Path("/proc/self/cgroup")
_UNLIMITED: Final = 2**60
"""Version 1 says a number near 2**63 for no limit."""


def parse(text: str) -> dict[str, str]:
    """Read which group holds this process: controller → path; the one of version 2 has an empty name."""
    found = re.findall(r"^\d+:([^:\n]*):(/.*)$", text, re.MULTILINE)
    return {controller: path for names, path in found for controller in names.split(",")}


def parse_quota(text: str) -> float | None:
    """Read `cpu.max`, or version 1's quota and period in one line: how many CPUs; None is no limit."""
    numbers = re.fullmatch(r"(\d+)\s+(\d+)\s*", text)
    return int(numbers[1]) / int(numbers[2]) if numbers and int(numbers[2]) else None


def parse_limit(text: str) -> Bytes | None:
    """Read `memory.max` or version 1's limit; None is no limit."""
    number = int(text) if text.strip().isdecimal() else _UNLIMITED
    return Bytes(number) if number < _UNLIMITED else None


def cpus(machine: Machine) -> int:
    """Return how many CPUs may really be used: those that we may run on, cut by every quota above us."""
    quotas = [quota for folder in _folders(machine, "cpu") for quota in [parse_quota(_quota(machine, folder))] if quota]
    return max(1, min([machine.cpu_count(), *(int(quota) for quota in quotas)]))


def memory_limit(machine: Machine) -> Bytes | None:
    """Return the least memory that a group above us is limited to."""
    names = ("memory.max", "memory.limit_in_bytes")
    texts = [machine.read_text(folder / name) or "" for folder in _folders(machine, "memory") for name in names]
    limits = [limit for limit in map(parse_limit, texts) if limit is not None]
    return min(limits, default=None)


def _quota(machine: Machine, folder: Path) -> str:
    old = (machine.read_text(folder / f"cpu.cfs_{name}_us") or "" for name in ("quota", "period"))
    return machine.read_text(folder / "cpu.max") or " ".join(text.strip() for text in old)


def _folders(machine: Machine, controller: str) -> Iterator[Path]:
    """Walk from our own group to the top, in version 2 and in version 1; what does not exist reads as no limit."""
    groups = parse(machine.read_text(OWN) or "")
    for root, path in ((ROOT, groups.get("")), (ROOT / controller, groups.get(controller))):
        own = root / (path or "/").lstrip("/")
        yield from (folder for folder in (own, *own.parents) if folder.is_relative_to(root))
