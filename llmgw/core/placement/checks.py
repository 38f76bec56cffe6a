"""Who may: every reason that speaks against a node or a device, one function each."""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from llmgw.core.placement.spanning import groups_of
from llmgw.core.refusals import (
    ClassMismatch,
    DeviceClaimed,
    DevicesShort,
    DeviceUnhealthy,
    DiskShort,
    EngineMissing,
    FabricNone,
    FabricOther,
    FabricUnusable,
    LabelsMissing,
    MemoryShort,
    NodeCordoned,
    NodeLost,
    NodeNotJoined,
    NodeUnreachable,
    Refusal,
)
from llmgw.core.units import Bytes, NodeName
from llmgw.core.wanted import Demand
from llmgw.core.world import Device, Node, NodeState

_SILENT: Final[Mapping[NodeState, Callable[[NodeName], Refusal]]] = MappingProxyType(
    {NodeState.JOINING: NodeNotJoined, NodeState.UNREACHABLE: NodeUnreachable, NodeState.LOST: NodeLost}
)

Holders = Callable[[NodeName, str], tuple[str, ...]]
"""Node, device → who is on it."""


class Need(NamedTuple):
    """What a demand asks of a node's devices: many models ask for the same."""

    classes: tuple[str, ...]
    devices: int
    memory: Bytes


def node_refusals(node: Node, demand: Demand, *, keeps_weights: bool) -> Iterator[Refusal]:
    """Say what speaks against the node as a whole, whatever runs on it."""
    for check in _NODE_CHECKS:
        yield from check(node, demand)
    if not keeps_weights:
        yield from _disk(node, demand)


def usable(node: Node, device_class: str, demand: Demand) -> tuple[Device, ...]:
    """Return the devices of a class that would do if nobody were on them."""
    memory = demand.memory
    return tuple(d for d in node.devices if d.device_class == device_class and not d.unhealthy and d.memory >= memory)


def device_refusals(node: Node, need: Need, holders: Holders) -> tuple[Refusal, ...]:
    """Say what speaks against each device of the wanted classes, or that there is none of them."""
    of_class = [device for device in node.devices if device.device_class in need.classes]
    if not of_class:
        return (ClassMismatch(need.classes, tuple(sorted({device.device_class for device in node.devices}))),)
    against = [_against(device, need.memory, holders(node.name, device.id)) for device in of_class]
    free = [device for device, no in zip(of_class, against, strict=True) if not no]
    most = max(sum(device.device_class == name for device in free) for name in need.classes)
    short = (DevicesShort(need.devices, most),) if 0 < most < need.devices else ()
    return (*(no for no in against if no), *short)


def _heard(node: Node, _demand: Demand) -> Iterator[Refusal]:
    if node.state in _SILENT:
        yield _SILENT[node.state](node.name)


def _cordon(node: Node, _demand: Demand) -> Iterator[Refusal]:
    if node.cordoned:
        yield NodeCordoned(node.name)


def _fabric(node: Node, demand: Demand) -> Iterator[Refusal]:
    if demand.profile.nodes == 1:
        return
    wanted = demand.profile.fabric
    over = [fabric for fabric in node.fabrics if wanted in {None, fabric.name}]
    if groups_of(node, wanted):
        return
    if over:
        yield FabricUnusable(*zip(*((f.name, f.unusable_code, f.unusable or "") for f in over), strict=True))
    elif wanted:
        yield FabricOther(wanted, tuple(fabric.name for fabric in node.fabrics))
    else:
        yield FabricNone(demand.profile.nodes)


def _engine(node: Node, demand: Demand) -> Iterator[Refusal]:
    if demand.profile.engine not in node.engines:
        yield EngineMissing(demand.profile.engine, tuple(sorted(node.engines)))


def _labels(node: Node, demand: Demand) -> Iterator[Refusal]:
    wanted = sorted(demand.model.labels.items())
    missing = tuple(f"{key}={value}" for key, value in wanted if node.labels.get(key) != value)
    if missing:
        yield LabelsMissing(missing)


def _disk(node: Node, demand: Demand) -> Iterator[Refusal]:
    source = demand.model.source
    if source.copied and source.size is not None and node.disk_free is not None:
        # A twentieth more than the file: the node writes logs and journals there, too.
        needed = Bytes(source.size + source.size // 20)
        if needed > node.disk_free:
            yield DiskShort(needed, node.disk_free)


_NODE_CHECKS: Final = (_heard, _cordon, _fabric, _engine, _labels)


def _against(device: Device, memory: Bytes, on_it: tuple[str, ...]) -> Refusal | None:
    if device.unhealthy:
        return DeviceUnhealthy(device.id, device.unhealthy, device.unhealthy_code, device.label)
    if device.memory < memory:
        return MemoryShort(device.id, memory, device.memory)
    if len(on_it) >= device.slots:
        return DeviceClaimed(device.id, device.slots, on_it)
    return None
