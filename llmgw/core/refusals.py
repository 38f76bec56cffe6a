"""Every "no" that placement and the node can give, with its numbers, what cures it, and its text."""

from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any, ClassVar, Final, Protocol, runtime_checkable

import msgspec

from llmgw.core.units import Bytes, NodeName, counted, gib, in_a_row


class Event(StrEnum):
    """What can happen to the fleet that makes a refused candidate worth another look."""

    NODE_JOINED = "node-joined"
    NODE_CHANGED = "node-changed"
    NODE_RETURNED = "node-returned"
    NODE_UNCORDONED = "node-uncordoned"
    REPLICA_STOPPED = "replica-stopped"
    DEVICE_HEALED = "device-healed"
    MODEL_EDITED = "model-edited"
    TIME_PASSED = "time-passed"


@runtime_checkable
class Refusal(Protocol):
    """A typed no. `code` is stable and is also the anchor of its paragraph in the reference."""

    code: ClassVar[str]
    cured_by: ClassVar[frozenset[Event]]

    def text(self) -> str:
        """Say which numbers stood against it, in one line."""
        ...

    def cure(self) -> str:
        """Say what an operator can do, in one line."""
        ...


@dataclass(frozen=True, slots=True)
class NodeNotJoined:
    """The node has not told yet what it has."""

    code: ClassVar[str] = "node.joining"
    cured_by: ClassVar[frozenset[Event]] = frozenset({Event.NODE_JOINED})
    node: NodeName

    def text(self) -> str:
        return "has not reported its inventory yet"

    def cure(self) -> str:
        return f"wait for its first report, or look at the worker's log on {self.node}"


@dataclass(frozen=True, slots=True)
class NodeUnreachable:
    """The node has missed heartbeats; what runs there is left alone."""

    code: ClassVar[str] = "node.unreachable"
    cured_by: ClassVar[frozenset[Event]] = frozenset({Event.NODE_RETURNED})
    node: NodeName

    def text(self) -> str:
        return "has missed its heartbeats"

    def cure(self) -> str:
        return f"look at the worker on {self.node}: `systemctl status llmgw-node`"


@dataclass(frozen=True, slots=True)
class NodeLost:
    """The node has been silent for so long that it is given up."""

    code: ClassVar[str] = "node.lost"
    cured_by: ClassVar[frozenset[Event]] = frozenset({Event.NODE_RETURNED})
    node: NodeName

    def text(self) -> str:
        return "has been silent too long and is given up"

    def cure(self) -> str:
        return f"bring {self.node} back; its engines are kept if they still serve"


@dataclass(frozen=True, slots=True)
class NodeCordoned:
    """An operator keeps new work away from the node."""

    code: ClassVar[str] = "node.cordoned"
    cured_by: ClassVar[frozenset[Event]] = frozenset({Event.NODE_UNCORDONED})
    node: NodeName

    def text(self) -> str:
        return "is cordoned"

    def cure(self) -> str:
        return f"uncordon {self.node}"


@dataclass(frozen=True, slots=True)
class EngineMissing:
    """The node cannot start the engine that the profile asks for."""

    code: ClassVar[str] = "node.engine-missing"
    cured_by: ClassVar[frozenset[Event]] = frozenset({Event.NODE_CHANGED, Event.MODEL_EDITED})
    engine: str
    installed: tuple[str, ...]

    def text(self) -> str:
        has = ", ".join(self.installed) or "none"
        return f"needs engine {self.engine}, has {has}"

    def cure(self) -> str:
        return f"install {self.engine} on the node, or add a profile with an engine it has"


@dataclass(frozen=True, slots=True)
class LabelsMissing:
    """The model asks for labels that the node does not carry."""

    code: ClassVar[str] = "policy.label"
    cured_by: ClassVar[frozenset[Event]] = frozenset({Event.NODE_CHANGED, Event.MODEL_EDITED})
    missing: tuple[str, ...]
    """`key=value` each."""

    def text(self) -> str:
        return f"lacks the labels {', '.join(self.missing)}"

    def cure(self) -> str:
        return "label the node, or take the label from the model"


@dataclass(frozen=True, slots=True)
class DiskShort:
    """The disk where weights are kept cannot take this model's."""

    code: ClassVar[str] = "node.disk"
    cured_by: ClassVar[frozenset[Event]] = frozenset({Event.NODE_CHANGED})
    needed: Bytes
    free: Bytes

    def text(self) -> str:
        return f"needs {gib(self.needed)} of disk for the weights, {gib(self.free)} free"

    def cure(self) -> str:
        return "delete weights that nobody uses, or give the node's state folder a larger disk"


@dataclass(frozen=True, slots=True)
class ClassMismatch:
    """No device of the node is of a class that the profile names."""

    code: ClassVar[str] = "class.mismatch"
    cured_by: ClassVar[frozenset[Event]] = frozenset({Event.NODE_CHANGED, Event.MODEL_EDITED})
    wanted: tuple[str, ...]
    present: tuple[str, ...]

    def text(self) -> str:
        return f"wants class {' or '.join(self.wanted)}, the node has {', '.join(self.present) or 'no devices'}"

    def cure(self) -> str:
        return "add a profile for a class this node has"


@dataclass(frozen=True, slots=True)
class DeviceUnhealthy:
    """A device of the right class may not be used."""

    code: ClassVar[str] = "device.unhealthy"
    cured_by: ClassVar[frozenset[Event]] = frozenset({Event.DEVICE_HEALED})
    device: str
    reason: str
    finding: str = ""
    """Code of what was found on the node, where it told: `device.unhealthy.ecc`, `device.foreign-memory`."""
    label: str = ""
    """What a person calls the device: `3`, `3/mig1`."""

    def text(self) -> str:
        called = f"device {self.label} ({self.device})" if self.label else f"device {self.device}"
        told = f"{self.finding}: {self.reason}" if self.finding else self.reason
        return f"{called} is unhealthy: {told}"

    def cure(self) -> str:
        return "repair it; `llmgw-node inventory` on the node shows when it may be used again"


@dataclass(frozen=True, slots=True)
class MemoryShort:
    """A device of the right class is too small for the model."""

    code: ClassVar[str] = "class.memory"
    cured_by: ClassVar[frozenset[Event]] = frozenset({Event.MODEL_EDITED, Event.NODE_CHANGED})
    device: str
    needed: Bytes
    has: Bytes

    def text(self) -> str:
        return f"device {self.device} needs {gib(self.needed)} of memory, has {gib(self.has)}"

    def cure(self) -> str:
        return "use a smaller quantisation or context length, more devices, or a class with more memory"


@dataclass(frozen=True, slots=True)
class MemoryUnknown:
    """How much memory the model needs is not known, and a card is not given on a guess."""

    code: ClassVar[str] = "weights.unknown-size"
    cured_by: ClassVar[frozenset[Event]] = frozenset({Event.MODEL_EDITED})
    missing: tuple[str, ...]
    """`weights`, `cache`."""

    def text(self) -> str:
        return f"how much memory it needs is not known: {' and '.join(self.missing)} cannot be worked out"

    def cure(self) -> str:
        return "give `memory` in the profile, the source's `size`, or `facts` as `manage.py inspect` prints them"


@dataclass(frozen=True, slots=True)
class CapabilityShort:
    """A card of the right class is too old for the engine or for how the weights are stored."""

    code: ClassVar[str] = "class.compute-capability"
    cured_by: ClassVar[frozenset[Event]] = frozenset({Event.MODEL_EDITED, Event.NODE_CHANGED})
    device: str
    needed: str
    has: str
    what: str
    """`fp8`, or the engine."""

    def text(self) -> str:
        return f"device {self.device} has compute capability {self.has}, {self.what} needs {self.needed}"

    def cure(self) -> str:
        return "use weights that are stored otherwise, or a class of newer cards"


@dataclass(frozen=True, slots=True)
class DeviceClaimed:
    """A device that would do is taken."""

    code: ClassVar[str] = "device.claimed"
    cured_by: ClassVar[frozenset[Event]] = frozenset({Event.REPLICA_STOPPED})
    device: str
    slots: int
    holders: tuple[str, ...]
    """Replica ids, or launch ids of what is still being stopped."""

    def text(self) -> str:
        return f"device {self.device} is taken ({len(self.holders)} of {self.slots}) by {', '.join(self.holders)}"

    def cure(self) -> str:
        return "wait for one of them to stop, ask for fewer replicas, or add a node"


@dataclass(frozen=True, slots=True)
class DevicesShort:
    """Single devices would do, but there are not enough of them on one node."""

    code: ClassVar[str] = "class.count"
    cured_by: ClassVar[frozenset[Event]] = frozenset({Event.REPLICA_STOPPED, Event.NODE_CHANGED})
    needed: int
    free: int

    def text(self) -> str:
        return f"needs {self.needed} devices together, {self.free} free"

    def cure(self) -> str:
        return "lower devices and their split, or free devices on this node"


@dataclass(frozen=True, slots=True)
class FabricNone:
    """A replica over several nodes needs a fabric, and this node is on none."""

    code: ClassVar[str] = "fabric.none"
    cured_by: ClassVar[frozenset[Event]] = frozenset({Event.NODE_CHANGED, Event.MODEL_EDITED})
    nodes: int

    def text(self) -> str:
        return f"a replica over {self.nodes} nodes needs a fabric, the node is attached to none"

    def cure(self) -> str:
        return "use a profile with nodes = 1"


@dataclass(frozen=True, slots=True)
class FabricUnusable:
    """A replica over several nodes needs a fabric, and nothing can go over those that this node was told of."""

    code: ClassVar[str] = "fabric.unusable"
    cured_by: ClassVar[frozenset[Event]] = frozenset({Event.NODE_CHANGED, Event.DEVICE_HEALED})
    fabrics: tuple[str, ...]
    findings: tuple[str, ...]
    """Of each fabric, the code of what was found."""
    reasons: tuple[str, ...]
    """Of each fabric, why."""

    def text(self) -> str:
        told = zip(self.fabrics, self.findings, self.reasons, strict=True)
        return "; ".join(f"fabric {name} cannot be used: {code}: {why}" for name, code, why in told)

    def cure(self) -> str:
        return "`llmgw-node doctor` on the node says how to cure each"


@dataclass(frozen=True, slots=True)
class FabricOther:
    """The profile names a fabric that this node is not on."""

    code: ClassVar[str] = "fabric.other"
    cured_by: ClassVar[frozenset[Event]] = frozenset({Event.NODE_CHANGED, Event.MODEL_EDITED})
    wanted: str
    attached: tuple[str, ...]

    def text(self) -> str:
        return f"wants fabric {self.wanted}, the node is on {', '.join(self.attached) or 'none'}"

    def cure(self) -> str:
        return f"declare {self.wanted} in the node's settings, or leave `fabric` out of the profile"


@dataclass(frozen=True, slots=True)
class FabricShort:
    """The node could take a shard, but too few others that it reaches could, too."""

    code: ClassVar[str] = "fabric.count"
    cured_by: ClassVar[frozenset[Event]] = frozenset(
        {Event.REPLICA_STOPPED, Event.NODE_CHANGED, Event.NODE_JOINED, Event.NODE_RETURNED, Event.DEVICE_HEALED}
    )
    fabric: str
    identity: str
    needed: int
    able: int

    def text(self) -> str:
        which = f"{self.fabric} ({self.identity})" if self.identity else self.fabric
        return f"needs {self.needed} nodes together, {self.able} on {which} could take a part now"

    def cure(self) -> str:
        return "free devices on other nodes of it, or use a profile with fewer nodes"


@dataclass(frozen=True, slots=True)
class FabricIdentity:
    """Nodes give one name to several physical networks."""

    code: ClassVar[str] = "fabric.identity"
    cured_by: ClassVar[frozenset[Event]] = frozenset({Event.NODE_CHANGED})
    fabric: str
    identity: str
    others: tuple[str, ...]

    def text(self) -> str:
        there = ", ".join(other or "unknown" for other in self.others)
        return f"its fabric {self.fabric} is {self.identity or 'unknown'}, on other nodes that name is {there}"

    def cure(self) -> str:
        return (
            "give each physical network a name of its own in the nodes' settings; `llmgw-node doctor` tells which it is"
        )


@dataclass(frozen=True, slots=True)
class RailsApart:
    """Only ports of one number reach each other, and no number is free on enough nodes."""

    code: ClassVar[str] = "fabric.rails"
    cured_by: ClassVar[frozenset[Event]] = frozenset({Event.REPLICA_STOPPED, Event.NODE_CHANGED})
    fabric: str
    nodes: int
    devices: int

    def text(self) -> str:
        rails = counted(self.devices, "rail")
        return f"needs {rails} of {self.fabric} free on {self.nodes} nodes alike, other ones are free on each"

    def cure(self) -> str:
        return "free devices so that the same rails are free, or use all devices of each node"


@dataclass(frozen=True, slots=True)
class WaitingForRetry:
    """The replica failed and its next start is not due yet."""

    code: ClassVar[str] = "replica.back-off"
    cured_by: ClassVar[frozenset[Event]] = frozenset({Event.TIME_PASSED, Event.MODEL_EDITED})
    failures: int
    wait: float
    """Seconds still to wait."""

    def text(self) -> str:
        return f"failed {in_a_row(self.failures)}, next start in {max(self.wait, 0):.0f} s"

    def cure(self) -> str:
        return "read its last failure; editing the model starts it at once"


@dataclass(frozen=True, slots=True)
class WaitingForRollout:
    """The model was edited, and as many replicas are up as may be while the ones from before are replaced."""

    code: ClassVar[str] = "replica.rollout"
    cured_by: ClassVar[frozenset[Event]] = frozenset({Event.REPLICA_STOPPED, Event.MODEL_EDITED})
    old: int
    """Replicas of the version before that are still up."""

    def text(self) -> str:
        return f"waits for its turn: {self.old} from before the edit still up, and they are replaced one by one"

    def cure(self) -> str:
        return "wait; if it does not go on, see why the model's other replicas do not start"


@dataclass(frozen=True, slots=True)
class WaitingForRoom:
    """What is on the devices that the replica will get has been asked to go, and has not gone yet."""

    code: ClassVar[str] = "policy.priority"
    cured_by: ClassVar[frozenset[Event]] = frozenset({Event.REPLICA_STOPPED, Event.MODEL_EDITED})
    waits_for: tuple[str, ...]
    """Replica ids, or launch ids of what is still being stopped."""

    def text(self) -> str:
        return f"waits until {', '.join(self.waits_for)} has gone, then takes its place"

    def cure(self) -> str:
        return "nothing: they finish their requests first; `manage.py replicas stop` ends one at once"


@dataclass(frozen=True, slots=True)
class NoNodes:
    """There is no node at all to look at."""

    code: ClassVar[str] = "fleet.empty"
    cured_by: ClassVar[frozenset[Event]] = frozenset({Event.NODE_JOINED})

    def text(self) -> str:
        return "no node has joined"

    def cure(self) -> str:
        return "start a node worker: `llmgw-node run`"


REFUSALS: Final[tuple[type[Refusal], ...]] = (
    NoNodes,
    NodeNotJoined,
    NodeUnreachable,
    NodeLost,
    NodeCordoned,
    EngineMissing,
    LabelsMissing,
    DiskShort,
    ClassMismatch,
    DeviceUnhealthy,
    MemoryUnknown,
    CapabilityShort,
    MemoryShort,
    DeviceClaimed,
    DevicesShort,
    FabricNone,
    FabricUnusable,
    FabricOther,
    FabricShort,
    FabricIdentity,
    RailsApart,
    WaitingForRetry,
    WaitingForRollout,
    WaitingForRoom,
)
EASIEST_FIRST: Final[tuple[type[Refusal], ...]] = (
    WaitingForRoom,
    WaitingForRetry,
    WaitingForRollout,
    DeviceClaimed,
    DevicesShort,
    FabricShort,
    RailsApart,
    NodeCordoned,
    NodeNotJoined,
    NodeUnreachable,
    LabelsMissing,
    DiskShort,
    DeviceUnhealthy,
    MemoryUnknown,
    EngineMissing,
    MemoryShort,
    CapabilityShort,
    ClassMismatch,
    FabricUnusable,
    FabricIdentity,
    FabricOther,
    FabricNone,
    NodeLost,
    NoNodes,
)
"""By how much it takes to cure one: of two candidates with as many reasons against them, the easier one is nearer."""

_HARDNESS: Final = MappingProxyType({kind.code: rank for rank, kind in enumerate(EASIEST_FIRST)})


def hardness(code: str) -> int:
    """Rank a reason by how hard it is to cure; one of another version, which nobody here knows, is the hardest."""
    return _HARDNESS.get(code, len(_HARDNESS))


def to_json(refusal: Refusal) -> dict[str, Any]:
    """Return the stored and printed shape: `{"code", "text", "cure", "facts": {…}}`."""
    return {
        "code": refusal.code,
        "text": refusal.text(),
        "cure": refusal.cure(),
        "facts": plain(refusal),
    }


def plain(value: object) -> Any:
    """Return what JSON would give back for a value, lists for tuples, so that what is stored equals what is made."""
    return msgspec.json.decode(msgspec.json.encode(value))
