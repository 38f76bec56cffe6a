"""Why is it not running? One answer for console, API and command line, from what the passes have stored."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, ClassVar, Final

from apps.catalog import queries as catalog
from apps.catalog.models import ModelRow
from apps.replicas import queries
from apps.replicas.models import ReplicaRow, ShardRow
from llmgw.core.lifecycle import CRASH_LOOPING_FROM, state_word
from llmgw.core.refusals import hardness
from llmgw.core.units import counted, duration, in_a_row
from llmgw.core.world import State

_FAILED: Final = frozenset(state_word(State.FAILED, failures) for failures in (1, CRASH_LOOPING_FROM))
_LINES_SHOWN: Final = 10
_NODES_SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class NotFound:
    """No such model is declared."""

    code: ClassVar[str] = "model.unknown"
    model: str

    def text(self) -> str:
        """Say it in one line."""
        return f"there is no model {self.model}"

    def cure(self) -> str:
        """Say what an operator can do."""
        return "`manage.py models` lists those that are declared"


@dataclass(frozen=True, slots=True)
class Against:
    """One reason against one candidate."""

    node: str | None
    profile: str | None
    code: str
    text: str
    cure: str


@dataclass(frozen=True, slots=True)
class Group:
    """Reasons of one code, counted by node."""

    code: str
    count: int
    nodes: tuple[str, ...]
    text: str
    cure: str


@dataclass(frozen=True, slots=True)
class Failure:
    """How one attempt ended."""

    attempt: int
    node: str
    failure_class: str
    text: str
    exit_code: int | None
    signal: int | None
    at: datetime | None
    last_lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Why:
    """One replica: its state, and what stands in its way."""

    name: str
    state: str
    since: datetime
    why: str
    attempt: int
    failures: int
    next_try_at: datetime | None
    groups: tuple[Group, ...]
    """Why it has no place, the most frequent reason first."""
    against: tuple[Against, ...]
    """The same, reason by reason."""
    nearest: tuple[Against, ...]
    """What stands against the candidate that comes closest."""
    failure: Failure | None
    """The last one."""
    first_failure: Failure | None
    """Where it began, if that is another one."""

    @property
    def is_refused(self) -> bool:
        """Tell whether something stands in its way that is more than time to start."""
        return bool(self.against)

    @property
    def has_failed(self) -> bool:
        """Tell whether it is at rest because it has failed, and not only had failed before."""
        return self.state in _FAILED

    @property
    def is_without_place(self) -> bool:
        """Tell whether it is at rest because it fits nowhere."""
        return self.is_refused and self.state in (State.QUEUED, State.STOPPED)


@dataclass(frozen=True, slots=True)
class Explanation:
    """What became of a model, replica by replica."""

    model: str
    summary: str
    wanted: int
    ready: int
    looked_at: datetime | None
    """When a pass last looked."""
    last_pass: int
    """Its token."""
    replicas: tuple[Why, ...]
    now: datetime

    @property
    def is_refused(self) -> bool:
        """Tell whether a replica has no place, or may not start yet."""
        return any(why.is_refused for why in self.replicas)

    def to_json(self) -> dict[str, Any]:
        """Return the shape that the API and `--json` print."""
        told: dict[str, Any] = _plain(asdict(self))
        return told

    def text(self) -> str:
        """Say it as people read it."""
        lines = [_headline(self.model, self.ready, self.wanted, len(self.replicas))]
        for why in self.replicas:
            lines += _lines(why, self.now)
        return "\n".join(lines)


def explain(model_name: str, now: datetime) -> Explanation | NotFound:
    """Explain a model, named by its served name or an alias, from its rows: a handful of queries."""
    model = _find(model_name)
    if model is None:
        return NotFound(model_name)
    rows = queries.replicas_of(model)
    failed = _failures(rows)
    replicas = tuple(_why(row, failed.get(row.pk, ())) for row in rows)
    passes = queries.passes()
    return Explanation(
        model=model.name,
        summary=_summary(model, rows, replicas, now),
        wanted=model.replicas,
        ready=queries.count_ready(rows),
        looked_at=passes.looked_at,
        last_pass=passes.token,
        replicas=replicas,
        now=now,
    )


def _find(name: str) -> ModelRow | None:
    return catalog.find(name) or next((row for row in catalog.declared() if name in row.aliases), None)


def _failures(rows: Sequence[ReplicaRow]) -> Mapping[int, Sequence[ShardRow]]:
    """Return each replica's failed launches, oldest first, in one query."""
    failed: dict[int, list[ShardRow]] = {}
    ended = ShardRow.objects.filter(replica__in=rows, failure__isnull=False).select_related("node")
    for shard in ended.order_by("attempt", "id"):
        failed.setdefault(shard.replica_id or 0, []).append(shard)
    return failed


# --- one replica --------------------------------------------------------------------------------------------------


def _why(row: ReplicaRow, failed: Sequence[ShardRow]) -> Why:
    against = tuple(Against(no["node"], no["profile"], no["code"], no["text"], no["cure"]) for no in row.refusals)
    return Why(
        name=row.name,
        state=state_word(State(row.state), row.failures),
        since=row.state_since,
        why=row.why,
        attempt=row.attempt,
        failures=row.failures,
        next_try_at=row.next_try_at,
        groups=tuple(Group(**{**group, "nodes": tuple(group["nodes"])}) for group in queries.grouped(row.refusals)),
        against=against,
        nearest=_nearest(against),
        failure=_failure(failed[-1]) if failed and row.failures else None,
        first_failure=_failure(failed[0]) if len(failed) > 1 and row.failures else None,
    )


def _nearest(against: Iterable[Against]) -> tuple[Against, ...]:
    """Choose the candidate with the fewest and most easily cured reasons against it."""
    candidates: dict[tuple[str, str], list[Against]] = {}
    for no in against:
        if no.node:
            candidates.setdefault((no.node, no.profile or ""), []).append(no)
    if not candidates:
        return ()
    return tuple(candidates[min(candidates, key=lambda at: (len(candidates[at]), _hardest(candidates[at]), at))])


def _hardest(reasons: Iterable[Against]) -> int:
    return max(hardness(no.code) for no in reasons)


def _failure(shard: ShardRow) -> Failure:
    told = shard.failure or {}
    return Failure(
        attempt=shard.attempt,
        node=shard.node.name,
        failure_class=told.get("failure_class", "unknown"),
        text=told.get("text", ""),
        exit_code=told.get("exit_code"),
        signal=told.get("signal"),
        at=shard.ended_at,
        last_lines=tuple(told.get("tail") or shard.tail),
    )


# --- words --------------------------------------------------------------------------------------------------------


def _headline(model: str, ready: int, wanted: int, there: int) -> str:
    told = f"{model}: {ready} of {counted(wanted, 'replica')} ready."
    return told if there >= wanted else f"{told} No pass has looked at the others yet."


def _summary(model: ModelRow, rows: Sequence[ReplicaRow], replicas: Sequence[Why], now: datetime) -> str:
    """Say how many serve, and the worst that can be said of the others."""
    told = _headline(model.name, queries.count_ready(rows), model.replicas, len(rows))
    waiting = [why for why in replicas if why.state != State.READY]
    worst = max(waiting, key=lambda why: (why.failures > 0, why.is_refused), default=None)
    return f"{told} {_one_sentence(worst, now)}." if worst else told


def _one_sentence(why: Why, now: datetime) -> str:
    since = duration((now - why.since).total_seconds())
    failed = f"failed {in_a_row(max(why.failures, 1))}"
    if why.has_failed:
        wait = max((why.next_try_at - now).total_seconds(), 0) if why.next_try_at else None
        due = "" if wait is None else f", next start in {wait:.0f} s" if wait else ", next start due now"
        loops = "" if why.state == State.FAILED else f"is {why.state}: it "
        return f"{why.name} {loops}{failed}{due}"
    if why.is_without_place:
        return f"{why.name} has had no place for {since}"
    return f"{why.name} has been {why.state} for {since}" + (f", after it {failed}" if why.failures else "")


def _lines(why: Why, now: datetime) -> list[str]:
    # What its state, its failure or the reasons against it say below need not be said here, too.
    more = "" if why.why == "serves" or why.has_failed or why.is_without_place or not why.why else f": {why.why}"
    lines = [f"  {_one_sentence(why, now)}{more.rstrip('.')}."]
    if any(no.node for no in why.against):
        lines += _place_lines(why)
    else:
        waits = not why.has_failed
        lines += [_line("waits" if waits else "would do", _no_place(no) if waits else no.cure) for no in why.against]
    if why.failure:
        lines += _failure_lines("failure", why.failure)
    if why.first_failure:
        lines += [_line("began with", _in_a_line(why.first_failure))]
    return lines


def _place_lines(why: Why) -> list[str]:
    """Count the reasons by code, then say those against the nearest place, then the others."""
    counts = ", ".join(f"{group.count} {group.code}" for group in why.groups)
    nodes = counted(len({no.node for no in why.against}), "node")
    lines = [_line("fits on", f"0 of {nodes}: {counts}")]
    lines += [_line("nearest" if not at else "", _there(no)) for at, no in enumerate(why.nearest)]
    lines += [_line("would do" if not at else "", cure) for at, cure in enumerate(_cures(why.nearest))]
    return lines + _table([no for no in why.against if no not in why.nearest])


def _there(no: Against) -> str:
    by = f" by profile {no.profile}" if no.profile else ""
    return f"{no.node}{by}: {no.text}"


def _no_place(no: Against) -> str:
    return f"{no.text} [{no.code}] – {no.cure}"


def _line(head: str, text: str) -> str:
    return f"    {head:<11}{text}"


def _cures(reasons: Iterable[Against]) -> list[str]:
    return list(dict.fromkeys(no.cure for no in reasons))


def _table(against: Sequence[Against]) -> list[str]:
    told = [(no.node or "–", no.profile or "–", no.code, no.text) for no in against]
    widths = [max(map(len, column)) for column in zip(*(row[:3] for row in told), strict=True)]
    shown = [
        "    " + "  ".join([*(cell.ljust(width) for cell, width in zip(row[:3], widths, strict=True)), row[3]])
        for row in told[:_NODES_SHOWN]
    ]
    more = len(told) - len(shown)
    return [*shown, f"    … and {more} more, see `--json`"] if more else shown


def _failure_lines(head: str, failure: Failure) -> list[str]:
    lines = [_line(head, _in_a_line(failure))]
    return lines + [_line("last lines" if not at else "", f"| {line}") for at, line in enumerate(_tail(failure))]


def _tail(failure: Failure) -> tuple[str, ...]:
    return failure.last_lines[-_LINES_SHOWN:]


def _in_a_line(failure: Failure) -> str:
    return f"attempt {failure.attempt} on {failure.node}, {failure.failure_class}: {failure.text}"


def _plain(value: Any) -> Any:
    """Make moments readable for JSON."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value.isoformat() if isinstance(value, datetime) else value
