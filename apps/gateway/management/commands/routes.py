"""Print the routing table as it was last published, and whether the routers can see it."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from apps.audit.management.output import as_json, as_table
from apps.gateway import publish, queries
from llmgw.core.routing import Table, to_json
from llmgw.core.units import counted


class Command(BaseCommand):
    """`manage.py routes [--json]`."""

    help = "Print the routing table as it was last published, and whether Redis has it. Key hashes are left out."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="print one JSON document")

    def handle(self, *args: Any, json: bool, **options: Any) -> None:
        table, in_redis = queries.published(), publish.revision_in_redis()
        told = as_json({**to_json(table), "revision_in_redis": in_redis}) if json else _text(table, in_redis)
        self.stdout.write(told)


def _text(table: Table, in_redis: int | None) -> str:
    rows = [
        (name, route.model, each.replica, f"{each.host}:{each.port}", each.launch_id)
        for name, route in sorted(table.routes.items())
        for each in route.endpoints
    ]
    idle = [
        (name, route.model, "–", "no ready replica", "–") for name, route in table.routes.items() if not route.endpoints
    ]
    door = "open without a key" if table.open else counted(len(table.keys), "key")
    seen = "Redis has it" if in_redis == table.revision else f"Redis has revision {in_redis or 'none'}"
    head = f"revision {table.revision}, {door}, {seen}"
    return f"{head}\n{as_table(('name', 'model', 'replica', 'endpoint', 'launch'), rows + idle)}"
