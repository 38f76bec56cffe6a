"""Makes of the cards what placement hands out: whole cards, or the instances of those that are cut."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from llmgw.core.hardware.findings import Finding
from llmgw.core.hardware.gpus import Gpu, MigInstance
from llmgw.core.units import Bytes, Seconds, moment
from llmgw.core.world import Device, DeviceKind
from workers.discovery.nvidia import classes
from workers.discovery.nvidia.cards import Cards

_INSTANCES_FROM: Final = 1000
_A_CARD: Final = 100

Ailment = tuple[str, str]
"""The code of why a device may not be used, and the words."""


class _Host(NamedTuple):
    """The machine's memory, which a card without its own uses."""

    total: Bytes | None
    offered: Bytes | None
    """What is left of it for engines."""


def offered(
    cards: Cards,
    *,
    findings: Sequence[Finding],
    host_memory: Bytes | None,
    reserve: Bytes,
    stale_since: Seconds | None = None,
    nvlinked: Sequence[Sequence[str]] = (),
) -> tuple[Device, ...]:
    """Return every device that has a name, those that may not be used with their reason.

    `nvlinked`: UUIDs of the cards that reach each other by NVLink, group by group.
    """
    stale = ("device.stale", f"the driver has told nothing of it since {moment(stale_since)}") if stale_since else None
    excluding = [finding for finding in findings if finding.excludes]
    host = _Host(host_memory, None if host_memory is None else Bytes(max(0, host_memory - reserve)))
    found = (device for gpu in cards.gpus for device in _of_card(gpu, excluding, host, stale))
    group_of = {uuid: group[0] for group in nvlinked for uuid in group}
    return tuple(msgspec.structs.replace(device, nvlink=group_of.get(device.id, "")) for device in found)


def uses_host_memory(cards: Cards) -> bool:
    """Tell whether a card uses the machine's memory, which then must not be offered a second time."""
    return any(gpu.memory_is_unified and not gpu.failed for gpu in cards.gpus)


def _of_card(gpu: Gpu, excluding: Sequence[Finding], host: _Host, stale: Ailment | None) -> Iterator[Device]:
    if gpu.uuid is None:
        return
    ailment = _first(stale, _failure(gpu), _found(excluding, gpu.uuid), _mode_change(gpu))
    if is_cut(gpu) and gpu.instances:
        for part in gpu.instances:
            yield from _instance(gpu, part, _first(ailment, _found(excluding, part.uuid)))
        return
    memory = host.offered if gpu.memory_is_unified else gpu.memory_total_bytes
    empty = ("device.mig-empty", "is in MIG mode and nothing is carved from it: create instances, or switch MIG off")
    ailment = _first(ailment, empty if is_cut(gpu) else None, _unknown(gpu.device_class, memory))
    code, why = ailment or ("", None)
    yield Device(
        id=gpu.uuid,
        kind=DeviceKind.GPU,
        device_class=_class_of(gpu, host),
        memory=Bytes(memory or 0),
        unhealthy=why,
        unhealthy_code=code,
        index=gpu.index,
        label="" if gpu.index is None else str(gpu.index),
        capability=gpu.compute_capability or "",
        domain=(gpu.fabric.domain if gpu.fabric else None) or "",
    )


def is_cut(gpu: Gpu) -> bool:
    """Tell whether a card is used by its instances. A virtual card on one of them is a whole card to its guest."""
    return bool(gpu.mig_enabled) and not (gpu.virtualization == "vgpu" and classes.is_vgpu_on_mig(gpu.name))


def _class_of(gpu: Gpu, host: _Host) -> str:
    if gpu.memory_is_unified and gpu.name:
        # By all that the machine has, so that the reserve, which is a setting, makes no other class.
        return classes.gpu_class(gpu.name, host.total) or "unknown"
    return gpu.device_class or "unknown"


def _instance(gpu: Gpu, part: MigInstance, ailment: Ailment | None) -> Iterator[Device]:
    if part.uuid is None:
        return
    memory = part.memory_total_bytes
    total = None if gpu.memory_total_bytes is None else Bytes(gpu.memory_total_bytes)
    known = classes.mig_class(gpu.name, total, part.profile) if gpu.name and part.profile else None
    code, why = _first(ailment, _unknown(known, memory)) or ("", None)
    number = None if gpu.index is None else _INSTANCES_FROM + _A_CARD * gpu.index + part.slot
    yield Device(
        id=part.uuid,
        kind=DeviceKind.MIG,
        device_class=known or "unknown",
        memory=Bytes(memory or 0),
        unhealthy=why,
        unhealthy_code=code,
        index=number,
        label=f"{'?' if gpu.index is None else gpu.index}/mig{part.slot}",
        card=gpu.uuid,
        capability=gpu.compute_capability or "",
    )


# --- why not ------------------------------------------------------------------------------------------------------


def _first(*ailments: Ailment | None) -> Ailment | None:
    return next((ailment for ailment in ailments if ailment), None)


def _failure(gpu: Gpu) -> Ailment | None:
    if not gpu.failed:
        return None
    code = "device.unhealthy.reset" if "requires re" in gpu.failed.lower() else "device.unhealthy.lost"
    return code, f"the driver says: {gpu.failed}"


def _found(excluding: Sequence[Finding], uuid: str | None) -> Ailment | None:
    return next(((finding.code, finding.text) for finding in excluding if finding.about == uuid and uuid), None)


def _mode_change(gpu: Gpu) -> Ailment | None:
    if gpu.mig_enabled is None or gpu.mig_enabled_pending in {None, gpu.mig_enabled}:
        return None
    word = "on" if gpu.mig_enabled_pending else "off"
    return (
        "device.mig-pending",
        f"MIG is to be switched {word} by its next reset: `nvidia-smi -r -i {gpu.for_smi}` when idle",
    )


def _unknown(device_class: str | None, memory: int | None) -> Ailment | None:
    if device_class and memory:
        return None
    untold = [word for word, told in (("name", device_class), ("memory", memory)) if not told]
    return "device.unknown", f"the driver does not tell its {' and '.join(untold)}"
