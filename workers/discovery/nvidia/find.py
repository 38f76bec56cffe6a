"""Finds the NVIDIA cards of this machine by NVML, by nvidia-smi where that fails, or says why there are none."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from llmgw.core.hardware.findings import Problem
from llmgw.core.hardware.gpus import Driver, Gpu
from workers.discovery.nvidia import nvml, smi
from workers.discovery.nvidia.cards import Cards
from workers.discovery.nvidia.completing import completed
from workers.discovery.nvidia.driver import module_of
from workers.discovery.nvidia.of_kernel import from_kernel, is_hidden, kernel_order
from workers.discovery.nvidia.pci_cards import PciCard, cards_on_pci
from workers.discovery.nvidia.smi_failure import MODULE
from workers.ports import Machine
from workers.settings import NodeSettings

_CONTROL: Final = "nvidiactl"
_ALIKE: Final = frozenset({"nvml.mismatch"})
"""Where NVML says this, nvidia-smi can only say the same."""
_NO_DRIVER: Final = frozenset({"nvml.driver-not-loaded", "nvml.library-not-found", "nvml.no-module"})
"""Where NVML says this, and nothing of a driver is there, there is none."""
_UNTOLD: Final = "the kernel module has taken it and the driver's tools tell nothing of it; look at the kernel log"
_LENT: Final = "vfio-pci"
"""The kernel driver of cards that virtual machines are given."""


def find(machine: Machine, settings: NodeSettings) -> Cards:
    """Ask for the cards; `is_known` is False where it is not known whether there are any."""
    if not _is_there(machine, settings):
        return _absent(machine, settings)
    cards = _asked(machine, settings)
    driver = cards.driver and module_of(machine, cards.driver)
    gpus = completed(machine, settings, (*cards.gpus, *_untold(machine, cards)))
    return _untaken(machine, Cards(driver, gpus, (*cards.problems, *_nameless(gpus)), cards.is_known))


def _is_there(machine: Machine, settings: NodeSettings) -> bool:
    """Tell whether anything of a driver is there to be asked; what the settings name is asked in any case."""
    is_named = settings.nvml not in {"auto", "off"} or machine.which(settings.nvidia_smi) is not None
    return is_named or _is_loaded(machine)


def _is_loaded(machine: Machine) -> bool:
    return _CONTROL in machine.names_in(Path("/dev")) or not machine.read(MODULE).is_missing


def _nameless(gpus: Sequence[Gpu]) -> Iterator[Problem]:
    """Name what cannot be handed out, since nothing tells it apart from others."""
    for gpu in (gpu for gpu in gpus if not gpu.failed):
        parts = [f"gpu {gpu.index}/mig{part.slot}" for part in gpu.instances if part.uuid is None]
        for called in [*([] if gpu.uuid else [f"gpu {gpu.index}"]), *parts]:
            text = f"{called} is not offered: the driver gives it no UUID"
            yield Problem(code="gpu.nameless", fact=f"{called}: uuid", text=text)


def _asked(machine: Machine, settings: NodeSettings) -> Cards:
    if settings.nvml == "off":
        return smi.ask(machine, settings)
    told = nvml.ask(machine, settings)
    if isinstance(told, Problem):
        return _instead(told, machine, settings)
    if nvml.is_broken_off(told):
        return _rest(told, machine, settings)
    return told if told.gpus else _none_listed(machine, told)


def _untold(machine: Machine, cards: Cards) -> Iterator[Gpu]:
    """Yield the cards that the kernel module has taken and that nobody tells of, unless a container hides them."""
    if not cards.gpus or any(gpu.pci_address is None for gpu in cards.gpus):
        return
    known = {gpu.pci_address for gpu in cards.gpus}
    for address in kernel_order(machine):
        card = from_kernel(machine, address)
        if address not in known and not is_hidden(machine, card, cards.gpus):
            yield msgspec.structs.replace(card, failed=_UNTOLD)


# --- where NVML fails ---------------------------------------------------------------------------------------------


def _instead(why: Problem, machine: Machine, settings: NodeSettings) -> Cards:
    if why.code in _ALIKE:
        return Cards(Driver(), (), (why,), is_known=False)
    cards = _downgraded(why, smi.ask(machine, settings))
    last = cards.problems[-1].code
    is_bare = why.code in _NO_DRIVER and last == "nvidia-smi.missing" and not _is_loaded(machine)
    return Cards(problems=cards.problems) if is_bare and not cards_on_pci(machine) else cards


def _downgraded(why: Problem, cards: Cards) -> Cards:
    """Say that nvidia-smi was asked instead, and why: a quiet downgrade would hide a broken driver."""
    told = msgspec.structs.replace(why, text=f"{why.text}; nvidia-smi is asked instead")
    return Cards(cards.driver, cards.gpus, (told, *cards.problems), cards.is_known)


def _rest(told: Cards, machine: Machine, settings: NodeSettings) -> Cards:
    """Ask nvidia-smi where NVML told of some cards alone; it is believed if it tells of no fewer that answer."""
    other = smi.ask(machine, settings)
    if not other.is_known or _answering(other) < _answering(told) or len(other.gpus) < len(told.gpus):
        return told
    return _downgraded(told.problems[-1], other)


def _answering(cards: Cards) -> int:
    return sum(not gpu.failed for gpu in cards.gpus)


def _none_listed(machine: Machine, told: Cards) -> Cards:
    """NVML lists no card: that there is none is believed where the bus has none either."""
    hidden = cards_on_pci(machine) or kernel_order(machine)
    text = "the NVIDIA driver lists no card" + (
        ", though there are some on PCI: they have failed, or are hidden" if hidden else ""
    )
    problem = Problem(code="nvml.no-devices", fact="gpus", text=text)
    return Cards(told.driver, (), (*told.problems, problem), is_known=not hidden)


# --- cards that no driver of NVIDIA's has taken -------------------------------------------------------------------


def _absent(machine: Machine, settings: NodeSettings) -> Cards:
    """Nothing of a driver is there: there are no cards, unless some wait on PCI for their driver."""
    cards = cards_on_pci(machine)
    if not cards:
        text = f"no NVIDIA driver: /dev/{_CONTROL} is missing and {settings.nvidia_smi} not found"
        return Cards(problems=(Problem(code="driver.absent", fact="gpus", text=text),))
    return Cards(problems=(_not_loaded(cards),), is_known=_are_lent(cards))


def _untaken(machine: Machine, cards: Cards) -> Cards:
    """Name the cards that are on PCI and that the driver does not know, since another or none has taken them."""
    known = {gpu.pci_address for gpu in cards.gpus}
    loose = [card for card in cards_on_pci(machine) if card.driver != "nvidia" and card.address not in known]
    if not loose:
        return cards
    if not cards.gpus and cards.is_known:
        problems = (*cards.problems, _not_loaded(loose))
        return Cards(cards.driver, (), problems, is_known=_are_lent(loose))
    return Cards(cards.driver, cards.gpus, (*cards.problems, *map(_not_taken, loose)), cards.is_known)


def _are_lent(cards: Sequence[PciCard]) -> bool:
    """Tell whether all are kept for virtual machines: then this machine has none, and that is as it was meant."""
    return all(card.driver == _LENT for card in cards)


def _not_loaded(cards: Sequence[PciCard]) -> Problem:
    names = ", ".join(f"{card.address} ({card.driver or 'no driver'})" for card in cards)
    text = f"NVIDIA cards on PCI ({len(cards)}) that no NVIDIA driver has taken: {names} – {_cure(cards)}"
    return Problem(code="driver.not-loaded", fact="gpus", text=text)


def _not_taken(card: PciCard) -> Problem:
    who = f"has been taken by {card.driver}" if card.driver else "has been taken by no driver"
    text = f"the card at {card.address} {who} and is not offered – {_cure([card])}"
    return Problem(code="driver.not-taken", fact=f"gpu {card.address}", text=text)


def _cure(cards: Sequence[PciCard]) -> str:
    drivers = {card.driver for card in cards}
    if "nouveau" in drivers:
        return "install NVIDIA's driver, keep nouveau from loading (`blacklist nouveau`), and reboot"
    if drivers == {_LENT}:
        return "it is kept for virtual machines; bind it to the driver `nvidia` if this machine is to use it"
    return "install the driver, or build its module for this kernel (`dkms status`)"
