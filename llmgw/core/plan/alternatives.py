"""What would work where a replica has no place: one thing relaxed at a time, each tried by the planner itself."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

from llmgw.core.placement import Fleet, Placement, fitting, place
from llmgw.core.units import ModelName, NodeName, ReplicaId
from llmgw.core.wanted import Demand, Model, Profile
from llmgw.core.world import ClusterSnapshot, Node, Replica

_SHORTEST: Final = 1024
_MOST_MOVED: Final = 200
"""So many replicas are tried to be moved: the smallest first."""


@dataclass(frozen=True, slots=True)
class ShorterContext:
    """A context that leaves more memory for the weights."""

    code: ClassVar[str] = "context"
    profile: str
    context_length: int
    node: NodeName

    def text(self) -> str:
        """Say it in one line."""
        return f"with context_length {self.context_length} profile {self.profile} fits on {self.node}"


@dataclass(frozen=True, slots=True)
class Preempt:
    """A replica of a lower priority gives up its place."""

    code: ClassVar[str] = "preempt"
    replica: ReplicaId
    priority: int
    node: NodeName

    def text(self) -> str:
        """Say it in one line."""
        return f"without {self.replica}, whose priority is {self.priority}, it fits on {self.node}"


@dataclass(frozen=True, slots=True)
class Move:
    """A replica that has another place to go to makes room."""

    code: ClassVar[str] = "move"
    replica: ReplicaId
    to: NodeName
    node: NodeName

    def text(self) -> str:
        """Say it in one line."""
        return f"with {self.replica} moved to {self.to} it fits on {self.node}"


@dataclass(frozen=True, slots=True)
class OneMoreNode:
    """A node like one that is there."""

    code: ClassVar[str] = "node"
    like: NodeName
    profile: str

    def text(self) -> str:
        """Say it in one line."""
        return f"with one more node like {self.like}, empty, profile {self.profile} fits"


Alternative = ShorterContext | Preempt | Move | OneMoreNode


def to_json(told: Alternative) -> dict[str, Any]:
    """Return the printed shape."""
    facts = {name: getattr(told, name) for name in told.__dataclass_fields__}
    return {"code": told.code, "text": told.text(), **facts}


def alternatives(snapshot: ClusterSnapshot, model: Model) -> tuple[Alternative, ...]:
    """Return at most one of each kind, the mildest first: what would give one more replica of a model a place."""
    kinds: tuple[Iterator[Alternative], ...] = (
        _shorter(snapshot, model),
        _moved(snapshot, model),
        _preempted(snapshot, model),
        _larger(snapshot, model),
    )
    return tuple(found for kind in kinds if (found := next(kind, None)))


def _first(fleet: Fleet, model: Model) -> Placement | None:
    return next((found for profile in model.profiles if (found := fitting(fleet, Demand(model, profile)))), None)


def _shorter(snapshot: ClusterSnapshot, model: Model) -> Iterator[ShorterContext]:
    """Halve the context until it fits; the longest by halves is told."""
    fleet = Fleet(snapshot)
    for profile in model.profiles:
        for length in _halves(model, profile):
            shorter = replace(profile, context_length=length)
            found = fitting(fleet, Demand(replace(model, name=ModelName(f"{model.name} {length}")), shorter))
            if found:
                yield ShorterContext(profile.name, length, found.parts[0].node)
                return


def _halves(model: Model, profile: Profile) -> Iterator[int]:
    if model.facts is None or profile.memory is not None:
        return  # the context makes no difference to what is asked for
    length = profile.context_length or model.facts.architecture.context or 0
    while (length := length // 2) >= _SHORTEST:
        yield length


def _preempted(snapshot: ClusterSnapshot, model: Model) -> Iterator[Preempt]:
    priority = {other.name: other.priority for other in snapshot.models}
    lower = [one for one in snapshot.replicas if one.shards and priority.get(one.model, 0) < model.priority]
    for one in sorted(lower, key=lambda one: (priority.get(one.model, 0), _size(one), one.id))[:_MOST_MOVED]:
        if found := _first(Fleet(_without(snapshot, one)), model):
            yield Preempt(one.id, priority.get(one.model, 0), found.parts[0].node)


def _moved(snapshot: ClusterSnapshot, model: Model) -> Iterator[Move]:
    """Try to move one replica: it must find a place once this model has taken its own."""
    by_name = {other.name: other for other in snapshot.models}
    running = [one for one in snapshot.replicas if one.shards and one.model in by_name and one.model != model.name]
    for one in sorted(running, key=lambda one: (_size(one), one.id))[:_MOST_MOVED]:
        fleet = Fleet(_without(snapshot, one))
        found = _first(fleet, model)
        if found is None:
            continue
        for part in found.parts:
            fleet.claim(part.node, part.devices, "the newcomer", model.name)
        if elsewhere := _first(fleet, by_name[one.model]):
            yield Move(one.id, elsewhere.parts[0].node, found.parts[0].node)


def _larger(snapshot: ClusterSnapshot, model: Model) -> Iterator[OneMoreNode]:
    tried: set[tuple[object, ...]] = set()
    for node in sorted(snapshot.nodes, key=lambda node: node.name):
        shape = (node.devices, node.engines, tuple(sorted(node.labels.items())), node.fabrics, node.disk_free)
        if shape in tried:
            continue
        tried.add(shape)
        more = replace(snapshot, nodes=(*snapshot.nodes, _empty(node)))
        for profile in model.profiles:
            if isinstance(place(more, Demand(model, profile)), Placement):
                yield OneMoreNode(node.name, profile.name)
                return


def _empty(node: Node) -> Node:
    return replace(node, name=NodeName(f"{node.name} (one more)"), cordoned=False)


def _without(snapshot: ClusterSnapshot, gone: Replica) -> ClusterSnapshot:
    return replace(snapshot, replicas=tuple(one for one in snapshot.replicas if one.id != gone.id))


def _size(one: Replica) -> int:
    return sum(len(shard.devices) for shard in one.shards)
