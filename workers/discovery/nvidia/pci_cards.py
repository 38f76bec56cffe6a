"""Finds NVIDIA's cards on the PCI bus, whether or not a driver has taken them."""

from pathlib import Path
from typing import Final, NamedTuple

from workers.discovery.pci import canonical
from workers.ports import Machine

DEVICES: Final = Path("/sys/bus/pci/devices")
NVIDIA: Final = "0x10de"
_DISPLAY: Final = ("0x0300", "0x0302")
"""VGA and 3D controllers; the PCI class code's first four digits."""


class PciCard(NamedTuple):
    """One card on the bus."""

    address: str
    driver: str | None
    """Name of the kernel driver that has taken it: `nvidia`, `nouveau`, `vfio-pci`; None for none."""


def cards_on_pci(machine: Machine) -> tuple[PciCard, ...]:
    """Return the cards in the order of their addresses."""
    found = (_card(machine, name) for name in machine.names_in(DEVICES))
    return tuple(sorted(card for card in found if card))


def _card(machine: Machine, name: str) -> PciCard | None:
    address = canonical(name)
    if address is None or (machine.read_text(DEVICES / name / "vendor") or "").strip().lower() != NVIDIA:
        return None
    kind = (machine.read_text(DEVICES / name / "class") or "").strip().lower()
    driver = machine.link(DEVICES / name / "driver")
    return PciCard(address, driver.rsplit("/", 1)[-1] if driver else None) if kind.startswith(_DISPLAY) else None
