"""Wanted against actual: one pure look at a snapshot, ending in actions and refusals."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from llmgw.core.lifecycle import AT_REST, GOING, HOLDING, LIVE, Happened, NotAllowed, after, of_replica
from llmgw.core.placement import Fleet
from llmgw.core.plan.actions import (
    Action,
    Archive,
    Drain,
    Lose,
    Plan,
    Queue,
    Reap,
    RefusedReplica,
    Start,
    Stop,
    refused_to_json,
)
from llmgw.core.plan.exchange import Exchange
from llmgw.core.plan.preemption import Preemption
from llmgw.core.plan.rollout import Rollout, removal
from llmgw.core.units import ModelName, NodeName, Seconds
from llmgw.core.wanted import Model
from llmgw.core.world import ClusterSnapshot, NodeState, Replica, State

__all__ = [
    "Action",
    "Archive",
    "Drain",
    "Lose",
    "Plan",
    "Queue",
    "Reap",
    "RefusedReplica",
    "Start",
    "Stop",
    "plan",
    "refused_to_json",
]

# A replica of such a state serves nobody, whatever its parts do.
_ENDED: Final = AT_REST | GOING
# What makes room and what cannot wait comes first.
_ORDER: Final[tuple[type[Action], ...]] = (Lose, Archive, Drain, Stop, Reap, Queue, Start)


def plan(snapshot: ClusterSnapshot, now: Seconds) -> Plan:
    """Compare what is wanted with what is; carried out and asked again, there is nothing left to do.

    Models come in the order of their priority, so that the higher ones are placed first; of equal ones those first that
    are harder to place. What runs on a node that is only unreachable is left alone and counts as running.
    """
    losses = _losses(snapshot)
    seen = _with_losses(snapshot, losses)
    fleet = Fleet(seen)
    by_model = _by_model(seen.replicas)
    models = sorted(seen.models, key=_turn)
    preemption = Preemption(fleet, seen)
    room = (Exchange(fleet), preemption)
    rollouts = [Rollout(model, by_model.pop(model.name, ()), fleet, room, now) for model in models]
    for leaving in (*by_model.values(), *(rollout.surplus for rollout in rollouts)):
        preemption.leave(leaving)
    unwanted = [one for name in sorted(by_model) for one in removal(by_model[name], fleet, f"{name} is retired")]
    worked = [rollout.work() for rollout in rollouts]
    actions = [*losses, *_reaps(seen, fleet), *unwanted, *(action for done in worked for action in done.actions)]
    return Plan(
        tuple(sorted(actions, key=lambda action: _ORDER.index(type(action)))),
        tuple(refused for done in worked for refused in done.refusals),
    )


def _turn(model: Model) -> tuple[int, tuple[tuple[int, int], ...], ModelName]:
    """Tell when a model is placed: what asks for many devices of few classes fits nowhere once others are spread."""
    first = tuple((-profile.devices // profile.nodes, len(profile.device_classes)) for profile in model.profiles[:1])
    return (-model.priority, first, model.name)


def _losses(snapshot: ClusterSnapshot) -> list[Lose]:
    state_of = {node.name: node.state for node in snapshot.nodes}
    lost = [
        (replica.model, replica.ordinal, Lose(replica.id, why))
        for replica in snapshot.replicas
        if replica.state in LIVE and (why := _loss_of(replica, state_of))
    ]
    return [loss for _, _, loss in sorted(lost, key=lambda one: one[:2])]


def _loss_of(replica: Replica, state_of: Mapping[NodeName, NodeState]) -> str | None:
    """Say why a replica that should run cannot; one whose node was forgotten has lost its shards with it."""
    for shard in replica.shards:
        if shard.state in HOLDING and _gone(state_of.get(shard.node)):
            return f"its node {shard.node} is {'lost' if shard.node in state_of else 'gone'}"
    return None if replica.shards else "its node was forgotten"


def _gone(state: NodeState | None) -> bool:
    return state is None or state is NodeState.LOST


def _with_losses(snapshot: ClusterSnapshot, losses: Sequence[Lose]) -> ClusterSnapshot:
    """See the fleet as it is once the losses are written down."""
    if not losses:
        return snapshot
    lost = {loss.replica for loss in losses}
    heard = {node.name for node in snapshot.nodes if not _gone(node.state)}
    return replace(snapshot, replicas=tuple(_lost(one, heard) if one.id in lost else one for one in snapshot.replicas))


def _lost(replica: Replica, there: Collection[NodeName]) -> Replica:
    """Give up what ran on lost nodes; what other nodes have of the same replica is told to end, and holds its place."""
    shards = tuple(
        replace(one, state=_moved(one.state, Happened.STOP_ASKED if one.node in there else Happened.NODE_LOST))
        for one in replica.shards
    )
    states = [shard.state for shard in shards]
    return replace(
        replica, state=of_replica(states) if states else _moved(replica.state, Happened.NODE_LOST), shards=shards
    )


def _moved(state: State, happened: Happened) -> State:
    moved = after(state, happened)
    return state if isinstance(moved, NotAllowed) else moved


def _by_model(replicas: Sequence[Replica]) -> dict[ModelName, Sequence[Replica]]:
    grouped: dict[ModelName, list[Replica]] = defaultdict(list)
    for replica in sorted(replicas, key=lambda one: one.ordinal):
        grouped[replica.model].append(replica)
    return dict(grouped)


def _reaps(snapshot: ClusterSnapshot, fleet: Fleet) -> Iterator[Reap]:
    """End what serves nobody: engines that no replica owns, and parts of replicas of which another part has ended."""
    strays = [(one.node, one.launch_id, "no replica owns it") for one in snapshot.strays if not one.stopping]
    parts = [
        (shard.node, shard.launch_id, f"{replica.id} is {replica.state.value}, and this is a part of it")
        for replica in snapshot.replicas
        if replica.state in _ENDED
        for shard in replica.shards
        if shard.state in LIVE - GOING
    ]
    for node, launch_id, why in sorted([*strays, *parts]):
        if node in fleet.by_name and fleet.by_name[node].state is NodeState.READY:
            yield Reap(node, launch_id, why)
