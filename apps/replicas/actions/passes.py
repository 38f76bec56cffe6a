"""Who runs a pass, and whether one is wanted: one row, a fencing token, and requests that count as one."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from django.conf import settings
from django.db import transaction
from django.db.models import F, Q

from apps.replicas import dispatch, queries
from apps.replicas.models import PassRow, ReconcileRow

HELD: Final = timedelta(seconds=10)
"""Who holds the passes and does nothing for so long is taken for dead; every action begins this anew."""

_ROW: Final[dict[str, Any]] = {"pk": queries.PASSES}


class Overtaken(Exception):
    """Somebody else runs the passes now; what we still wanted to write is void."""


@dataclass(frozen=True, slots=True)
class Turn:
    """The right to run one pass."""

    token: int
    requested: int
    """The requests that this pass answers: all that were made before its snapshot."""


def request_pass(*, send: bool = True) -> None:
    """Ask for a pass over what the present transaction has changed; asked many times, it is run once or twice.

    With `send`, the control worker is told on commit; without, the caller runs it.
    """
    raised = ReconcileRow.objects.filter(**_ROW).update(requested=F("requested") + 1)
    if not raised:
        # The first ever. If somebody else is as early, a pass is wanted all the same.
        ReconcileRow.objects.bulk_create([ReconcileRow(requested=1, **_ROW)], ignore_conflicts=True)
    hooks = transaction.get_connection().run_on_commit
    if send and not any(hook is dispatch.call_pass for _, hook, *_ in hooks):
        transaction.on_commit(dispatch.call_pass, robust=True)


def request_if_due(now: datetime) -> bool:
    """Ask for a pass if a failed replica may start again, or nobody has looked for a while."""
    row = queries.passes()
    since = row.looked_at
    overdue = since is None or now - since >= timedelta(seconds=settings.LLMGW_RECONCILE_S / 2)
    if not overdue:
        due = queries.next_try(since)
        overdue = due is not None and due <= now
    if overdue:
        with transaction.atomic():
            request_pass(send=False)
    return overdue


def call_when_due(now: datetime, within: float) -> float | None:
    """Have a pass run at the very moment a failed replica may start again, if that is within so many seconds."""
    due = queries.next_try(queries.passes().looked_at)
    if due is None or (wait := (due - now).total_seconds()) > within:
        return None
    dispatch.call_pass("retry", wait=max(wait, 0.0))
    return wait


def take(holder: str, now: datetime) -> Turn | None:
    """Begin a pass, if one is wanted and nobody else is at it."""
    free = Q(holder="") | Q(holder=holder) | Q(held_until__lt=now)
    wanted = ReconcileRow.objects.filter(free, requested__gt=F("done"), **_ROW)
    if not wanted.exists():  # reading first keeps a thousand idle calls out of each other's way
        return None
    with transaction.atomic():
        if not wanted.update(holder=holder, held_until=now + HELD, token=F("token") + 1):
            return None
        row = ReconcileRow.objects.get(**_ROW)
    return Turn(row.token, row.requested)


def hold(turn: Turn, now: datetime) -> None:
    """Make sure, at the end of a transaction, that the turn is still ours: else all of it is void."""
    if not ReconcileRow.objects.filter(token=turn.token, **_ROW).update(held_until=now + HELD):
        raise Overtaken


@transaction.atomic
def finish(
    turn: Turn, *, kept: Mapping[str, Any] | None, again: bool = False, looked_at: datetime, now: datetime
) -> None:
    """End a pass that was run for the moment `looked_at`; keep what it did, and ask for another if it must be."""
    if kept is not None:
        PassRow.objects.create(token=turn.token, **kept)
    ended = {"done": turn.requested, "requested": F("requested") + int(again), "looked_at": looked_at}
    if not ReconcileRow.objects.filter(token=turn.token, **_ROW).update(finished_at=now, **ended):
        raise Overtaken


def release_if_done(holder: str) -> bool:
    """Let the passes go unless one was requested meanwhile, which is then ours to run."""
    mine = ReconcileRow.objects.filter(holder=holder, requested__lte=F("done"), **_ROW)
    return bool(mine.update(holder="", held_until=None))


def release(holder: str) -> None:
    """Let the passes go, if they are ours."""
    ReconcileRow.objects.filter(holder=holder, **_ROW).update(holder="", held_until=None)
