"""Print what the doctor found on a node when it last ran there, or have it run now."""

from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from apps.audit.management.keyboard import operator
from apps.audit.management.output import age, as_json
from apps.nodes import queries
from apps.nodes.actions import NotFound
from apps.nodes.models import NodeRow
from apps.replicas import actions
from llmgw.core.hardware.examination import Examination, Examined, alike


class Command(BaseCommand):
    """`manage.py doctor NODE [--run [--reason WHY]] [--json]`."""

    help = (
        "Print what the doctor found on a node when it last ran there, the most serious first. `--run` has it run now; "
        "what it finds is there a few seconds later. Exit code 1: something fails. Exit code 3: refused."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("node")
        parser.add_argument("--run", action="store_true", help="order a run, and print nothing else")
        parser.add_argument("--reason", default="", help="why, for the audit")
        parser.add_argument("--json", action="store_true", help="print one JSON document")

    def handle(self, *args: Any, node: str, run: bool, reason: str, json: bool, **options: Any) -> None:
        now = datetime.now(UTC)
        if run:
            self.stdout.write(_run(node, reason, now))
            return
        row = _found(queries.find(node) or NotFound(node))
        told = queries.examination_of(row)
        if json:
            self.stdout.write(as_json(queries.facts_of(row).examination))
        else:
            self.stdout.write("\n".join(_lines(node, told, now)))
        if told and told.count("fail"):
            raise SystemExit(1)


def _run(node: str, reason: str, now: datetime) -> str:
    _found(actions.examine(node, by=operator(), now=now, reason=reason))
    return f"the doctor of {node} is to run now: `manage.py doctor {node}` shows what it found"


def _found(row: NodeRow | NotFound) -> NodeRow:
    if isinstance(row, NotFound):
        raise CommandError(f"{row.code}: {row.text()} – {row.cure()}", returncode=3)
    return row


def _lines(node: str, told: Examination | None, now: datetime) -> Iterator[str]:
    if told is None:
        yield f"the doctor has not run on {node} yet: `manage.py doctor {node} --run`"
        return
    at = datetime.fromtimestamp(told.at, UTC)
    counts = ", ".join(f"{told.count(word)} {word}" for word in ("fail", "warn", "unknown", "pass"))
    yield f"{node}, {age(at, now)} ago: {counts}"
    for found in alike(outcome for outcome in told.outcomes if outcome.verdict in {"fail", "warn", "unknown"}):
        yield from _outcomes(found)
    for fabric, environment in told.environments.items():
        yield f"NCCL on {fabric}: " + " ".join(f"{name}={value}" for name, value in environment.items())
    for fabric, why in told.refused.items():
        yield f"NCCL on {fabric}: none, {why}"


def _outcomes(found: Sequence[Examined]) -> Iterator[str]:
    yield from (f"{outcome.verdict:8} {outcome.check}: {outcome.text}" for outcome in found)
    if found[0].costs:
        yield f"         costs: {found[0].costs}"
    for does in (found[0].cure.text, found[0].cure.command):
        if does:
            yield f"         cure:  {does}"
