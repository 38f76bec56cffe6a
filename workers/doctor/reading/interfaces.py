"""Reads network interfaces from sysfs and /proc/net: are they up, how large are packets, what are they made of."""

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from workers.doctor.reading.words import whole
from workers.ports import Machine

FOLDER: Final = Path("/sys/class/net")
BONDS: Final = Path("/proc/net/bonding")
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class Interface:
    """One network interface; what sysfs does not tell is None."""

    name: str
    is_there: bool
    is_up: bool | None
    """Whether it is switched on and has a carrier."""
    mtu: int | None
    speed_mbps: int | None


def interface(machine: Machine, name: str) -> Interface:
    """Look at one interface; tunnels say `unknown` for their state and count as up while they have a carrier."""
    folder = FOLDER / name
    state = (machine.read_text(folder / "operstate") or "").strip()
    carrier = whole(machine.read_text(folder / "carrier"))
    is_up = {"up": True, "down": False, "lowerlayerdown": False, "dormant": False, "notpresent": False}.get(state)
    speed = whole(machine.read_text(folder / "speed"))
    mtu = whole(machine.read_text(folder / "mtu"))
    is_there = bool(state) or mtu is not None or name in machine.names_in(FOLDER)
    is_up = bool(carrier) if is_up is None and carrier is not None else is_up
    return Interface(name, is_there, is_up, mtu, speed if speed and speed > 0 else None)


def parse_bond(text: str) -> Mapping[str, bool]:
    """Read `/proc/net/bonding/X`: member → whether it is up."""
    blocks = re.split(r"^Slave Interface:\s*", text, flags=re.MULTILINE)[1:]
    named = (
        (block.partition("\n")[0].strip(), re.search(r"^MII Status:\s*(\w+)", block, re.MULTILINE)) for block in blocks
    )
    return {name: status is not None and status[1] == "up" for name, status in named if name}


def members(machine: Machine, name: str) -> tuple[str, ...]:
    """Return the interfaces that a bond is made of; the interface itself where it is none."""
    return tuple(parse_bond(machine.read_text(BONDS / name) or "")) or (name,)


def networks(addresses: tuple[str, ...]) -> tuple[Network, ...]:
    """Return the networks of addresses such as `10.0.0.5/24`, without those that only reach the next cable."""
    return tuple(found for text in addresses if (found := _network(text)) and not found.is_link_local)


def _network(text: str) -> Network | None:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None
