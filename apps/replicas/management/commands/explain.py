"""Say why a model runs, or does not."""

from argparse import ArgumentParser
from datetime import UTC, datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from apps.audit.management.output import as_json
from apps.replicas.explain import NotFound, explain


class Command(BaseCommand):
    """`manage.py explain MODEL [--json]`."""

    help = (
        "Say for every replica of a model where it stands, and what stands in its way. "
        "Exit code 0: nothing does; 3: a replica has no place or may not start yet, or there is no such model."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("model", help="a served name or an alias")
        parser.add_argument("--json", action="store_true", help="print one JSON document")

    def handle(self, *args: Any, model: str, json: bool, **options: Any) -> None:
        told = explain(model, datetime.now(UTC))
        if isinstance(told, NotFound):
            raise CommandError(f"{told.code}: {told.text()} – {told.cure()}", returncode=3)
        self.stdout.write(as_json(told.to_json()) if json else told.text())
        if told.is_refused:
            raise SystemExit(3)
