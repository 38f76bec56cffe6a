"""Finds the NVIDIA cards of this machine, or says why there are none."""

from typing import Final

from llmgw.core.units import Bytes
from llmgw.core.world import Device, DeviceKind
from workers.discovery import nvidia_smi
from workers.discovery.nvidia_smi import Card
from workers.ports import Machine, ToolResult
from workers.settings import NodeSettings

_DEADLINE_S: Final = 10.0


def find(machine: Machine, settings: NodeSettings) -> tuple[tuple[Device, ...], tuple[str, ...]]:
    """Return the cards, and sentences on what could not be had."""
    tool = machine.which(settings.nvidia_smi)
    if tool is None:
        return (), (f"no NVIDIA driver: {settings.nvidia_smi} not found",)
    answer = machine.output((tool, *nvidia_smi.CARDS), _DEADLINE_S)
    if not answer.ok:
        return (), (f"no GPU is offered: {settings.nvidia_smi} {_complaint(answer)}",)
    cards = nvidia_smi.parse_cards(answer.out)
    if not cards:
        return (), (f"no GPU is offered: {settings.nvidia_smi} lists none",)
    modes = machine.output((tool, *nvidia_smi.MIG_MODES), _DEADLINE_S)
    # A driver that does not know the question knows no instances either.
    cut = nvidia_smi.parse_mig_modes(modes.out) if modes.ok else {}
    return _devices(cards, cut)


def _devices(cards: tuple[Card, ...], cut: dict[str, bool]) -> tuple[tuple[Device, ...], tuple[str, ...]]:
    devices = tuple(_device(card, cut) for card in cards if card.uuid)
    nameless = tuple(
        f"GPU {index} is not offered: the driver gives it no UUID ({card.dead or card.name})"
        for index, card in enumerate(cards)
        if not card.uuid
    )
    return devices, nameless


def _device(card: Card, cut: dict[str, bool]) -> Device:
    uuid, memory = card.uuid or "", card.memory or Bytes(0)
    known = nvidia_smi.gpu_class(card.name, memory) if card.memory else None
    return Device(uuid, DeviceKind.GPU, known or "unknown", memory, unhealthy=_ailment(card, known, cut))


def _ailment(card: Card, known: str | None, cut: dict[str, bool]) -> str | None:
    if card.dead:
        return f"the driver says: {card.dead}"
    if known is None:
        return "the driver does not tell its name and memory"
    return "is in MIG mode, and its instances are not offered" if cut.get(card.uuid or "") else None


def _complaint(answer: ToolResult) -> str:
    said = next((line.strip() for line in (answer.out + "\n" + answer.err).splitlines() if line.strip()), "")
    return f"gave {answer.problem}" if answer.problem else f"ended with {answer.code}: {said[:200]}"
