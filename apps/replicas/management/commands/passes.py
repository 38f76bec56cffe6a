"""Print the last reconcile passes that did or refused something new."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from apps.audit.management.output import as_json, as_table
from apps.replicas import queries
from apps.replicas.models import PassRow


class Command(BaseCommand):
    """`manage.py passes [--limit N] [--json]`."""

    help = "Print the last reconcile passes that did or refused something new, the newest first."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--limit", type=int, default=20, help="how many passes at most (20)")
        parser.add_argument("--json", action="store_true", help="print one JSON document")

    def handle(self, *args: Any, limit: int, json: bool, **options: Any) -> None:
        rows = list(PassRow.objects.all()[: max(limit, 0)])
        if json:
            self.stdout.write(as_json({"items": [queries.describe_pass(row) for row in rows]}))
            return
        heads = ("pass", "at", "ms", "by", "what")
        self.stdout.write(as_table(heads, [line for row in rows for line in _lines(row)]) if rows else "no pass yet")


def _lines(row: PassRow) -> list[tuple[object, ...]]:
    """Return one line for each thing that a pass did or refused; only the first names the pass."""
    told = [action["text"] for action in row.actions]
    told += [f"{each['replica']} refused: {_counts(each['refusals'])}" for each in row.refusals]
    told += [f"{row.lost_races} actions lost a race"] if row.lost_races else []
    head = (row.token, f"{row.started_at:%Y-%m-%d %H:%M:%S}", f"{row.duration_ms:.0f}", row.by)
    return [((*head, line) if not at else ("", "", "", "", line)) for at, line in enumerate(told or [""])]


def _counts(groups: list[dict[str, Any]]) -> str:
    return ", ".join(f"{group['count']} × {group['code']}" for group in groups)
