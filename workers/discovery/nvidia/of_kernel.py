"""What the NVIDIA kernel module has written down of the cards that it took, whether or not they still answer."""

import re
from pathlib import Path
from typing import Final

from llmgw.core.hardware.gpus import Gpu
from workers.discovery import pci
from workers.discovery.nvidia import words
from workers.ports import Machine

OF_KERNEL: Final = Path("/proc/driver/nvidia/gpus")
_FACT: Final = re.compile(r"^([^:\n]+):[ \t]*(.*?)[ \t]*$", re.MULTILINE)


def kernel_order(machine: Machine) -> tuple[str, ...]:
    """Return the addresses of the cards that the kernel module has taken, in the driver's order."""
    found = (pci.canonical(name) for name in machine.names_in(OF_KERNEL))
    return tuple(sorted(address for address in found if address))


def from_kernel(machine: Machine, address: str | None) -> Gpu:
    """Return what is written of one card; its UUID is question marks where it never could be initialised."""
    name = next((each for each in machine.names_in(OF_KERNEL) if pci.canonical(each) == address), "") if address else ""
    told = machine.read_text(OF_KERNEL / name / "information") if name else None
    facts = dict(_FACT.findall(told or ""))
    uuid = facts.get("GPU UUID", "")
    return Gpu(
        uuid=uuid if uuid.startswith("GPU-") and "?" not in uuid else None,
        name=facts.get("Model") or None,
        pci_address=address,
        minor_number=words.count(facts.get("Device Minor")),
    )


def is_hidden(machine: Machine, card: Gpu, others: tuple[Gpu, ...]) -> bool:
    """Tell whether a card is kept from this process by its container: it lives, and others' device files may be opened.

    The kernel's list is the whole machine's also in a container that has some of the cards.
    """
    is_alive = card.uuid is not None and card.minor_number is not None
    return is_alive and not _may_open(machine, card) and any(_may_open(machine, other) for other in others)


def _may_open(machine: Machine, card: Gpu) -> bool:
    node = machine.device_node(Path(f"/dev/nvidia{card.minor_number}"))
    return node is not None and node.readable
