"""Rows of replicas as core values: what a pass may know, what waits for whom, and each node's launches."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django.db import connection, transaction
from django.db.models import F, Min, Prefetch, QuerySet

from apps.catalog import queries as catalog
from apps.catalog.models import ModelRow
from apps.nodes import queries as nodes
from apps.replicas.models import PassRow, ReconcileRow, ReplicaRow, ShardRow, TransitionRow
from llmgw.core import wire
from llmgw.core.lifecycle import GOING, LIVE, state_word
from llmgw.core.units import LaunchId, ModelName, NodeName, ReplicaId, Seconds, replica_id
from llmgw.core.world import ClusterSnapshot, Replica, Shard, State, Stray

PASSES: Final = 1
"""Key of the one `ReconcileRow`."""
_LONGEST_ORDINAL: Final = 9
_STARTING: Final = frozenset({State.PLACED, State.FETCHING, State.LAUNCHING, State.LOADING})


@dataclass(frozen=True, slots=True)
class Seen:
    """Which state of a row a decision was made on."""

    pk: int
    generation: int
    refusals_key: str = ""


@dataclass(frozen=True, slots=True)
class View:
    """A snapshot, and what is needed to find its rows again unchanged."""

    snapshot: ClusterSnapshot
    replicas: Mapping[ReplicaId, Seen]
    models: Mapping[ModelName, int]
    """Keys of the declared models."""


def view() -> View:
    """Look at everything that a pass needs, as of one moment, in seven queries."""
    with _one_moment():
        declared = list(catalog.declared())
        shards, strays = _shards()
        found = _replicas(shards)
        snapshot = ClusterSnapshot(
            nodes=nodes.nodes(),
            models=tuple(catalog.model_of(row) for row in declared),
            replicas=tuple(replica for replica, _ in found),
            strays=strays,
        )
    seen = {replica.id: seen for replica, seen in found}
    return View(snapshot, seen, {ModelName(row.name): row.pk for row in declared})


@contextmanager
def _one_moment() -> Iterator[None]:
    """Let several queries see the same moment; SQLite's transactions do so anyway."""
    outermost = not connection.in_atomic_block
    with transaction.atomic():
        if outermost and connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        yield


# Whole rows would bring along much that no pass asks for: refusals, inventories, last lines.
_SHARD: Final = ("replica_id", "launch_id", "node__name", "devices", "state", "rank")
_REPLICA: Final = (
    *("pk", "generation", "refusals_key", "model__name", "ordinal", "state", "profile", "fingerprint"),
    *("attempt", "failures", "next_try_at"),
)


def _shards() -> tuple[Mapping[int, list[Shard]], tuple[Stray, ...]]:
    """Return the shards of present attempts by replica, and what is alive beside them."""
    by_replica: dict[int, list[Shard]] = defaultdict(list)
    owned = ShardRow.objects.filter(replica__gone_at__isnull=True, attempt=F("replica__attempt"))
    for replica, launch, node, devices, state, rank in owned.order_by("rank", "id").values_list(*_SHARD):
        shard = Shard(LaunchId(launch), NodeName(node), tuple(devices), State(state), rank)
        by_replica[replica or 0].append(shard)
    known = {shard.launch_id for shards in by_replica.values() for shard in shards}
    alive = ShardRow.objects.filter(state__in=LIVE).order_by("id").values_list(*_SHARD)
    strays = (
        Stray(NodeName(node), LaunchId(launch), tuple(devices), stopping=state in GOING)
        for _, launch, node, devices, state, _ in alive
        if launch not in known
    )
    return by_replica, tuple(strays)


def _replicas(shards: Mapping[int, Sequence[Shard]]) -> list[tuple[Replica, Seen]]:
    """Return the slots that are not archived, each with what is needed to find it again unchanged."""
    rows = ReplicaRow.objects.filter(gone_at__isnull=True).order_by("model_id", "ordinal").values_list(*_REPLICA)
    return [
        (
            Replica(
                id=replica_id(model, ordinal),
                model=ModelName(model),
                ordinal=ordinal,
                state=State(state),
                profile=profile or None,
                fingerprint=fingerprint or None,
                attempt=attempt,
                failures=failures,
                next_try_at=Seconds(next_try_at.timestamp()) if next_try_at else None,
                shards=tuple(shards.get(pk, ())),
            ),
            Seen(pk, generation, key),
        )
        for pk, generation, key, model, ordinal, state, profile, fingerprint, attempt, failures, next_try_at in rows
    ]


def present() -> QuerySet[ReplicaRow]:
    """Return the slots that are not archived, with their models."""
    return ReplicaRow.objects.filter(gone_at__isnull=True).select_related("model")


# --- what waits ---------------------------------------------------------------------------------------------------


def next_try(after: datetime | None) -> datetime | None:
    """Return when the next start after a failure is due that the last pass, `after`, could not know of as due."""
    waiting = ReplicaRow.objects.filter(state=State.FAILED, gone_at__isnull=True)
    if after is not None:
        waiting = waiting.filter(next_try_at__gt=after)
    at: datetime | None = waiting.aggregate(at=Min("next_try_at"))["at"]
    return at


def passes() -> ReconcileRow:
    """Return the row that says whether a pass is wanted and who runs it; a fresh one before the first request."""
    return ReconcileRow.objects.filter(pk=PASSES).first() or ReconcileRow(pk=PASSES)


def digests(since: datetime) -> Mapping[str, str | None]:
    """Return for each node the digest of the launches that are alive there, as far as we know; one query.

    None where one has moved after `since`: what the node last told may be of before that.
    """
    alive: dict[str, list[tuple[str, str]]] = defaultdict(list)
    moving = set()
    rows = ShardRow.objects.filter(state__in=LIVE).values_list("node__name", "launch_id", "state", "state_since")
    for node, launch, state, moved_at in rows:
        if moved_at > since:
            moving.add(node)
        # What is only placed may not have reached its node yet; once it has, it is no longer only placed there.
        if state != State.PLACED:
            alive[node].append((launch, state))
    return {node: None if node in moving else wire.digest(alive[node]) for node in moving | alive.keys()}


# --- for showing --------------------------------------------------------------------------------------------------


def find(name: str) -> ReplicaRow | None:
    """Return the slot of this name, `<model>/<ordinal>`."""
    model, _, ordinal = name.rpartition("/")
    if not ordinal.isdecimal() or len(ordinal) > _LONGEST_ORDINAL:
        return None
    return shown().filter(model__name=model, ordinal=int(ordinal)).first()


def shown() -> QuerySet[ReplicaRow]:
    """Return the slots that are not archived with what is shown of them: two queries, however many there are."""
    shards = ShardRow.objects.filter(attempt=F("replica__attempt")).select_related("node").order_by("rank", "id")
    return present().order_by("model__name", "ordinal").prefetch_related(Prefetch("shards", shards, to_attr="present"))


def models() -> QuerySet[ModelRow]:
    """Return the declared models with their profiles, replicas and shards: four queries, however many there are."""
    return catalog.declared().prefetch_related(Prefetch("replica_rows", shown(), to_attr="present"))


def replicas_of(model: ModelRow) -> list[ReplicaRow]:
    """Return a model's slots; no query when it came from `models`."""
    found = getattr(model, "present", None)
    return list(shown().filter(model=model)) if found is None else found


def shards_of(replica: ReplicaRow) -> list[ShardRow]:
    """Return the shards of a replica's present attempt; no query when it came from `shown` or `models`."""
    found = getattr(replica, "present", None)
    if found is not None:
        return list(found)
    return list(replica.shards.filter(attempt=replica.attempt).select_related("node").order_by("rank", "id"))


def grouped(refusals: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Count stored refusals by code, the most frequent first: `{"code", "count", "text", "cure", "nodes"}`."""
    groups: dict[str, dict[str, Any]] = {}
    for no in refusals:
        first = {"code": no["code"], "count": 0, "text": no["text"], "cure": no["cure"], "nodes": []}
        group = groups.setdefault(no["code"], first)
        if no["node"] not in group["nodes"]:
            group["nodes"] += [no["node"]] if no["node"] else []
        group["count"] = len(group["nodes"]) or 1
    return sorted(groups.values(), key=lambda group: (-group["count"], group["code"]))


def describe_replica(row: ReplicaRow) -> dict[str, Any]:
    """Return the shape that the API and `--json` print."""
    return {
        "name": row.name,
        "model": row.model.name,
        "ordinal": row.ordinal,
        "state": state_word(State(row.state), row.failures),
        "state_since": row.state_since.isoformat(),
        "why": row.why,
        "profile": row.profile or None,
        "attempt": row.attempt,
        "failures": row.failures,
        "restarts": row.restarts,
        "next_try_at": _iso(row.next_try_at),
        "ready_at": _iso(row.ready_at),
        "created_at": row.created_at.isoformat(),
        "shards": [describe_shard(shard) for shard in shards_of(row)],
        "refusals": grouped(row.refusals),
    }


def describe_shard(row: ShardRow) -> dict[str, Any]:
    """Return the shape of one launch, within its replica's."""
    return {
        "launch_id": row.launch_id,
        "node": row.node.name,
        "rank": row.rank,
        "devices": row.devices,
        "state": str(row.state),
        "state_since": row.state_since.isoformat(),
        "host": row.host or None,
        "port": row.port,
        "pid": row.pid,
        "adopted": row.adopted,
        "progress": row.progress,
        "failure": row.failure,
    }


def describe_model(row: ModelRow) -> dict[str, Any]:
    """Return the shape that the API and `--json` print: what was declared, and what became of it."""
    replicas = replicas_of(row)
    return {
        **catalog.describe(row),
        "ready": count_ready(replicas),
        "wanted": row.replicas,
        "state": state_sentence(row.replicas, replicas),
        "replica_names": [replica.name for replica in replicas],
    }


def count_ready(replicas: Iterable[ReplicaRow]) -> int:
    """Count the replicas that serve."""
    return sum(replica.state == State.READY for replica in replicas)


def state_sentence(wanted: int, replicas: Sequence[ReplicaRow]) -> str:
    """Say in one sentence how far a model is."""
    counts = Counter(_said_of(replica) for replica in replicas if replica.state != State.READY)
    rest = ", ".join(f"{count} {word}" for word, count in sorted(counts.items()))
    missing = max(wanted - len(replicas), 0)
    told = [f"{count_ready(replicas)} of {wanted} ready", rest, f"{missing} not looked at yet" if missing else ""]
    return ", ".join(part for part in told if part)


def _said_of(replica: ReplicaRow) -> str:
    state = State(replica.state)
    if state in (State.QUEUED, State.STOPPED) and replica.refusals:
        return "without a place"
    return "starting" if state in _STARTING else state_word(state, replica.failures)


def describe_pass(row: PassRow) -> dict[str, Any]:
    """Return the shape that the API and `--json` print."""
    return {
        "token": row.token,
        "started_at": row.started_at.isoformat(),
        "duration_ms": row.duration_ms,
        "by": row.by,
        "actions": row.actions,
        "refusals": row.refusals,
        "lost_races": row.lost_races,
    }


def _iso(at: datetime | None) -> str | None:
    return at.isoformat() if at else None


# --- history ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TimelineStep:
    """A state that a launch entered, and how long it stayed in it."""

    state: State
    at: datetime
    seconds: float | None
    """By the node's clock where it saw both ends; None for the last state."""
    happened: str
    why: str
    by: str


@dataclass(frozen=True, slots=True)
class Launch:
    """One shard of an attempt."""

    launch_id: str
    node: str
    state: State
    steps: tuple[TimelineStep, ...]
    failure: Mapping[str, Any] | None
    tail: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One start of a replica."""

    number: int
    launches: tuple[Launch, ...]

    @property
    def failure(self) -> Mapping[str, Any] | None:
        """How it ended, if nobody asked for that end: what the first of its launches told."""
        return next((launch.failure for launch in self.launches if launch.failure), None)


@dataclass(frozen=True, slots=True)
class Timeline:
    """What became of a replica, start by start."""

    attempts: tuple[Attempt, ...]
    """The newest first."""
    first_failure: Attempt | None
    """Where it began: kept and shown as long as the slot, however many followed."""


def timeline(replica: ReplicaRow) -> Timeline:
    """Return a replica's starts with their steps, in two queries."""
    steps: dict[int, list[TransitionRow]] = defaultdict(list)
    for move in replica.transitions.filter(shard__isnull=False).order_by("id"):
        steps[move.shard_id or 0].append(move)
    launches: dict[int, list[Launch]] = defaultdict(list)
    for shard in replica.shards.select_related("node").order_by("rank", "id"):
        launches[shard.attempt].append(_launch(shard, steps[shard.pk]))
    attempts = tuple(Attempt(number, tuple(launches[number])) for number in sorted(launches, reverse=True))
    return Timeline(attempts, next((attempt for attempt in reversed(attempts) if attempt.failure), None))


def describe_timeline(history: Timeline) -> dict[str, Any]:
    """Return the shape that the API and `--json` print."""
    first = history.first_failure
    return {
        "attempts": [_describe_attempt(attempt) for attempt in history.attempts],
        "first_failure": None if first is None else _describe_attempt(first),
    }


def _describe_attempt(attempt: Attempt) -> dict[str, Any]:
    return {"attempt": attempt.number, "launches": [_describe_launch(launch) for launch in attempt.launches]}


def _describe_launch(launch: Launch) -> dict[str, Any]:
    steps = [
        {"state": step.state, "at": step.at.isoformat(), "seconds": step.seconds, "why": step.why, "by": step.by}
        for step in launch.steps
    ]
    told = {"launch_id": launch.launch_id, "node": launch.node, "state": launch.state, "steps": steps}
    return {**told, "failure": launch.failure, "tail": list(launch.tail)}


def _launch(shard: ShardRow, moves: Sequence[TransitionRow]) -> Launch:
    ends = [*moves[1:], None]
    return Launch(
        launch_id=shard.launch_id,
        node=shard.node.name,
        state=State(shard.state),
        steps=tuple(_step(move, end) for move, end in zip(moves, ends, strict=False)),
        failure=shard.failure,
        tail=tuple(shard.tail),
    )


def _step(move: TransitionRow, end: TransitionRow | None) -> TimelineStep:
    return TimelineStep(
        State(move.after), move.node_at or move.at, _seconds(move, end), move.happened, move.why, move.by
    )


def _seconds(move: TransitionRow, end: TransitionRow | None) -> float | None:
    """Take both ends from one clock: the node's if it saw both, else ours."""
    if end is None:
        return None
    if move.node_at is not None and end.node_at is not None:
        return (end.node_at - move.node_at).total_seconds()
    return max((end.at - move.at).total_seconds(), 0.0)
