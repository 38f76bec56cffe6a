"""Reads /proc/net/tcp and tcp6: who listens where."""

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from workers.ports import Machine

_ROW: Final = re.compile(r"^\s*\d+:\s+([0-9A-F]{8}|[0-9A-F]{32}):([0-9A-F]{4})\s+\S+\s+0A\s", re.MULTILINE | re.ASCII)
FILES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))


@dataclass(frozen=True, slots=True)
class Listener:
    """One socket that takes connections."""

    address: str
    port: int

    @property
    def is_local(self) -> bool:
        """Tell whether only this machine reaches it."""
        return is_loopback(self.address)


def parse(text: str) -> tuple[Listener, ...]:
    """Read the rows in state LISTEN; addresses are words of four bytes in the order of a little-endian machine."""
    return tuple(Listener(_address(words), int(port, 16)) for words, port in _ROW.findall(text))


def _address(words: str) -> str:
    packed = bytes.fromhex(words)
    turned = b"".join(packed[at : at + 4][::-1] for at in range(0, len(packed), 4))
    address = ipaddress.ip_address(turned)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def is_loopback(address: str) -> bool:
    """Tell whether an address is of this machine alone."""
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return False


def listeners(machine: Machine) -> tuple[Listener, ...] | None:
    """Return all listening sockets; None when the kernel does not tell."""
    texts = [text for file in FILES if (text := machine.read_text(file)) is not None]
    return tuple(found for text in texts for found in parse(text)) if texts else None


def parse_ranges(text: str) -> tuple[tuple[int, int], ...]:
    """Read `ip_local_reserved_ports`: `8080,9000-9010`; also the two numbers of `ip_local_port_range`."""
    found = re.findall(r"(\d{1,5})(?:\s*-\s*(\d{1,5}))?", text, re.ASCII)
    return tuple((int(first), max(int(first), int(last or first))) for first, last in found)


def without(wanted: tuple[int, int], taken: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Return the parts of a range that lie in none of the others."""
    parts = [wanted]
    for low, high in taken:
        sides = [side for first, last in parts for side in ((first, min(last, low - 1)), (max(first, high + 1), last))]
        parts = [side for side in sides if side[0] <= side[1]]
    return tuple(parts)
