"""Print the replicas, or one with its history; drain, stop or restart one."""

from argparse import ArgumentParser
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError

from apps.audit.management.keyboard import operator
from apps.audit.management.output import age, as_json, as_table
from apps.replicas import actions, queries
from apps.replicas.models import ReplicaRow
from apps.replicas.queries import Attempt
from llmgw.core.lifecycle import NotAllowed, state_word
from llmgw.core.world import State

VERBS: Final[Mapping[str, tuple[Callable[..., NotAllowed | None], str]]] = {
    "drain": (actions.drain, "takes no new requests, and ends when it has answered those that it has"),
    "stop": (actions.stop, "ends now"),
    "restart": (actions.restart, "starts anew"),
}
_ATTEMPTS_SHOWN: Final = 5


class Command(BaseCommand):
    """`manage.py replicas [NAME] [--json]`, `manage.py replicas drain|stop|restart NAME [--reason WHY]`."""

    help = (
        "Print the replicas, or one of them with its history. `replicas drain NAME` lets one finish its requests and "
        "end, `replicas stop NAME` ends it at once; as long as it is wanted, its slot starts again. `replicas restart "
        "NAME` starts one anew, a failed one without its wait. Exit code 3: refused, with the reason."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("words", nargs="*", metavar="[drain|stop|restart] [NAME]", help="all replicas without it")
        parser.add_argument("--reason", default="", help="why, for the audit")
        parser.add_argument("--json", action="store_true", help="print one JSON document")

    def handle(self, *args: Any, words: list[str], reason: str, json: bool, **options: Any) -> None:
        now = datetime.now(UTC)
        match words:
            case []:
                self.stdout.write(_all(now, json=json))
            case [verb, name] if verb in VERBS:
                self.stdout.write(_do(verb, _find(name), reason, now, json=json))
            case [verb] if verb in VERBS:
                raise CommandError(f"which replica? `manage.py replicas {verb} NAME`", returncode=2)
            case [name]:
                self.stdout.write(_one(_find(name), now, json=json))
            case _:
                raise CommandError(f"write one name, or one of {', '.join(VERBS)} and a name", returncode=2)


def _find(name: str) -> ReplicaRow:
    row = queries.find(name)
    if row is None:
        cure = "`manage.py replicas` lists those that there are"
        raise CommandError(f"replica.unknown: there is no replica {name} – {cure}", returncode=3)
    return row


def _do(verb: str, row: ReplicaRow, reason: str, now: datetime, *, json: bool) -> str:
    act, told = VERBS[verb]
    if no := act(row, by=operator(), now=now, reason=reason):
        raise CommandError(f"{no.code}: {no.text()}", returncode=3)
    return as_json(queries.describe_replica(_find(row.name))) if json else f"{row.name} {told}"


def _all(now: datetime, *, json: bool) -> str:
    rows = list(queries.shown())
    if json:
        return as_json({"items": [queries.describe_replica(row) for row in rows]})
    if not rows:
        return "there are no replicas"
    heads = ("replica", "state", "for", "node", "endpoint", "attempt", "restarts", "why")
    return as_table(heads, [_line(row, now) for row in rows])


def _line(row: ReplicaRow, now: datetime) -> tuple[object, ...]:
    shards = queries.shards_of(row)
    return (
        row.name,
        state_word(State(row.state), row.failures),
        age(row.state_since, now),
        ", ".join(shard.node.name for shard in shards) or "–",
        next((f"{shard.host}:{shard.port}" for shard in shards if shard.port), "–"),
        row.attempt,
        row.restarts,
        row.why or "–",
    )


def _one(row: ReplicaRow, now: datetime, *, json: bool) -> str:
    history = queries.timeline(row)
    if json:
        return as_json({**queries.describe_replica(row), "timeline": queries.describe_timeline(history)})
    heads = ("replica", "state", "for", "node", "endpoint", "attempt", "restarts", "why")
    lines = [f"{what:9} {value}" for what, value in zip(heads, _line(row, now), strict=True)]
    adopted = [shard.node.name for shard in queries.shards_of(row) if shard.adopted]
    lines += [f"{'engine':9} adopted: the present worker of {node} found it running" for node in adopted]
    for attempt in history.attempts[:_ATTEMPTS_SHOWN]:
        lines += ["", *_attempt(attempt)]
    first = history.first_failure
    if first is not None and first not in history.attempts[:_ATTEMPTS_SHOWN]:
        lines += ["", "the first failure:", *_attempt(first)]
    return "\n".join(lines)


def _attempt(attempt: Attempt) -> list[str]:
    lines = []
    for launch in attempt.launches:
        lines += [f"attempt {attempt.number} on {launch.node}, launch {launch.launch_id}"]
        for step in launch.steps:
            took = "" if step.seconds is None else f"{step.seconds:.1f} s"
            lines += [f"  {step.at:%Y-%m-%d %H:%M:%S}  {step.state.value:10} {took:>9}  {step.why}".rstrip()]
        if launch.failure:
            lines += [f"  {launch.failure['failure_class']}: {launch.failure['text']}"]
            lines += [f"  | {line}" for line in launch.failure.get("tail") or launch.tail]
    return lines
