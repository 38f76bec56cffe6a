"""Finds the NVIDIA cards of this machine, or says why there are none."""

from pathlib import Path
from typing import Final

from llmgw.core.units import Bytes
from llmgw.core.world import Device, DeviceKind
from workers.discovery import nvidia_smi, nvml
from workers.discovery.cards import Card, gpu_class
from workers.ports import Machine, ToolResult
from workers.settings import NodeSettings

Found = tuple[tuple[Device, ...], tuple[str, ...]]
"""The cards, and sentences on what could not be had."""

_DEADLINE_S: Final = 10.0
_CONTROL: Final = "nvidiactl"


def find(machine: Machine, settings: NodeSettings) -> Found:
    """Ask NVML, or nvidia-smi where NVML fails or is not to be asked."""
    tool = machine.which(settings.nvidia_smi)
    if tool is None and settings.nvml in {"auto", "off"} and _CONTROL not in machine.names_in(Path("/dev")):
        return (), (f"no NVIDIA driver: /dev/{_CONTROL} is missing and {settings.nvidia_smi} not found",)
    if settings.nvml == "off":
        return _by_tool(machine, settings, tool)
    library = () if settings.nvml == "auto" else (settings.nvml,)
    answer = machine.output((*nvml.PROGRAM, *library), _DEADLINE_S)
    cards = nvml.parse(answer.out) if answer.ok else None
    if cards is not None:
        return _offered(cards)
    devices, problems = _by_tool(machine, settings, tool)
    return devices, (f"NVML {_complaint(answer)}; {settings.nvidia_smi} is asked instead", *problems)


def _by_tool(machine: Machine, settings: NodeSettings, tool: str | None) -> Found:
    if tool is None:
        return (), (f"no GPU is offered: {settings.nvidia_smi} not found",)
    answer = machine.output((tool, *nvidia_smi.CARDS), _DEADLINE_S)
    if not answer.ok:
        return (), (f"no GPU is offered: {settings.nvidia_smi} {_complaint(answer)}",)
    modes = machine.output((tool, *nvidia_smi.MIG_MODES), _DEADLINE_S)
    # A driver that does not know the question knows no instances either.
    cut = nvidia_smi.parse_mig_modes(modes.out) if modes.ok else {}
    return _offered(nvidia_smi.parse_cards(answer.out), cut)


def _offered(cards: tuple[Card, ...], cut: dict[str, bool] | None = None) -> Found:
    devices = tuple(_device(card, card.uuid, cut or {}) for card in cards if card.uuid)
    nameless = tuple(
        f"GPU {index} is not offered: the driver gives it no UUID and says: {card.dead or 'nothing'}"
        for index, card in enumerate(cards)
        if not card.uuid
    )
    return devices, nameless if cards else ("no GPU is offered: the driver lists none",)


def _device(card: Card, uuid: str, cut: dict[str, bool]) -> Device:
    known = gpu_class(card.name, card.memory) if card.name and card.memory else None
    ailment = _ailment(card, known, is_cut=card.is_cut or cut.get(uuid, False))
    return Device(uuid, DeviceKind.GPU, known or "unknown", card.memory or Bytes(0), unhealthy=ailment)


def _ailment(card: Card, known: str | None, *, is_cut: bool) -> str | None:
    if card.dead:
        return f"the driver says: {card.dead}"
    if known is None:
        return "the driver does not tell its name and memory"
    return "is in MIG mode, and its instances are not offered" if is_cut else None


def _complaint(answer: ToolResult) -> str:
    said = next((line.strip() for line in (answer.out + "\n" + answer.err).splitlines() if line.strip()), "")
    return f"gave {answer.problem}" if answer.problem else f"ended with {answer.code}: {said[:200]}"
