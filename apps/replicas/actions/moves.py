"""Moves of shards and replicas: the table decides them, one transaction writes them, and each leaves a row."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final

from django.db.models import Q, QuerySet

from apps.replicas.models import ReplicaRow, ShardRow, TransitionRow
from apps.replicas.signals import routes_changed
from llmgw.core import lifecycle
from llmgw.core.lifecycle import AT_REST, Happened, NotAllowed
from llmgw.core.world import State

_FOLLOWING: Final = (
    "state",
    "state_since",
    "generation",
    "profile",
    "fingerprint",
    "attempt",
    "failures",
    "restarts",
    "next_try_at",
    "ready_at",
    "why",
    "refusals",
    "refusals_key",
    "gone_at",
)
_SHARD: Final = (
    "state",
    "state_since",
    "seq",
    "steps_seen",
    "host",
    "port",
    "pid",
    "adopted",
    "progress",
    "failure",
    "tail",
    "ended_at",
)


# What is said of a replica whose node gave no reason.
_SAYS: Final = MappingProxyType(
    {
        State.FETCHING: "its weights are being fetched",
        State.LAUNCHING: "its engine is being started",
        State.LOADING: "its engine loads the weights",
        State.READY: "serves",
        State.STOPPED: "has ended as it was asked to",
        State.FAILED: "has ended, and nobody asked it to",
    }
)


class Raced(Exception):
    """The row is not any more what the decision was made on; the transaction is to be given up."""


class Moves:
    """The moves of one transaction. The rows must be locked, or the database's only writer be us."""

    def __init__(self, *, by: str, now: datetime) -> None:
        self.by = by
        self.now = now
        self._rows: list[TransitionRow] = []
        self._routes = False

    def shard(
        self, shard: ShardRow, happened: Happened, *, why: str = "", node_at: datetime | None = None
    ) -> NotAllowed | None:
        """Move a shard, in memory."""
        before = State(shard.state)
        after = lifecycle.after(before, happened)
        if isinstance(after, NotAllowed):
            return after
        shard.state, shard.state_since = after, self.now
        # What is lost may be found again.
        shard.ended_at = self.now if after in AT_REST - {State.LOST} else None
        self._routes |= State.READY in (before, after)
        self._rows.append(self._row(shard.replica_id, shard, shard.attempt, happened, before, after, why, node_at))
        return None

    def replica(self, replica: ReplicaRow, after: State, happened: Happened, why: str) -> None:
        """Move a replica, in memory."""
        before = State(replica.state)
        replica.state, replica.why = after, (why or _SAYS.get(after, ""))[:500]
        if after is before:
            return
        replica.state_since = self.now
        if after is State.READY and replica.ready_at is None:
            replica.ready_at = self.now
        if after is State.FAILED:
            _count_failure(replica, self.now)
        self._rows.append(self._row(replica.pk, None, replica.attempt, happened, before, after, why, None))

    def follow(self, replica: ReplicaRow, shards: Sequence[ShardRow], happened: Happened, why: str) -> None:
        """Let a replica be what the shards of its present attempt make it."""
        self.replica(replica, lifecycle.of_replica([State(shard.state) for shard in shards]), happened, why)

    def write(self, replicas: Sequence[ReplicaRow] = (), shards: Sequence[ShardRow] = ()) -> bool:
        """Write what was moved, and tell whether anything was.

        A replica whose generation is not what we read gives the transaction up.
        """
        for shard in shards:
            shard.save(update_fields=_SHARD)
        for replica in replicas:
            save(replica)
        made = TransitionRow.objects.bulk_create(self._rows)
        self._rows = []
        if self._routes:
            routes_changed.send(ShardRow)
        return bool(made)

    def _row(
        self,
        replica_pk: int | None,
        shard: ShardRow | None,
        attempt: int,
        happened: Happened,
        before: State,
        after: State,
        why: str,
        node_at: datetime | None,
    ) -> TransitionRow:
        return TransitionRow(
            replica_id=replica_pk,
            shard=shard,
            attempt=attempt,
            at=self.now,
            node_at=node_at,
            happened=happened,
            before=before,
            after=after,
            why=why[:500],
            by=self.by[:150],
        )


def _count_failure(replica: ReplicaRow, now: datetime) -> None:
    """Count failures in a row: one that had served long enough before begins anew."""
    long_enough = timedelta(seconds=lifecycle.SERVED_LONG_ENOUGH)
    served_long = replica.ready_at is not None and now - replica.ready_at >= long_enough
    replica.failures = 1 if served_long else replica.failures + 1
    replica.next_try_at = now + timedelta(seconds=lifecycle.backoff(replica.failures))


def save(replica: ReplicaRow) -> None:
    """Write a replica by compare-and-set on its generation."""
    seen, replica.generation = replica.generation, replica.generation + 1
    values = {name: getattr(replica, name) for name in _FOLLOWING}
    if not ReplicaRow.objects.filter(pk=replica.pk, generation=seen).update(**values):
        raise Raced


def locked(rows: Q) -> QuerySet[ReplicaRow]:
    """Lock replicas, always in one order, before their shards and the row of the passes: nobody waits in a circle."""
    return ReplicaRow.objects.filter(rows).select_related("model").select_for_update(of=("self",)).order_by("pk")


def present_shards(replica: ReplicaRow) -> list[ShardRow]:
    """Return the shards of a replica's present attempt, with their nodes."""
    return list(replica.shards.filter(attempt=replica.attempt).select_related("node").order_by("rank", "id"))
