"""What is kept of the past: a slot's first failure for as long as there is the slot, the last of everything else."""

from datetime import datetime, timedelta
from typing import Final

from django.db.models import F, Max, Min, OuterRef, QuerySet, Subquery

from apps.accounts import actions as accounts
from apps.nodes import actions as nodes
from apps.replicas import dispatch
from apps.replicas.models import OrderRow, PassRow, ReplicaRow, ShardRow, TransitionRow
from llmgw.core.lifecycle import Happened

ATTEMPTS_KEPT: Final = 50
PASSES_KEPT: Final = 1000
ORDERS_KEPT: Final = timedelta(days=1)
FLAPS_KEPT: Final = timedelta(days=7)
SLOTS_KEPT: Final = timedelta(days=30)
"""After its end; all that was known of the slot goes with it, its first failure, too."""

_FLAPS: Final = (Happened.PROBE_PASSED, Happened.PROBE_FAILED)


def tidy(now: datetime) -> dict[str, int]:
    """Delete what is past keeping; return how many rows of which kind."""
    return {
        "slots": _deleted(ReplicaRow.objects.filter(gone_at__lt=now - SLOTS_KEPT)),
        "orders": _deleted(_old_orders(now)),
        "passes": _deleted(_old_passes()),
        "shards": _deleted(_old_shards()),
        "strays": _deleted(_old_strays(now)),
        "moves": _deleted(_old_moves()),
        "flaps": _deleted(_old_flaps(now, "shard")) + _deleted(_old_flaps(now, "replica", "attempt")),
        **nodes.tidy(now),
        **accounts.tidy(now),
    }


def _deleted(
    rows: QuerySet[OrderRow] | QuerySet[PassRow] | QuerySet[ReplicaRow] | QuerySet[ShardRow] | QuerySet[TransitionRow],
) -> int:
    total, _ = rows.delete()
    return total


def _old_orders(now: datetime) -> QuerySet[OrderRow]:
    return OrderRow.objects.exclude(state__in=dispatch.OPEN).filter(answered_at__lt=now - ORDERS_KEPT)


def _old_passes() -> QuerySet[PassRow]:
    newest = PassRow.objects.order_by("-token").values_list("token", flat=True)
    last_kept = newest[PASSES_KEPT - 1 : PASSES_KEPT].first()
    return PassRow.objects.filter(token__lt=last_kept or 0)


def _old_shards() -> QuerySet[ShardRow]:
    """Choose the launches of attempts long past, but for the one with which a replica's failures began."""
    own = ShardRow.objects.filter(replica=OuterRef("replica"), failure__isnull=False).order_by()
    first = own.values("replica").annotate(first=Min("attempt")).values("first")
    past = ShardRow.objects.filter(attempt__lte=F("replica__attempt") - ATTEMPTS_KEPT, ended_at__isnull=False)
    return past.alias(first_failure=Subquery(first)).exclude(attempt=F("first_failure"))


def _old_strays(now: datetime) -> QuerySet[ShardRow]:
    return ShardRow.objects.filter(replica__isnull=True, ended_at__lt=now - ORDERS_KEPT)


def _old_moves() -> QuerySet[TransitionRow]:
    """Choose the replicas' own moves of attempts long past; those of a launch go with the launch."""
    return TransitionRow.objects.filter(shard__isnull=True, attempt__lte=F("replica__attempt") - ATTEMPTS_KEPT)


def _old_flaps(now: datetime, *whose: str) -> QuerySet[TransitionRow]:
    """Choose what one engine's coming and going left long ago, but for its first success and what it came to."""
    own = TransitionRow.objects.filter(happened__in=_FLAPS, shard__isnull="shard" not in whose)
    past = own.filter(at__lt=now - FLAPS_KEPT)
    same = past.filter(**{name: OuterRef(name) for name in whose}).order_by().values(*whose)
    first, last = (Subquery(same.annotate(end=end("id")).values("end")) for end in (Min, Max))
    return past.alias(first=first, last=last).exclude(id=F("first")).exclude(id=F("last"))
