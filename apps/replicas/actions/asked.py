"""What an operator may ask: drain, stop or start anew a replica; have a node examined."""

from datetime import datetime

from django.db import transaction
from django.db.models import Q

from apps.audit import actions as audit
from apps.audit.actions import Actor
from apps.nodes.actions import NotFound
from apps.nodes.models import NodeRow
from apps.replicas.actions import orders
from apps.replicas.actions.moves import Moves, locked, save
from apps.replicas.actions.orders import NewId
from apps.replicas.actions.passes import request_pass
from apps.replicas.actions.planned import end
from apps.replicas.ids import new_id as any_id
from apps.replicas.models import ReplicaRow
from llmgw.core.lifecycle import Happened, NotAllowed
from llmgw.core.world import State


def drain(
    replica: ReplicaRow, *, by: Actor, now: datetime, reason: str = "", new_id: NewId = any_id
) -> NotAllowed | None:
    """Let a replica finish its requests and end; as long as it is wanted, its slot starts again."""
    return _end(replica, Happened.DRAIN_ASKED, "replica.drain", by, now, reason, new_id)


def stop(
    replica: ReplicaRow, *, by: Actor, now: datetime, reason: str = "", new_id: NewId = any_id
) -> NotAllowed | None:
    """End a replica at once, whatever it is doing; as long as it is wanted, its slot starts again."""
    return _end(replica, Happened.STOP_ASKED, "replica.stop", by, now, reason, new_id)


@transaction.atomic
def restart(
    replica: ReplicaRow, *, by: Actor, now: datetime, reason: str = "", new_id: NewId = any_id
) -> NotAllowed | None:
    """Start a replica anew: after its requests if it serves, without its wait if it has failed."""
    row = _locked(replica)
    if row.gone_at is not None or row.state != State.FAILED:
        return _end(row, Happened.DRAIN_ASKED, "replica.restart", by, now, reason, new_id)
    row.failures, row.next_try_at = 0, None
    save(row)
    audit.record(by, "replica.restart", "replica", row.name, now, reason=reason)
    request_pass()
    return None


@transaction.atomic
def _end(
    replica: ReplicaRow, happened: Happened, verb: str, by: Actor, now: datetime, reason: str, new_id: NewId
) -> NotAllowed | None:
    row = _locked(replica)
    before = State(row.state)
    if row.gone_at is not None:
        return NotAllowed(before, happened)
    why = f"asked by {by.name}" + (f": {reason}" if reason else "")
    if no := end(row, happened, why, Moves(by=by.name, now=now), new_id):
        return no
    told = {"before": {"state": before}, "after": {"state": row.state}}
    audit.record(by, verb, "replica", row.name, now, reason=reason, **told)
    request_pass()
    return None


@transaction.atomic
def examine(name: str, *, by: Actor, now: datetime, reason: str = "", new_id: NewId = any_id) -> NodeRow | NotFound:
    """Have a node's doctor run now; what was asked and is not answered yet is not asked twice."""
    row = NodeRow.objects.select_for_update().filter(name=name).first()
    if row is None:
        return NotFound(name)
    orders.examine(row, order_id=new_id(), now=now)
    audit.record(by, "node.examine", "node", row.name, now, reason=reason)
    return row


def _locked(replica: ReplicaRow) -> ReplicaRow:
    return locked(Q(pk=replica.pk)).get()
