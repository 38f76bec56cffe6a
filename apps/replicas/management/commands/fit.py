"""Print which profiles of a model fit on which classes: now, if the fleet were empty, or never."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from apps.audit.management.output import as_json, as_table
from apps.replicas.management.imagined import add_files, imagined
from llmgw.core.plan.fits import Fit, fits
from llmgw.core.units import gib


class Command(BaseCommand):
    """`manage.py fit MODEL [--fleet FILE] [--catalog FILE] [--json]`."""

    help = (
        "Print for each profile of a model and each class that it names how many more replicas have a place now, how "
        "many would have one if nothing ran, and the longest context of one request that fits. "
        "Exit code 1: it fits nowhere now; 3: there is no such model, or a file is refused."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("model")
        add_files(parser)
        parser.add_argument("--json", action="store_true", help="print one JSON document")

    def handle(
        self, *args: Any, model: str, fleet: str | None, catalog: str | None, json: bool, **options: Any
    ) -> None:
        snapshot = imagined(fleet, catalog)
        wanted = next((each for each in snapshot.models if model in (each.name, *each.aliases)), None)
        if wanted is None:
            names = ", ".join(sorted(each.name for each in snapshot.models)) or "none"
            raise CommandError(f"there is no model {model}; there are: {names}", returncode=3)
        found = fits(snapshot, wanted)
        self.stdout.write(as_json({"items": [each.to_json() for each in found]}) if json else _table(found))
        if not any(each.now for each in found):
            raise SystemExit(1)


def _table(found: tuple[Fit, ...]) -> str:
    head = ("profile", "class", "verdict", "now", "if empty", "needs", "longest context", "why not")
    return as_table(head, [_row(each) for each in found])


def _row(each: Fit) -> tuple[object, ...]:
    needs = gib(each.needs) if each.needs else "unknown"
    longest = "unknown" if each.longest_context is None else each.longest_context
    why = f"{each.why}: {each.text}" if each.why else ""
    return each.profile, each.device_class, each.verdict, each.now, each.empty, needs, longest, why
