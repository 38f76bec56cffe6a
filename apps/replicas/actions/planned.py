"""Carries out what a plan says, each action in a transaction of its own that is void if the world has moved."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final

import structlog
from django.conf import settings
from django.db import IntegrityError, OperationalError, transaction
from django.db.models import Q

from apps.catalog.models import ModelRow
from apps.nodes.models import NodeRow
from apps.replicas.actions import orders, passes
from apps.replicas.actions.moves import Moves, Raced, locked, present_shards, save
from apps.replicas.actions.passes import Turn
from apps.replicas.models import ReplicaRow, ShardRow
from apps.replicas.queries import View
from llmgw.core import lifecycle, plan
from llmgw.core.lifecycle import AT_REST, LIVE, Happened, NotAllowed
from llmgw.core.units import ModelName, ReplicaId
from llmgw.core.wanted import Model
from llmgw.core.world import NodeState, State

log = structlog.get_logger(__name__)

# What was stopped or has failed keeps its end; only what may still run can be asked to.
_CAN_END: Final = LIVE | {State.LOST}


@dataclass(frozen=True, slots=True)
class Pass:
    """What carrying out an action needs to know of the pass that it belongs to."""

    turn: Turn
    view: View
    by: str
    now: datetime
    """The moment that was decided for; what is written bears it."""
    clock: Callable[[], datetime]
    new_id: orders.NewId
    wrote: dict[ReplicaId, int] = field(default_factory=dict)
    """Generations that this pass itself made: its plan has foreseen them."""

    def moves(self) -> Moves:
        """Begin the moves of one action."""
        return Moves(by=self.by, now=self.now)


def apply(action: plan.Action, under: Pass) -> bool:
    """Carry one action out; False when its rows are not any more what they were in the snapshot.

    Raises `passes.Overtaken` when somebody else runs the passes now.
    """
    try:
        with transaction.atomic():
            written = _VERBS[type(action)](action, under)
            passes.hold(under.turn, under.clock())
    except (Raced, IntegrityError):
        return False
    except OperationalError as lost:  # a deadlock, or a lock waited for too long; the next pass tries again
        log.warning("an action lost a race for a lock", action=action.text(), error=str(lost))
        return False
    if written is not None:
        under.wrote[written.name] = written.generation
    return True


def _queue(action: plan.Queue, under: Pass) -> ReplicaRow:
    return _new_slot(action.model, action.ordinal, under)


def _start(action: plan.Start, under: Pass) -> ReplicaRow:
    replica = _slot_for(action, under)
    model = _model(action, under)
    if replica.attempt != action.attempt_before or model is None:
        raise Raced
    _begin_attempt(replica, action)
    moves = under.moves()
    shards = [_new_shard(replica, node, devices, rank, under) for node, devices, rank in action.shards]
    profile = next(profile for profile in model.profiles if profile.name == action.profile)
    for shard in shards:
        moves.shard(shard, Happened.PLACED, why=action.why)
        shard.save()
    moves.replica(replica, State.PLACED, Happened.PLACED, action.why)
    moves.write([replica])
    for shard in shards:
        orders.launch(shard, replica.name, model, profile, order_id=under.new_id(), now=under.clock())
    return replica


def _slot_for(action: plan.Start, under: Pass) -> ReplicaRow:
    if action.replica in under.view.replicas:
        return _seen(action.replica, under)
    return _new_slot(action.model, action.ordinal, under)


def _model(action: plan.Start, under: Pass) -> Model | None:
    return next((model for model in under.view.snapshot.models if model.name == action.model), None)


def _begin_attempt(replica: ReplicaRow, action: plan.Start) -> None:
    """Set the slot to a new start; what was edited or ended on purpose begins with a clean record."""
    if replica.state == State.FAILED:
        replica.restarts += 1
    if replica.fingerprint != action.fingerprint or replica.state == State.STOPPED:
        replica.failures = 0
    replica.attempt += 1
    replica.profile, replica.fingerprint = action.profile, action.fingerprint
    replica.next_try_at = replica.ready_at = None
    replica.refusals, replica.refusals_key = [], ""


def _new_shard(replica: ReplicaRow, node: str, devices: Iterable[str], rank: int, under: Pass) -> ShardRow:
    where = NodeRow.objects.filter(name=node, state=NodeState.READY).first()
    if where is None:
        raise Raced
    return ShardRow(
        replica=replica,
        node=where,
        launch_id=under.new_id(),
        attempt=replica.attempt,
        rank=rank,
        devices=list(devices),
        profile=replica.profile,
        state=State.QUEUED,
        state_since=under.now,
        created_at=under.now,
    )


def _new_slot(model: ModelName, ordinal: int, under: Pass) -> ReplicaRow:
    return ReplicaRow.objects.create(
        model=ModelRow(pk=under.view.models[model], name=model),
        ordinal=ordinal,
        state=State.QUEUED,
        state_since=under.now,
        created_at=under.now,
        why="waits for a place",
    )


def end(replica: ReplicaRow, happened: Happened, why: str, moves: Moves, new_id: orders.NewId) -> NotAllowed | None:
    """Ask a replica's engines to end, or let a slot without any rest; the caller holds its lock."""
    after = lifecycle.after(State(replica.state), happened)
    if isinstance(after, NotAllowed):
        return after
    shards = present_shards(replica)
    ending = [shard for shard in shards if shard.state in _CAN_END and moves.shard(shard, happened, why=why) is None]
    if ending:
        moves.follow(replica, shards, happened, why)
    else:
        moves.replica(replica, after, happened, why)
    moves.write([replica], ending)
    for shard in ending:
        if shard.state in LIVE:
            drain_s = settings.LLMGW_DRAIN_S if shard.state == State.DRAINING else 0.0
            orders.stop(shard, drain_s=drain_s, why=why, order_id=new_id(), now=moves.now)
    return None


def _drain(action: plan.Drain, under: Pass) -> ReplicaRow:
    return _end(action.replica, Happened.DRAIN_ASKED, action.why, under)


def _stop(action: plan.Stop, under: Pass) -> ReplicaRow:
    return _end(action.replica, Happened.STOP_ASKED, action.why, under)


def _end(name: ReplicaId, happened: Happened, why: str, under: Pass) -> ReplicaRow:
    replica = _seen(name, under)
    if end(replica, happened, why, under.moves(), under.new_id):
        raise Raced
    return replica


def _lose(action: plan.Lose, under: Pass) -> ReplicaRow:
    """Give up what runs on lost nodes; what the rest of the world still has of the same replica must end."""
    replica, moves = _seen(action.replica, under), under.moves()
    shards = present_shards(replica)
    lost = [shard for shard in shards if shard.node.state == NodeState.LOST]
    gone = [shard for shard in lost if moves.shard(shard, Happened.NODE_LOST, why=action.why) is None]
    rest = [s for s in shards if s not in lost and moves.shard(s, Happened.STOP_ASKED, why=action.why) is None]
    if shards and not gone:
        raise Raced
    if shards:
        moves.follow(replica, shards, Happened.NODE_LOST, action.why)
    else:  # they were forgotten together with their node
        moves.replica(replica, _after(replica, Happened.NODE_LOST), Happened.NODE_LOST, action.why)
    moves.write([replica], [*gone, *rest])
    orders.take_back([shard.launch_id for shard in gone], under.now)
    for shard in rest:
        orders.stop(shard, drain_s=0.0, why=action.why, order_id=under.new_id(), now=under.clock())
    return replica


def _after(replica: ReplicaRow, happened: Happened) -> State:
    after = lifecycle.after(State(replica.state), happened)
    if isinstance(after, NotAllowed):
        raise Raced
    return after


def _reap(action: plan.Reap, under: Pass) -> None:
    moves = under.moves()
    named = ShardRow.objects.filter(launch_id=action.launch_id, node__name=action.node)
    shard = named.select_related("node").select_for_update(of=("self",)).first()
    if shard is None or moves.shard(shard, Happened.STOP_ASKED, why=action.why):
        raise Raced
    moves.write(shards=[shard])
    orders.stop(shard, drain_s=0.0, why=action.why, order_id=under.new_id(), now=under.clock())


def _archive(action: plan.Archive, under: Pass) -> ReplicaRow:
    replica = _seen(action.replica, under)
    if replica.state not in AT_REST:
        raise Raced
    replica.gone_at, replica.why = under.now, action.why[:500]
    save(replica)
    return replica


def _seen(name: ReplicaId, under: Pass) -> ReplicaRow:
    """Lock a slot, if it is still what the plan was made on."""
    seen = under.view.replicas[name]
    row = locked(Q(pk=seen.pk, generation=under.wrote.get(name, seen.generation))).first()
    if row is None:
        raise Raced
    return row


_VERBS: Final[Mapping[type[plan.Action], Callable[[Any, Pass], ReplicaRow | None]]] = MappingProxyType(
    {
        plan.Queue: _queue,
        plan.Start: _start,
        plan.Drain: _drain,
        plan.Stop: _stop,
        plan.Lose: _lose,
        plan.Reap: _reap,
        plan.Archive: _archive,
    }
)
