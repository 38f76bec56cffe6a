"""What is kept of the past: every first failure for ever, and the last of everything else."""

from datetime import datetime, timedelta
from typing import Final

from django.db.models import F, Min, OuterRef, QuerySet, Subquery

from apps.nodes import actions as nodes
from apps.replicas import dispatch
from apps.replicas.models import OrderRow, PassRow, ShardRow, TransitionRow

ATTEMPTS_KEPT: Final = 50
PASSES_KEPT: Final = 1000
ORDERS_KEPT: Final = timedelta(days=1)


def tidy(now: datetime) -> dict[str, int]:
    """Delete what is past keeping; return how many rows of which kind."""
    return {
        "orders": _deleted(_old_orders(now)),
        "passes": _deleted(_old_passes()),
        "shards": _deleted(_old_shards()),
        "strays": _deleted(_old_strays(now)),
        "moves": _deleted(_old_moves()),
        **nodes.tidy(now),
    }


def _deleted(rows: QuerySet[OrderRow] | QuerySet[PassRow] | QuerySet[ShardRow] | QuerySet[TransitionRow]) -> int:
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
