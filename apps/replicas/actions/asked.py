"""What an operator may ask of one replica: drain it, stop it, start it anew."""

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from django.db import transaction
from django.db.models import Q

from apps.audit import actions as audit
from apps.audit.actions import Actor
from apps.replicas.actions.moves import Moves, locked, save
from apps.replicas.actions.orders import NewId
from apps.replicas.actions.passes import request_pass
from apps.replicas.actions.planned import end
from apps.replicas.models import ReplicaRow
from llmgw.core.lifecycle import Happened, NotAllowed
from llmgw.core.world import State


@dataclass(frozen=True, slots=True)
class Gone:
    """The slot was archived meanwhile."""

    code: ClassVar[str] = "replica.gone"
    name: str

    def text(self) -> str:
        """Say it in one line."""
        return f"{self.name} has ended and is archived"


Refused = NotAllowed | Gone


def drain(replica: ReplicaRow, *, by: Actor, now: datetime, new_id: NewId, reason: str = "") -> Refused | None:
    """Let a replica finish its requests and end; as long as it is wanted, its slot starts again."""
    return _end(replica, Happened.DRAIN_ASKED, "replica.drain", by, now, new_id, reason)


def stop(replica: ReplicaRow, *, by: Actor, now: datetime, new_id: NewId, reason: str = "") -> Refused | None:
    """End a replica at once, whatever it is doing; as long as it is wanted, its slot starts again."""
    return _end(replica, Happened.STOP_ASKED, "replica.stop", by, now, new_id, reason)


@transaction.atomic
def restart(replica: ReplicaRow, *, by: Actor, now: datetime, new_id: NewId, reason: str = "") -> Refused | None:
    """Start a replica anew: after its requests if it serves, without its wait if it has failed."""
    row = locked(Q(pk=replica.pk, gone_at__isnull=True)).first()
    if row is None:
        return Gone(replica.name)
    if row.state != State.FAILED:
        return drain(row, by=by, now=now, new_id=new_id, reason=reason)
    row.failures, row.next_try_at = 0, None
    save(row)
    audit.record(by, "replica.restart", "replica", row.name, now, reason=reason)
    request_pass()
    return None


@transaction.atomic
def _end(
    replica: ReplicaRow, happened: Happened, verb: str, by: Actor, now: datetime, new_id: NewId, reason: str
) -> Refused | None:
    row = locked(Q(pk=replica.pk, gone_at__isnull=True)).first()
    if row is None:
        return Gone(replica.name)
    before = row.state
    why = f"asked by {by.name}" + (f": {reason}" if reason else "")
    if no := end(row, happened, why, Moves(by=by.name, now=now), new_id):
        return no
    told = {"before": {"state": before}, "after": {"state": row.state}}
    audit.record(by, verb, "replica", row.name, now, reason=reason, **told)
    request_pass()
    return None
