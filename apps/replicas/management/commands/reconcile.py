"""Run the passes that are wanted, by hand; or print what one would do."""

from argparse import ArgumentParser
from datetime import UTC, datetime
from typing import Any

from django.core.management.base import BaseCommand

from apps.audit.management.keyboard import operator
from apps.audit.management.output import as_json
from apps.replicas import actions
from apps.replicas import reconcile as passes
from apps.replicas.ids import new_id
from apps.replicas.reconcile import PassResult


class Command(BaseCommand):
    """`manage.py reconcile [--dry-run] [--json]`."""

    help = (
        "Compare what is wanted with what is, and act on it: once, and again as long as there is something to do. "
        "--dry-run prints the plan and writes nothing. Exit code 1: another worker is running passes at this moment."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="print the plan, and carry nothing out")
        parser.add_argument("--json", action="store_true", help="print one JSON document")

    def handle(self, *args: Any, dry_run: bool, json: bool, **options: Any) -> None:
        if dry_run:
            plan = passes.look(_clock())
            self.stdout.write(as_json(plan.to_json()) if json else plan.text())
            return
        actions.request_pass(send=False)
        results = passes.run(by=operator(), clock=_clock, ids=new_id)
        if not results:
            self.stderr.write("another worker is running passes at this moment, and will see to this one")
            raise SystemExit(1)
        told = [_document(result) for result in results]
        self.stdout.write(as_json({"items": told}) if json else "\n".join(_text(result) for result in results))


def _clock() -> datetime:
    return datetime.now(UTC)


def _document(result: PassResult) -> dict[str, Any]:
    return {
        "token": result.token,
        "duration_ms": round(result.duration_ms, 1),
        "lost_races": result.lost_races,
        "overtaken": result.overtaken,
        "actions": [action.to_json() for action in result.done],
        "refusals": result.plan.to_json()["refusals"],
    }


def _text(result: PassResult) -> str:
    head = f"pass {result.token}, {result.duration_ms:.0f} ms"
    lost = f"{result.lost_races} not carried out, since their rows had moved" if result.lost_races else ""
    body = [*(action.text() for action in result.done), *(each.text() for each in result.plan.refusals), lost]
    return "\n".join([f"{head}: " + ("nothing to do" if not any(body) else ""), *filter(None, body)]).rstrip()
