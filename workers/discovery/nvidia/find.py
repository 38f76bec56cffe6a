"""Finds the NVIDIA cards of this machine by NVML, by nvidia-smi where that fails, or says why there are none."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from llmgw.core.hardware.findings import Problem
from llmgw.core.hardware.gpus import Driver, Gpu
from llmgw.core.units import Bytes
from workers.discovery.nvidia import classes, nvml, smi
from workers.discovery.nvidia.cards import Cards
from workers.discovery.nvidia.driver import module_of
from workers.discovery.nvidia.pci_cards import cards_on_pci
from workers.discovery.nvidia.smi_failure import MODULE
from workers.ports import Machine
from workers.settings import NodeSettings

_CONTROL: Final = "nvidiactl"
_ALIKE: Final = frozenset({"nvml.mismatch"})
"""Where NVML says this, nvidia-smi can only say the same."""


def find(machine: Machine, settings: NodeSettings) -> Cards:
    """Ask for the cards; `is_known` is False where it is not known whether there are any."""
    if not _is_there(machine, settings):
        return Cards(problems=(_absent(machine, settings),))
    cards = _asked(machine, settings)
    return _completed(machine, settings, cards)


def _is_there(machine: Machine, settings: NodeSettings) -> bool:
    """Tell whether anything of a driver is there to be asked; what the settings name is asked in any case."""
    if settings.nvml not in {"auto", "off"} or machine.which(settings.nvidia_smi) is not None:
        return True
    return _CONTROL in machine.names_in(Path("/dev")) or not machine.read(MODULE).is_missing


def _absent(machine: Machine, settings: NodeSettings) -> Problem:
    cards = cards_on_pci(machine)
    if not cards:
        text = f"no NVIDIA driver: /dev/{_CONTROL} is missing and {settings.nvidia_smi} not found"
        return Problem(code="driver.absent", fact="gpus", text=text)
    names = ", ".join(f"{card.address} ({card.driver or 'no driver'})" for card in cards)
    text = f"{len(cards)} NVIDIA cards are on PCI, and no NVIDIA driver has taken them: {names} – install the driver"
    return Problem(code="driver.not-loaded", fact="gpus", text=text)


def _asked(machine: Machine, settings: NodeSettings) -> Cards:
    if settings.nvml == "off":
        return smi.ask(machine, settings)
    told = nvml.ask(machine, settings)
    if isinstance(told, Cards):
        return told if told.gpus else _none_listed(machine, told)
    if told.code in _ALIKE:
        return Cards(Driver(), (), (told,), is_known=False)
    return _downgraded(told, smi.ask(machine, settings))


def _none_listed(machine: Machine, told: Cards) -> Cards:
    """NVML lists no card: that there is none is believed where the bus has none either."""
    hidden = cards_on_pci(machine) or machine.names_in(smi.OF_KERNEL)
    text = "the NVIDIA driver lists no card" + (
        ", though there are some on PCI: they have failed, or are hidden" if hidden else ""
    )
    problem = Problem(code="nvml.no-devices", fact="gpus", text=text)
    return Cards(told.driver, (), (*told.problems, problem), is_known=not hidden)


def _downgraded(why: Problem, cards: Cards) -> Cards:
    """Say that nvidia-smi was asked instead, and why: a quiet downgrade would hide a broken driver."""
    told = msgspec.structs.replace(why, text=f"{why.text}; nvidia-smi is asked instead")
    return Cards(cards.driver, cards.gpus, (told, *cards.problems), cards.is_known)


# --- what is added to either answer -------------------------------------------------------------------------------


def _completed(machine: Machine, settings: NodeSettings, cards: Cards) -> Cards:
    told = _licensed(machine, settings, _identified(machine, cards.gpus))
    gpus = tuple(_classified(gpu) for gpu in told)
    driver = cards.driver and module_of(machine, cards.driver)
    return Cards(driver, gpus, (*cards.problems, *_nameless(gpus)), cards.is_known)


def _identified(machine: Machine, gpus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    """Give cards that are lost to NVML the identity that the kernel module wrote down, where it can be no other's."""
    dumb = [gpu for gpu in gpus if gpu.failed and gpu.uuid is None and gpu.pci_address is None]
    known = {gpu.pci_address for gpu in gpus}
    spare = [address for address in smi.kernel_order(machine) if address not in known]
    if not dumb or len(dumb) != len(spare):
        return gpus
    named = {id(gpu): smi.from_kernel(machine, address) for gpu, address in zip(dumb, spare, strict=True)}
    return tuple(_with_identity(gpu, named.get(id(gpu))) for gpu in gpus)


def _with_identity(gpu: Gpu, known: Gpu | None) -> Gpu:
    if known is None:
        return gpu
    return msgspec.structs.replace(gpu, uuid=known.uuid, name=known.name, pci_address=known.pci_address)


def _classified(gpu: Gpu) -> Gpu:
    memory = None if gpu.memory_total_bytes is None else Bytes(gpu.memory_total_bytes)
    unified = memory is None and classes.is_unified(gpu.name)
    named = None
    if gpu.name:
        named = classes.gpu_class(gpu.name, memory or (classes.usual_memory(gpu.name) if gpu.mig_enabled else None))
    return msgspec.structs.replace(
        gpu,
        device_class=named,
        memory_is_unified=unified,
        compute_capability=gpu.compute_capability or classes.capability(gpu.name),
    )


def _licensed(machine: Machine, settings: NodeSettings, gpus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    """Ask nvidia-smi for the licence of virtual cards: NVML does not tell the two kinds of unlicensed apart."""
    dumb = any(gpu.virtualization == "vgpu" and gpu.vgpu_licence is None for gpu in gpus)
    if not dumb or machine.which(settings.nvidia_smi) is None:
        return gpus
    told = {gpu.uuid: gpu.vgpu_licence for gpu in smi.ask(machine, settings).gpus}
    return tuple(msgspec.structs.replace(gpu, vgpu_licence=gpu.vgpu_licence or told.get(gpu.uuid)) for gpu in gpus)


def _nameless(gpus: tuple[Gpu, ...]) -> Iterator[Problem]:
    for gpu in gpus:
        if gpu.uuid is None and not gpu.failed:
            text = f"gpu {gpu.index} is not offered: the driver gives it no UUID"
            yield Problem(code="gpu.nameless", fact=f"gpu {gpu.index}: uuid", text=text)
