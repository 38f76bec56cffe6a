"""What is: nodes with their devices, replicas with their shards, and the snapshot that a decision may know."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

import msgspec

from llmgw.core.hardware.fabrics import Attachment
from llmgw.core.units import Bytes, LaunchId, ModelName, NodeName, ReplicaId, Seconds
from llmgw.core.wanted import Model


class NodeState(StrEnum):
    """How well a node is heard."""

    JOINING = "joining"
    READY = "ready"
    UNREACHABLE = "unreachable"
    LOST = "lost"


class DeviceKind(StrEnum):
    """What placement hands out."""

    CPU = "cpu"
    GPU = "gpu"
    MIG = "mig"


class State(StrEnum):
    """Where a shard, and with it its replica, stands on the straight line."""

    QUEUED = "queued"
    PLACED = "placed"
    FETCHING = "fetching"
    LAUNCHING = "launching"
    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"
    LOST = "lost"


class Device(msgspec.Struct, frozen=True, rename={"memory": "memory_bytes"}):
    """One thing that placement can hand out on a node."""

    id: str
    """`cpu`, or the driver's UUID of a GPU or MIG instance; unique on its node."""
    kind: DeviceKind
    device_class: str
    memory: Bytes
    slots: int = 1
    """How many shards it carries side by side: 1 for a GPU, for a CPU as many as the node's settings say."""
    unhealthy: str | None = None
    """Why it may not be used, in the words of the finding; None when it may."""
    unhealthy_code: str = ""
    """The code of that finding, for example `device.unhealthy.ecc`."""
    index: int | None = None
    """The driver's number of a card; of a MIG instance 1000 + 100 × card + instance."""
    label: str = ""
    """What a person calls it: `3`, `3/mig1`."""
    card: str | None = None
    """UUID of the card that a MIG instance is part of."""
    capability: str = ""
    """A card's compute capability, `9.0`; empty where it is not known."""
    nvlink: str = ""
    """The group of cards of this node that reach each other by NVLink, named by its first card; empty for none."""
    domain: str = ""
    """The NVLink domain over several nodes, `<cluster UUID>.<clique>`; empty for none."""


@dataclass(frozen=True, slots=True)
class Node:
    """One machine as the control plane knows it."""

    name: NodeName
    state: NodeState
    address: str
    epoch: int
    devices: tuple[Device, ...] = ()
    engines: frozenset[str] = frozenset()
    """Names of the engines that this node can start."""
    disk_free: Bytes | None = None
    """Free space where weights are kept, in bytes; None when it could not be read."""
    cordoned: bool = False
    labels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    fabrics: tuple[Attachment, ...] = ()
    """The fabrics that it is attached to, the unusable ones too."""


@dataclass(frozen=True, slots=True)
class Shard:
    """The part of a replica on one node: one launch of one engine process group."""

    launch_id: LaunchId
    node: NodeName
    devices: tuple[str, ...]
    state: State
    rank: int = 0


@dataclass(frozen=True, slots=True)
class Replica:
    """One slot of a model and the start that it is in."""

    id: ReplicaId
    model: ModelName
    ordinal: int
    state: State
    profile: str | None = None
    fingerprint: str | None = None
    """`Model.fingerprint` of what was started; None before the first start."""
    attempt: int = 0
    failures: int = 0
    """Failures in a row; set back once a start has served long enough."""
    next_try_at: Seconds | None = None
    """Not before this moment, after a failure."""
    shards: tuple[Shard, ...] = ()
    """Those of the present attempt."""


@dataclass(frozen=True, slots=True)
class Stray:
    """An engine alive on a node that no replica's present attempt owns."""

    node: NodeName
    launch_id: LaunchId
    devices: tuple[str, ...] = ()
    stopping: bool = False
    """True once it was ordered to stop; it holds its devices until it has."""


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """All that a reconcile pass may know."""

    nodes: tuple[Node, ...] = ()
    models: tuple[Model, ...] = ()
    replicas: tuple[Replica, ...] = ()
    strays: tuple[Stray, ...] = ()
