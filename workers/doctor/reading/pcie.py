"""Reads access control (ACS) of PCI bridges from `lspci -vvv`, and the bridges above a device from sysfs."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from workers.discovery.pci import canonical
from workers.ports import Machine

DEVICES: Final = Path("/sys/bus/pci/devices")
_IN_PATH: Final = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


@dataclass(frozen=True, slots=True)
class Bridge:
    """A PCI bridge, and whether it sends traffic between the devices below it up to the root."""

    address: str
    """As the kernel spells it: `0000:17:00.0`."""
    redirects: bool | None
    """None where its capabilities may not be read."""


def parse_bridges(text: str) -> tuple[Bridge, ...]:
    """Read every bridge that has access control, or that hides whether it has."""
    blocks = (block for block in re.split(r"\n\s*\n|\n(?=\S)", text) if " bridge: " in block.partition("\n")[0])
    return tuple(bridge for block in blocks if (bridge := _bridge(block)))


def _bridge(block: str) -> Bridge | None:
    address = canonical(block.strip().partition(" ")[0])
    control = re.search(r"ACSCtl:\s*SrcValid([+-])", block)
    if not address or not (control or "<access denied>" in block):
        return None
    return Bridge(address, control[1] == "+" if control else None)


def above(machine: Machine, address: str) -> tuple[str, ...]:
    """Return the bridges between a device and the root, the upper first; empty when sysfs does not tell."""
    return tuple(_IN_PATH.findall(machine.link(DEVICES / address) or "")[:-1])
