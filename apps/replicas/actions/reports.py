"""Takes in what nodes report of launches and orders: twice, late, out of order or of another life of the node."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

import msgspec
from django.db import transaction
from django.db.models import F, Q

from apps.nodes import actions as nodes
from apps.nodes.models import NodeRow
from apps.replicas import dispatch
from apps.replicas.actions import orders
from apps.replicas.actions.moves import Moves, locked
from apps.replicas.actions.passes import request_pass
from apps.replicas.ids import new_id as any_id
from apps.replicas.models import OrderRow, OrderState, ReplicaRow, ShardRow
from llmgw.core import wire
from llmgw.core.engines import failures
from llmgw.core.lifecycle import AT_REST, GOING, LIVE, Happened
from llmgw.core.wire import AnswerKind, OrderKind, OrderRefusal, ShardStatus
from llmgw.core.world import State

_OVERTAKEN_ON_ITS_WAY: Final = frozenset({OrderRefusal.STALE_EPOCH, OrderRefusal.OTHER_INSTANCE})
_CLOSED: Final = {
    AnswerKind.TAKEN: OrderState.ACKNOWLEDGED,
    AnswerKind.REPEATED: OrderState.ACKNOWLEDGED,
    AnswerKind.REFUSED: OrderState.REFUSED,
}
# What leads to a later state, and back from READY, if the steps in between were not told.
_FORWARD: Final = (
    Happened.FETCH_BEGUN,
    Happened.LAUNCH_BEGUN,
    Happened.PROCESS_STARTED,
    Happened.PROBE_PASSED,
    Happened.PROBE_FAILED,
)


ABOUT_LAUNCHES: Final = (wire.Registration, wire.ShardReport)
"""The reports that say something of launches or answer orders."""


@dataclass(slots=True)
class _Report:
    """One report while it is being applied, with the rows that it is about."""

    report: wire.Registration | wire.ShardReport
    node: NodeRow
    now: datetime
    new_id: orders.NewId
    moves: Moves
    replicas: Mapping[int, ReplicaRow]
    """Locked, by key: all that own one of the shards."""
    shards: dict[str, ShardRow]
    """By launch id: those reported, those that are to be on the node, and their siblings elsewhere."""
    touched: dict[str, ShardRow] = field(default_factory=dict)
    moved: dict[int, tuple[Happened, str]] = field(default_factory=dict)
    """Replicas with a shard that moved: what happened last, and why."""
    stale: int = 0


@transaction.atomic
def record_report(report: wire.AnyReport, *, now: datetime, new_id: orders.NewId = any_id) -> str:
    """Apply one report, or count why not; return the word it was counted under."""
    # Slots are locked before the node, and the node before the row of the passes, here as everywhere.
    replicas = {row.pk: row for row in locked(_concerned(report))}
    reception = nodes.receive(report, now=now)
    if reception.node is None:
        return reception.outcome
    if reception.outcome == nodes.NEW_EPOCH:
        # Nothing that was reported before can be applied any more; what is reported next may count anew from 0.
        ShardRow.objects.filter(node=reception.node).exclude(seq=0).update(seq=0)
    if reception.hello:
        orders.hello(reception.node, order_id=new_id(), now=now)
    if not reception.taken or not isinstance(report, ABOUT_LAUNCHES):
        return reception.outcome
    return _apply(_read(report, reception.node, replicas, now, new_id))


def _concerned(report: wire.AnyReport) -> Q:
    """Choose the slots that a report may move."""
    launches = [*_launch_ids(report), *_refused_launches(report)]
    shards = ShardRow.objects.filter(launch_id__in=launches, replica__isnull=False)
    if isinstance(report, wire.Registration):
        there = Q(node__name=report.node, state__in=LIVE | {State.LOST}, replica__isnull=False)
        shards = shards | ShardRow.objects.filter(there)
    return Q(pk__in=shards.values("replica"))


def _launch_ids(report: wire.AnyReport) -> list[str]:
    return [status.launch_id for status in report.shards] if isinstance(report, ABOUT_LAUNCHES) else []


def _refused_launches(report: wire.AnyReport) -> list[str]:
    """Return the launches that the node would not start; most times there are none, and nobody is asked."""
    answers = report.answers if isinstance(report, ABOUT_LAUNCHES) else ()
    refused = [answer.order_id for answer in answers if answer.kind is AnswerKind.REFUSED]
    if not refused:
        return []
    return list(
        OrderRow.objects.filter(order_id__in=refused, kind=OrderKind.LAUNCH).values_list("launch_id", flat=True)
    )


def _read(
    report: wire.Registration | wire.ShardReport,
    node: NodeRow,
    replicas: Mapping[int, ReplicaRow],
    now: datetime,
    new_id: orders.NewId,
) -> _Report:
    named = Q(launch_id__in=_launch_ids(report))
    if isinstance(report, wire.Registration):
        named |= Q(node=node, state__in=LIVE | {State.LOST})
    siblings = Q(replica__in=list(replicas), attempt=F("replica__attempt"))
    rows = ShardRow.objects.filter(named | siblings).select_related("node").order_by("rank", "id")
    moves = Moves(by=node.name, now=now)
    return _Report(report, node, now, new_id, moves, replicas, {row.launch_id: row for row in rows})


def _apply(this: _Report) -> str:
    refused = _record_answers(this)
    for status in this.report.shards:
        _record_status(status, this)
    for answer, order in refused:
        _fail_refused(answer, order, this)
    if isinstance(this.report, wire.Registration):
        orders.hello_answered(this.node, this.now)
        _fail_untraced(this)
    _write(this)
    if this.report.shards and this.stale == len(this.report.shards):
        nodes.count_report(this.node.name, nodes.STALE_SEQ, now=this.now, detail=f"seq {this.report.seq}")
        return nodes.STALE_SEQ
    return nodes.TAKEN


def _write(this: _Report) -> None:
    """Write what moved, and let the replicas follow their shards."""
    for pk, (happened, why) in this.moved.items():
        replica = this.replicas[pk]
        own = [s for s in this.shards.values() if s.replica_id == pk and s.attempt == replica.attempt]
        this.moves.follow(replica, own, happened, why)
    if ended := [shard.launch_id for shard in this.touched.values() if shard.state in AT_REST]:
        orders.take_back(ended, this.now)
    if this.moves.write([this.replicas[pk] for pk in this.moved], list(this.touched.values())):
        request_pass()


# --- answers ------------------------------------------------------------------------------------------------------


def _record_answers(this: _Report) -> list[tuple[wire.Answer, OrderRow]]:
    """Close the orders that were answered; return the launches that were refused."""
    answers = {str(answer.order_id): answer for answer in this.report.answers}
    if not answers:
        return []
    open_orders = OrderRow.objects.filter(order_id__in=list(answers), node=this.node, state__in=dispatch.OPEN)
    refused = []
    for order in open_orders:
        answer = answers[order.order_id]
        if answer.kind is AnswerKind.REFUSED and answer.code in _OVERTAKEN_ON_ITS_WAY:
            # The node has another epoch or worker since it was sent: the next sending is for those.
            OrderRow.objects.filter(pk=order.pk).update(state=OrderState.PENDING, next_send_at=this.now)
            continue
        OrderRow.objects.filter(pk=order.pk).update(
            state=_CLOSED[answer.kind], answered_at=this.now, next_send_at=None, answer=msgspec.to_builtins(answer)
        )
        if answer.kind is AnswerKind.REFUSED and order.kind == OrderKind.LAUNCH:
            refused.append((answer, order))
    return refused


def _fail_refused(answer: wire.Answer, order: OrderRow, this: _Report) -> None:
    shard = this.shards.get(order.launch_id)
    if shard is not None:
        refused = failures.ORDER_REFUSED.code
        text = failures.sentence(refused, f"{this.node.name} says {answer.text or answer.code}")
        _end_untold(shard, refused, text, this)


# --- launches -----------------------------------------------------------------------------------------------------


def _record_status(status: ShardStatus, this: _Report) -> None:
    """Apply all that a node says of one launch."""
    shard = this.shards.get(status.launch_id)
    if shard is None:
        _meet(status, this)
    elif shard.node_id != this.node.pk or this.report.seq <= shard.seq:
        this.stale += 1
    else:
        shard.seq = this.report.seq
        this.touched[shard.launch_id] = shard
        _take_facts(status, shard)
        _take_steps(status, shard, this)
        _settle(status, shard, this)
        _keep_failure(status, shard)
        _let_forget(status, this)


def _meet(status: ShardStatus, this: _Report) -> None:
    """Write down a launch that nobody here ordered; the next pass has it stopped."""
    if status.state in AT_REST:
        _let_forget(status, this)
        return
    stray = ShardRow(
        node=this.node,
        launch_id=status.launch_id,
        attempt=status.attempt,
        rank=status.rank,
        devices=list(status.devices),
        state=status.state,
        state_since=this.now,
        seq=this.report.seq,
        steps_seen=len(status.steps),
        created_at=this.now,
    )
    _take_facts(status, stray)
    stray.save()
    request_pass()


def _let_forget(status: ShardStatus, this: _Report) -> None:
    """Tell the node that the end of a launch is kept here."""
    if status.state in AT_REST:
        orders.forget(status.launch_id, this.node, order_id=this.new_id(), now=this.now)


def _take_facts(status: ShardStatus, shard: ShardRow) -> None:
    shard.host = status.host or ""
    shard.port = status.port
    shard.pid = status.pid
    shard.adopted = status.adopted
    shard.progress = msgspec.to_builtins(status.progress)
    shard.tail = list(status.tail)


def _take_steps(status: ShardStatus, shard: ShardRow, this: _Report) -> None:
    """Take the steps that were not seen before; those that we are ahead of are let go."""
    for step in status.steps[shard.steps_seen :]:
        _move(shard, step.happened, _why(step, status), this, node_at=_moment(step.at))
    shard.steps_seen = max(len(status.steps), shard.steps_seen)


def _why(step: wire.Step, status: ShardStatus) -> str:
    ends = step.happened in (Happened.EXITED, Happened.FAILED)
    return status.failure.text if ends and status.failure else step.why


def _moment(at: float) -> datetime | None:
    try:
        return datetime.fromtimestamp(at, UTC)
    except (ValueError, OverflowError, OSError):  # a node's clock may say anything
        return None


def _move(shard: ShardRow, happened: Happened, why: str, this: _Report, node_at: datetime | None = None) -> bool:
    """Move a shard if the table has that move, and remember that its replica must follow."""
    if this.moves.shard(shard, happened, why=why, node_at=node_at):
        return False
    replica = this.replicas.get(shard.replica_id or 0)
    if replica is not None and replica.attempt == shard.attempt and replica.gone_at is None:
        this.moved[replica.pk] = (happened, why)
    return True


def _settle(status: ShardStatus, shard: ShardRow, this: _Report) -> None:
    """Bring our state in line with the node's where its steps alone could not."""
    there = status.state
    if shard.state == State.LOST and there in AT_REST:
        shard.ended_at = this.now
    elif shard.state in AT_REST:
        _found(there, shard, this)
    elif there in AT_REST:
        why = status.failure.text if status.failure else ""
        _move(shard, Happened.FAILED if there is State.FAILED else Happened.EXITED, why, this)
    elif shard.state not in GOING and there not in GOING:
        _catch_up(there, shard, this)


def _found(there: State, shard: ShardRow, this: _Report) -> None:
    """Take back what was lost and still runs; what was closed here and still runs is to end."""
    if there is State.READY:
        _move(shard, Happened.FOUND_SERVING, "its node is back, and it never stopped serving", this)
    elif there in LIVE - GOING:
        _move(shard, Happened.FOUND_LOADING, "its node is back, and it is still starting", this)
    if shard.state == State.STOPPING:
        why = "was given up here, and still runs"
        orders.stop(shard, drain_s=0.0, why=why, order_id=this.new_id(), now=this.now)


def _catch_up(there: State, shard: ShardRow, this: _Report) -> None:
    for happened in _FORWARD:
        if shard.state == there:
            return
        _move(shard, happened, "", this)


def _keep_failure(status: ShardStatus, shard: ShardRow) -> None:
    """Keep how it ended, if nobody had asked for that."""
    if shard.state == State.FAILED and shard.failure is None:
        told = status.failure or wire.Failure(failures.UNKNOWN.code, failures.sentence(failures.UNKNOWN.code))
        shard.failure = msgspec.to_builtins(told)


def _fail_untraced(this: _Report) -> None:
    """End what a complete list does not name, unless an order of ours may still be on its way there."""
    listed = set(_launch_ids(this.report))
    here = [s for s in this.shards.values() if s.node_id == this.node.pk and s.launch_id not in listed]
    here = [shard for shard in here if shard.seq < this.report.seq]
    waiting = orders.unanswered([shard.launch_id for shard in here])
    for shard in here:
        if shard.state == State.LOST:
            shard.ended_at = this.now
            this.touched[shard.launch_id] = shard
        elif shard.state in LIVE and shard.launch_id not in waiting:
            text = failures.sentence(failures.VANISHED.code, f"{this.node.name} has no trace of it")
            _end_untold(shard, failures.VANISHED.code, text, this)


def _end_untold(shard: ShardRow, failure_class: str, text: str, this: _Report) -> None:
    """End a launch of which its node tells no story."""
    if _move(shard, Happened.FAILED, text, this):
        this.touched[shard.launch_id] = shard
        if shard.state == State.FAILED:
            shard.failure = msgspec.to_builtins(wire.Failure(failure_class, text))
