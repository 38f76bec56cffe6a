"""Print who did what, when and why, newest first."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from apps.audit import queries
from apps.audit.management.output import as_json, as_table


class Command(BaseCommand):
    """`manage.py audit [--limit N] [--verb V] [--object ID] [--actor NAME] [--json]`."""

    help = "Print who did what, when and why, newest first."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--limit", type=int, default=100, help="how many entries at most (100)")
        parser.add_argument("--verb", default="", help="only this verb, for example model.declare")
        parser.add_argument("--object", default="", dest="object_id", help="only what was done to this object")
        parser.add_argument("--actor", default="", help="only what this person did")
        parser.add_argument("--json", action="store_true", help="print one JSON document")

    def handle(self, *args: Any, limit: int, verb: str, object_id: str, actor: str, json: bool, **options: Any) -> None:
        rows = queries.latest(limit=max(limit, 0), verb=verb, object_id=object_id, actor=actor)
        self.stdout.write(as_json({"items": [queries.describe(row) for row in rows]}) if json else _table(rows))


def _table(rows: Any) -> str:
    told = [
        (f"{row.at:%Y-%m-%d %H:%M:%S}", row.actor, row.door, row.verb, row.object_id, row.reason or "–") for row in rows
    ]
    return as_table(("at", "who", "door", "verb", "object", "reason"), told)
