"""What a node's page says of its hardware: cards, instances, ports, fabrics, and what the doctor found."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from apps.nodes import queries
from apps.nodes.models import DeviceRow, NodeRow
from apps.replicas.models import ShardRow
from llmgw.core.hardware.examination import Examination, Examined, alike
from llmgw.core.hardware.fabrics import Attachment
from llmgw.core.hardware.findings import Finding
from llmgw.core.hardware.gpus import Gpu, MigInstance
from llmgw.core.hardware.network import Port
from llmgw.core.nccl import NoEnvironment, environment
from llmgw.core.units import gib
from llmgw.core.wire import Inventory

SHOWN: Final = ("fail", "warn", "unknown")
"""Verdicts of the doctor that are listed; the others are counted."""
_UNLIKE: Final = {"default", "none", "not-supported"}


@dataclass(frozen=True, slots=True)
class Memory:
    """Who holds how much of a device, in bytes and in hundredths."""

    total: int
    ours: int
    foreign: int
    rest: int
    """Held, but nobody knows by whom."""

    @property
    def parts(self) -> tuple[tuple[str, float], ...]:
        """Return word and hundredths of each part that is not nothing."""
        named = (("ours", self.ours), ("others", self.foreign), ("unknown", self.rest))
        return tuple((word, round(100 * part / self.total, 1)) for word, part in named if part and self.total)

    def text(self) -> str:
        """Say it in words, for those who do not see the bar."""
        named = (("ours", self.ours), ("of others", self.foreign), ("of unknown holders", self.rest))
        told = ", ".join(f"{gib(part)} {word}" for word, part in named if part)
        return told or "free"


@dataclass(frozen=True, slots=True)
class DeviceLine:
    """One device, with what is known of the card behind it."""

    row: DeviceRow
    holders: tuple[ShardRow, ...]
    gpu: Gpu | None
    memory: Memory | None
    remarks: tuple[str, ...]
    """Short facts: temperature, power, errors."""


@dataclass(frozen=True, slots=True)
class PortLine:
    """One port, with the fabric that it is declared for."""

    port: Port
    fabric: str
    usable: bool
    why: str
    gid: str
    """The RoCE v2 address that traffic must use."""


@dataclass(frozen=True, slots=True)
class FabricLine:
    """One fabric of the node, and the environment that a shard on it gets."""

    fabric: Attachment
    environment: tuple[tuple[str, str], ...]
    refused: str


@dataclass(frozen=True, slots=True)
class Doctor:
    """The doctor's last run."""

    at: datetime
    took_s: float
    counts: tuple[tuple[str, int], ...]
    found: list[tuple[Examined, ...]]
    """What one check found, and one cure mends, together."""


def inventory_of(row: NodeRow) -> Inventory | None:
    """Return what the node told last; None for a node that told nothing, or something of another version."""
    told = queries.facts_of(row).inventory
    return queries.as_kept({**told, "devices": []}, Inventory) if isinstance(told, dict) and told else None


def findings_of(row: NodeRow, inventory: Inventory | None) -> tuple[Finding, ...]:
    """Return what is wrong with the node, the most serious first: its hardware, then what its worker found odd."""
    odd = queries.as_kept(row.findings, tuple[Finding, ...]) or ()
    found = (*(inventory.findings if inventory else ()), *odd)
    return tuple(sorted(found, key=lambda finding: finding.severity.rank))


def device_lines(devices: Iterable[DeviceRow], alive: Iterable[ShardRow], gpus: Iterable[Gpu]) -> list[DeviceLine]:
    """Join devices with what runs on them and what their cards tell."""
    cards = {gpu.uuid: gpu for gpu in gpus}
    shards = tuple(alive)
    return [_device(row, shards, cards) for row in devices]


def _device(row: DeviceRow, shards: tuple[ShardRow, ...], cards: Mapping[str | None, Gpu]) -> DeviceLine:
    gpu = cards.get(row.card or row.device_id)
    part = next((each for each in gpu.instances if each.uuid == row.device_id), None) if gpu else None
    holders = tuple(shard for shard in shards if row.device_id in shard.devices)
    whole = gpu if gpu and not row.card else None
    remarks = tuple(_remarks(whole)) if whole else ()
    return DeviceLine(row, holders, gpu, _memory(part or whole), remarks)


def _memory(device: Gpu | MigInstance | None) -> Memory | None:
    if device is None or not device.memory_total_bytes or device.memory_used_bytes is None:
        return None
    told = [process for process in device.processes or () if process.memory_bytes]
    ours = sum(process.memory_bytes or 0 for process in told if process.ours)
    foreign = sum(process.memory_bytes or 0 for process in told if not process.ours)
    rest = max(0, device.memory_used_bytes - ours - foreign)
    return Memory(device.memory_total_bytes, ours, foreign, rest)


def _remarks(gpu: Gpu) -> Iterator[str]:
    if gpu.temperature_celsius is not None:
        yield f"{gpu.temperature_celsius} °C"
    if gpu.power_watts is not None:
        yield f"{gpu.power_watts:.0f} W"
    if gpu.utilization_percent is not None:
        yield f"{gpu.utilization_percent} % busy"
    if gpu.ecc.uncorrected_volatile:
        yield f"{gpu.ecc.uncorrected_volatile} uncorrected errors"
    if gpu.remapped_rows and gpu.remapped_rows.pending:
        yield "row remap pending"
    if gpu.recovery_action and gpu.recovery_action not in _UNLIKE:
        yield f"asks for {gpu.recovery_action}"
    if gpu.compute_mode and gpu.compute_mode not in _UNLIKE:
        yield f"compute mode {gpu.compute_mode}"


def port_lines(inventory: Inventory) -> list[PortLine]:
    """Join ports with the fabrics that they are declared for."""
    declared = {port.name: (fabric, port) for fabric in inventory.fabrics for port in fabric.ports}
    return [_port(port, declared.get(port.name)) for port in inventory.ports]


def _port(port: Port, declared: Any) -> PortLine:
    gid = next((gid.ipv4 or gid.gid for gid in port.gids if gid.index == port.roce_gid_index), "")
    if declared is None:
        return PortLine(port, "", usable=port.is_active, why="", gid=gid)
    fabric, attached = declared
    return PortLine(port, fabric.name, attached.usable, attached.why, gid)


def fabric_lines(inventory: Inventory) -> list[FabricLine]:
    """Join fabrics with the environment that a shard on them would get on this node as it is now."""
    return [_fabric(fabric, environment(fabric, inventory.gpus)) for fabric in inventory.fabrics]


def _fabric(fabric: Attachment, told: Mapping[str, str] | NoEnvironment) -> FabricLine:
    return (
        FabricLine(fabric, (), told.text())
        if isinstance(told, NoEnvironment)
        else FabricLine(fabric, tuple(told.items()), "")
    )


def doctor_of(examination: Examination | None) -> Doctor | None:
    """Return what is to be shown of the doctor's last run."""
    if examination is None:
        return None
    counts = tuple((word, examination.count(word)) for word in (*SHOWN, "pass"))
    found = alike(outcome for outcome in examination.outcomes if outcome.verdict in SHOWN)
    return Doctor(datetime.fromtimestamp(examination.at, UTC), examination.took_s, counts, found)
