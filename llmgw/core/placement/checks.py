"""Who may: every reason that speaks against a node or a device, one function each."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple, Self

from llmgw.core.engines.needs import Least, capability_of, least_capability
from llmgw.core.placement.spanning import groups_of
from llmgw.core.refusals import (
    CapabilityShort,
    ClassMismatch,
    DeviceClaimed,
    DeviceUnhealthy,
    DiskShort,
    EngineMissing,
    FabricNone,
    FabricOther,
    FabricUnusable,
    LabelsMissing,
    MemoryShort,
    MemoryUnknown,
    NodeCordoned,
    NodeLost,
    NodeNotJoined,
    NodeUnreachable,
    Refusal,
)
from llmgw.core.units import Bytes, NodeName
from llmgw.core.wanted import CPU_CLASS, Demand
from llmgw.core.world import Device, Node, NodeState

_SILENT: Final[Mapping[NodeState, Callable[[NodeName], Refusal]]] = MappingProxyType(
    {NodeState.JOINING: NodeNotJoined, NodeState.UNREACHABLE: NodeUnreachable, NodeState.LOST: NodeLost}
)


class NodeNeed(NamedTuple):
    """What a demand asks of a node as a whole, but for its disk: many models ask for the same."""

    engine: str
    nodes: int
    fabric: str | None
    labels: tuple[tuple[str, str], ...]
    missing: tuple[str, ...]
    """What is not known of the model's memory, where cards are asked for."""

    @classmethod
    def of(cls, demand: Demand) -> Self:
        """Take it from a demand."""
        profile = demand.profile
        missing = () if profile.device_classes == (CPU_CLASS,) else demand.missing
        return cls(profile.engine, profile.nodes, profile.fabric, tuple(sorted(demand.model.labels.items())), missing)


class Need(NamedTuple):
    """What a demand asks of each device."""

    classes: tuple[str, ...]
    memory: Bytes
    capability: Least

    @classmethod
    def of(cls, demand: Demand) -> Self:
        """Take it from a demand."""
        profile, facts = demand.profile, demand.model.facts
        stored = facts.architecture.quantization if facts else None
        method = profile.quantization or (stored.method if stored else None)
        return cls(profile.device_classes, demand.memory, least_capability(profile.engine, method))


def node_refusals(node: Node, need: NodeNeed) -> Iterator[Refusal]:
    """Say what speaks against the node as a whole, whatever runs on it."""
    for check in _NODE_CHECKS:
        yield from check(node, need)


def disk_refusals(node: Node, demand: Demand) -> tuple[Refusal, ...]:
    """Say whether the disk is too small for the model's weights, where they are not on it yet."""
    source = demand.model.source
    if source.copied and source.size is not None and node.disk_free is not None:
        # A twentieth more than the file: the node writes logs and journals there, too.
        needed = Bytes(source.size + source.size // 20)
        if needed > node.disk_free:
            return (DiskShort(needed, node.disk_free),)
    return ()


def usable(node: Node, device_class: str, demand: Demand) -> tuple[Device, ...]:
    """Return the devices of a class that would do if nobody were on them."""
    need = Need.of(demand)
    return tuple(d for d in node.devices if d.device_class == device_class and _unfit(d, need) is None)


class Against(NamedTuple):
    """What speaks against the devices of a node."""

    refusals: tuple[Refusal, ...]
    free: int
    """How many of one class nothing speaks against."""


def classes_refused(wanted: Sequence[str], present: Sequence[str]) -> Against | None:
    """Say that a node with these classes has no device of a wanted one."""
    if any(name in present for name in wanted):
        return None
    return Against((ClassMismatch(tuple(wanted), tuple(present)),), 0)


def device_refusals(node: Node, need: Need, held: Mapping[str, Sequence[str]]) -> Against:
    """Say what speaks against each device of the wanted classes.

    `held` names who is on each device.
    """
    of_class = [device for device in node.devices if device.device_class in need.classes]
    against = [_against(device, need, held.get(device.id, ())) for device in of_class]
    free = Counter(device.device_class for device, no in zip(of_class, against, strict=True) if not no)
    return Against(tuple(no for no in against if no), max(free.values(), default=0))


def _heard(node: Node, _need: NodeNeed) -> Iterator[Refusal]:
    if node.state in _SILENT:
        yield _SILENT[node.state](node.name)


def _cordon(node: Node, _need: NodeNeed) -> Iterator[Refusal]:
    if node.cordoned:
        yield NodeCordoned(node.name)


def _fabric(node: Node, need: NodeNeed) -> Iterator[Refusal]:
    if need.nodes == 1:
        return
    wanted = need.fabric
    over = [fabric for fabric in node.fabrics if wanted in {None, fabric.name}]
    if groups_of(node, wanted):
        return
    if over:
        yield FabricUnusable(*zip(*((f.name, f.unusable_code, f.unusable or "") for f in over), strict=True))
    elif wanted:
        yield FabricOther(wanted, tuple(fabric.name for fabric in node.fabrics))
    else:
        yield FabricNone(need.nodes)


def _engine(node: Node, need: NodeNeed) -> Iterator[Refusal]:
    if need.engine not in node.engines:
        yield EngineMissing(need.engine, tuple(sorted(node.engines)))


def _labels(node: Node, need: NodeNeed) -> Iterator[Refusal]:
    missing = tuple(f"{key}={value}" for key, value in need.labels if node.labels.get(key) != value)
    if missing:
        yield LabelsMissing(missing)


def _sized(_node: Node, need: NodeNeed) -> Iterator[Refusal]:
    if need.missing:
        yield MemoryUnknown(need.missing)


_NODE_CHECKS: Final = (_heard, _cordon, _fabric, _engine, _labels, _sized)


def _unfit(device: Device, need: Need) -> Refusal | None:
    """Say what speaks against a device that nobody is on."""
    if device.unhealthy:
        return DeviceUnhealthy(device.id, device.unhealthy, device.unhealthy_code, device.label)
    if device.memory < need.memory:
        return MemoryShort(device.id, need.memory, device.memory)
    has = capability_of(device.capability)
    if has is not None and has < need.capability.version:
        return CapabilityShort(device.id, need.capability.text, device.capability, need.capability.what)
    return None


def _against(device: Device, need: Need, on_it: Sequence[str]) -> Refusal | None:
    if no := _unfit(device, need):
        return no
    if len(on_it) >= device.slots:
        return DeviceClaimed(device.id, device.slots, tuple(on_it))
    return None
