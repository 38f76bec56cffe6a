"""Takes places away from what is less wanted, where that really makes room for what is wanted more.

Never from an equal priority, never for a replica that has failed before, and never more than is needed. What is asked
to go is waited for: until it has gone, nothing else is taken away for the same newcomer.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from llmgw.core.lifecycle import GOING, HOLDING, LIVE
from llmgw.core.placement import Fleet, Part, fitting
from llmgw.core.units import ModelName, NodeName, ReplicaId
from llmgw.core.wanted import Demand, Model
from llmgw.core.world import ClusterSnapshot, Replica, State

_MOST_TRIED: Final = 64
"""So many replicas of a lower priority are looked at together for one newcomer."""
_MOST_NODES: Final = 256
"""So many nodes are looked at one by one before."""


@dataclass(frozen=True, slots=True)
class Room:
    """What has to go so that a newcomer has a place."""

    victims: tuple[Replica, ...]
    """To be asked now; none where all have been asked already."""
    waits_for: tuple[ReplicaId, ...]
    """Who of a lower priority is still on the devices that it will get."""


class Preemption:
    """Who goes in one pass, and what is promised to whom meanwhile."""

    def __init__(self, fleet: Fleet, snapshot: ClusterSnapshot) -> None:
        self._fleet = fleet
        self._priority = {model.name: model.priority for model in snapshot.models}
        self._replicas = snapshot.replicas
        self._going = [one for one in snapshot.replicas if one.state in GOING]
        self._promised: list[tuple[NodeName, tuple[str, ...], str, ModelName]] = []
        self.asked: set[ReplicaId] = set()
        """Who was asked to go for a newcomer's sake in this pass."""

    def leave(self, replicas: Iterable[Replica]) -> None:
        """Note who goes in this pass for another reason: what is asked already is not asked for a newcomer's sake."""
        known = self.leaving
        self._going += [one for one in replicas if one.state in LIVE and one.id not in known]

    @property
    def leaving(self) -> frozenset[ReplicaId]:
        """Name all that is asked to go, now or before."""
        return frozenset(one.id for one in self._going)

    def room(self, newcomer: ReplicaId, model: Model, demands: Sequence[Demand]) -> Room | None:
        """Find what to take away for one more replica of a model; None where nothing would help.

        What is free already of the place that it will get is kept for it: nobody else is put there meanwhile.
        """
        lower = self._lower(model)
        if not lower and not self._going:
            return None
        with self._once_gone(self._going):
            taken = [] if self._fits(demands) else self._taken(lower, demands)
            if taken is None:
                return None
            with self._without(taken):
                parts = next(found.parts for demand in demands if (found := fitting(self._fleet, demand)))
        waits_for = self._lower_on(parts, model, (*self._going, *taken))
        if not waits_for:
            return None  # only such go there as would go anyway: the usual reasons say so
        self._going += taken
        self.asked |= {one.id for one in taken}
        self._promise(parts, f"{newcomer} (to come)", model.name)
        return Room(tuple(taken), waits_for)

    def _promise(self, parts: Sequence[Part], holder: str, model: ModelName) -> None:
        for part in parts:
            node = self._fleet.by_name[part.node]
            free = self._fleet.free(node, [device for device in node.devices if device.id in part.devices])
            now = tuple(device.id for device in free)
            self._fleet.claim(part.node, now, holder, model)
            self._promised.append((part.node, tuple(name for name in part.devices if name not in now), holder, model))

    def _lower(self, model: Model) -> list[Replica]:
        """Return what may be taken away, the least missed first: of the lowest priority, not serving, small."""
        gone = self.leaving
        found = [
            one
            for one in self._replicas
            if one.state in LIVE - GOING
            and one.id not in gone
            and self._priority.get(one.model, model.priority) < model.priority
            and not any(shard.node in self._fleet.unheard for shard in one.shards)
        ]
        return sorted(found, key=lambda one: (self._priority[one.model], one.state is State.READY, _size(one), one.id))

    def _taken(self, lower: Sequence[Replica], demands: Sequence[Demand]) -> list[Replica] | None:
        """Choose whom to ask: of one node, if that is enough, since places have to be together; else of several."""
        tried = (self._least(group, demands) for group in (*self._by_node(lower), lower[:_MOST_TRIED]))
        return next((found for found in tried if found is not None), None)

    def _by_node(self, lower: Sequence[Replica]) -> list[list[Replica]]:
        """Sort replicas by the nodes that they are on, the nodes first where the least would be missed."""
        found: dict[NodeName, list[Replica]] = {}
        for one in lower:
            for node in dict.fromkeys(shard.node for shard in one.shards):
                found.setdefault(node, []).append(one)
        missed = {
            node: (max(self._priority[one.model] for one in group), sum(map(_size, group)), node)
            for node, group in found.items()
        }
        return [found[node] for node in sorted(found, key=missed.__getitem__)[:_MOST_NODES]]

    def _least(self, group: Sequence[Replica], demands: Sequence[Demand]) -> list[Replica] | None:
        """Take one after the other until it fits; then give back, the most missed first, what need not go."""
        taken: list[Replica] = []
        try:
            for one in group:
                self._release(one)
                taken.append(one)
                if self._fits(demands):
                    break
            else:
                return None
            for one in reversed(list(taken)):
                self._claim(one)
                if self._fits(demands):
                    taken.remove(one)
                else:
                    self._release(one)
            return list(taken)
        finally:
            for one in taken:
                self._claim(one)

    def _fits(self, demands: Sequence[Demand]) -> bool:
        return any(fitting(self._fleet, demand) for demand in demands)

    def _lower_on(self, parts: Sequence[Part], model: Model, going: Sequence[Replica]) -> tuple[ReplicaId, ...]:
        """Return who of a lower priority holds one of the devices now."""
        holders = {name for part in parts for device in part.devices for name in self._fleet.holders(part.node, device)}
        on_it = (one for one in going if one.id in holders)
        lower = (one.id for one in on_it if self._priority.get(one.model, model.priority) < model.priority)
        return tuple(sorted(lower))

    # --- trying it

    @contextmanager
    def _once_gone(self, going: Sequence[Replica]) -> Iterator[None]:
        """See the fleet as it will be: those that go have gone, and what is promised is taken."""
        with self._without(going):
            for promise in self._promised:
                self._fleet.claim(*promise)
            try:
                yield
            finally:
                for promise in self._promised:
                    self._fleet.release(*promise)

    @contextmanager
    def _without(self, gone: Sequence[Replica]) -> Iterator[None]:
        for one in gone:
            self._release(one)
        try:
            yield
        finally:
            for one in gone:
                self._claim(one)

    def _release(self, one: Replica) -> None:
        for shard in one.shards:
            if shard.state in HOLDING and shard.node in self._fleet.by_name:
                self._fleet.release(shard.node, shard.devices, one.id, one.model)

    def _claim(self, one: Replica) -> None:
        for shard in one.shards:
            if shard.state in HOLDING and shard.node in self._fleet.by_name:
                self._fleet.claim(shard.node, shard.devices, one.id, one.model)


def _size(one: Replica) -> int:
    return sum(len(shard.devices) for shard in one.shards)
