"""Reads /proc/meminfo."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from llmgw.core.units import Bytes

FILE: Final = Path("/proc/meminfo")


@dataclass(frozen=True, slots=True)
class Memory:
    """Main memory; what the kernel does not say is None."""

    total: Bytes | None
    available: Bytes | None


def parse(text: str) -> Memory:
    """Read `MemTotal` and `MemAvailable`."""
    kib = {name: int(number) for name, number in re.findall(r"^(\w+):\s+(\d+) kB$", text, re.MULTILINE)}
    return Memory(_bytes(kib.get("MemTotal")), _bytes(kib.get("MemAvailable")))


def _bytes(kib: int | None) -> Bytes | None:
    return None if kib is None else Bytes(kib * 1024)
