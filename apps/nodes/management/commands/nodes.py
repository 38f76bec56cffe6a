"""Print the nodes, or one of them; keep new work away from a node, let it come again, or forget a lost one."""

from argparse import ArgumentParser
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError

from apps.audit.management.keyboard import operator
from apps.audit.management.output import age, as_json, as_table
from apps.nodes import actions, heartbeats, queries
from apps.nodes.actions import NotFound, NotLost
from apps.nodes.models import DeviceRow, NodeRow
from llmgw.core.units import gib

VERBS: Final[Mapping[str, tuple[Callable[..., NodeRow | NotFound | NotLost | None], str]]] = {
    "cordon": (actions.cordon, "takes nothing new"),
    "uncordon": (actions.uncordon, "takes new work"),
    "forget": (actions.forget, "is forgotten"),
}


class Command(BaseCommand):
    """`manage.py nodes [NAME] [--json]`, `manage.py nodes cordon|uncordon|forget NAME [--reason WHY]`."""

    help = (
        "Print the nodes, or one of them with its devices. `nodes cordon NAME` keeps new work away, `nodes uncordon "
        "NAME` lets it come again, `nodes forget NAME` deletes a lost node with its launches and their failures. "
        "Exit code 3: refused, with the reason."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("words", nargs="*", metavar="[cordon|uncordon|forget] [NAME]", help="all nodes without it")
        parser.add_argument("--reason", default="", help="why, for the audit")
        parser.add_argument("--json", action="store_true", help="print one JSON document")

    def handle(self, *args: Any, words: list[str], reason: str, json: bool, **options: Any) -> None:
        now = datetime.now(UTC)
        match words:
            case []:
                self.stdout.write(_all(now, json=json))
            case [verb, name] if verb in VERBS:
                self.stdout.write(_do(verb, name, reason, now, json=json))
            case [verb] if verb in VERBS:
                raise CommandError(f"which node? `manage.py nodes {verb} NAME`", returncode=2)
            case [name]:
                self.stdout.write(_one(name, now, json=json))
            case _:
                verbs = ", ".join(VERBS)
                raise CommandError(f"write one name, or one of {verbs} and a name", returncode=2)


def _do(verb: str, name: str, reason: str, now: datetime, *, json: bool) -> str:
    act, told = VERBS[verb]
    done = act(name, by=operator(), now=now, reason=reason)
    if isinstance(done, NotFound | NotLost):
        raise _refused(done)
    return as_json(queries.describe(done)) if json and done else f"{name} {told}"


def _refused(no: NotFound | NotLost) -> CommandError:
    return CommandError(f"{no.code}: {no.text()} – {no.cure()}", returncode=3)


def _all(now: datetime, *, json: bool) -> str:
    rows = list(queries.in_full() if json else queries.known())
    if json:
        return as_json({"items": [queries.describe(row) for row in rows]})
    if not rows:
        return "no node has joined: start a worker with `llmgw-node run`"
    heard = heartbeats.last_heard(now)
    return as_table(
        ("node", "state", "for", "heard", "address", "devices", "engines"),
        [_line(row, now, heard.get(row.name)) for row in rows],
    )


def _line(row: NodeRow, now: datetime, heard: float | None) -> tuple[str, ...]:
    return (
        row.name,
        queries.state_word(row),
        age(row.state_since, now),
        "–" if heard is None else f"{heard:.0f} s ago",
        row.address or "–",
        queries.devices_in_words(row),
        ", ".join(row.engines) or "–",
    )


def _one(name: str, now: datetime, *, json: bool) -> str:
    row = queries.find(name)
    if row is None:
        raise _refused(NotFound(name))
    if json:
        return as_json(queries.describe(row))
    heard = heartbeats.last_heard(now).get(name)
    facts = zip(("node", "state", "for", "heard", "address", "devices", "engines"), _line(row, now, heard), strict=True)
    devices = [
        (each.label or "–", each.device_id, each.device_class, gib(each.memory), each.slots, _health(each))
        for each in row.devices.all()
    ]
    told = [f"{what:9} {value}" for what, value in facts]
    moves = [(f"{m.at:%Y-%m-%d %H:%M:%S}", m.before, m.after, m.why) for m in row.transitions.order_by("-id")[:10]]
    told += ["", as_table(("device", "id", "class", "memory", "slots", "health"), devices)]
    told += ["", as_table(("at", "from", "to", "why"), moves)]
    inventory = queries.facts_of(row).inventory
    found = (*inventory.get("findings", ()), *row.findings)
    told += [f"problem   {problem['text']}" for problem in inventory.get("problems", ())]
    return "\n".join(told + [f"finding   {finding['code']}: {finding['text']}" for finding in found])


def _health(device: DeviceRow) -> str:
    told = (device.unhealthy_code, device.unhealthy)
    return ": ".join(word for word in told if word) or "–"
