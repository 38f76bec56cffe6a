"""Print the declared models and how far each is, or take one out of the catalog."""

from argparse import ArgumentParser
from datetime import UTC, datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from apps.audit.management.keyboard import operator
from apps.audit.management.output import as_json, as_table
from apps.catalog import actions as catalog
from apps.catalog.models import ModelRow
from apps.replicas import queries
from apps.replicas.explain import NotFound
from llmgw.core.lifecycle import LIVE, state_word
from llmgw.core.world import State


class Command(BaseCommand):
    """`manage.py models [NAME] [--json]`, `manage.py models retire NAME [--reason WHY]`."""

    help = (
        "Print the declared models and how far each is, or one of them. `models retire NAME` takes one out of the "
        "catalog, and its replicas drain; `apply` declares models. Exit code 3: there is none of that name."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("words", nargs="*", metavar="[retire] [NAME]", help="all models without it")
        parser.add_argument("--reason", default="", help="why, for the audit")
        parser.add_argument("--json", action="store_true", help="print one JSON document")

    def handle(self, *args: Any, words: list[str], reason: str, json: bool, **options: Any) -> None:
        match words:
            case []:
                self.stdout.write(_all(json=json))
            case ["retire", name]:
                self.stdout.write(_retire(name, reason, json=json))
            case ["retire"]:
                raise CommandError("which model? `manage.py models retire NAME`", returncode=2)
            case [name]:
                self.stdout.write(_one(name, json=json))
            case _:
                raise CommandError("write one name, or retire and a name", returncode=2)


def _all(*, json: bool) -> str:
    rows = list(queries.models())
    if json:
        return as_json({"items": [queries.describe_model(row) for row in rows]})
    if not rows:
        return "no model is declared: `manage.py apply -f catalog.yaml` declares some"
    return as_table(("model", "ready", "state", "priority", "aliases"), [_line(row) for row in rows])


def _line(row: ModelRow) -> tuple[object, ...]:
    replicas = queries.replicas_of(row)
    ready = f"{queries.count_ready(replicas)}/{row.replicas}"
    return (
        row.name,
        ready,
        queries.state_sentence(row.replicas, replicas),
        row.priority,
        ", ".join(row.aliases) or "–",
    )


def _one(name: str, *, json: bool) -> str:
    row = queries.models().filter(name=name).first()
    if row is None:
        raise _unknown(name)
    if json:
        return as_json(queries.describe_model(row))
    replicas = queries.replicas_of(row)
    facts = {
        "model": row.name,
        "state": queries.state_sentence(row.replicas, replicas),
        "source": row.source_uri,
        "aliases": ", ".join(row.aliases) or "–",
        "profiles": ", ".join(profile.name for profile in row.profiles.all()),
        "priority": row.priority,
        "revision": row.revision,
    }
    lines = [f"{what:9} {value}" for what, value in facts.items()]
    told = [(each.name, state_word(State(each.state), each.failures), each.why) for each in replicas]
    return "\n".join([*lines, "", as_table(("replica", "state", "why"), told)])


def _retire(name: str, reason: str, *, json: bool) -> str:
    live = queries.present().filter(model__name=name, state__in=LIVE).count()
    if not catalog.retire(name, by=operator(), now=datetime.now(UTC), reason=reason):
        raise _unknown(name)
    if json:
        return as_json({"name": name, "retired": True})
    if not live:
        return f"{name} is retired; nothing of it was running"
    return f"{name} is retired; {'its replica drains' if live == 1 else f'its {live} replicas drain'}"


def _unknown(name: str) -> CommandError:
    no = NotFound(name)
    return CommandError(f"{no.code}: {no.text()} – {no.cure()}", returncode=3)
