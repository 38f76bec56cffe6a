"""Declare the models of a catalog file, all of them or none."""

import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from django.core.management.base import BaseCommand

from apps.audit.management.files import read_document
from apps.audit.management.keyboard import operator
from apps.audit.management.output import as_json, as_table
from apps.catalog import actions
from apps.catalog.actions import Declared
from llmgw.core import validation
from llmgw.core.wanted import Model, Problem


class Command(BaseCommand):
    """`manage.py apply -f catalog.yaml [--dry-run] [--json]`."""

    help = (
        "Declare the models of a catalog file, all of them or none. Models that are not in the file stay as they are. "
        "Exit code 0: done; 2: the file cannot be read; 3: refused, with every problem, and nothing was saved."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("-f", "--file", required=True, help="a catalog in YAML or JSON; - reads standard input")
        parser.add_argument("--dry-run", action="store_true", help="say what would change, and save nothing")
        parser.add_argument("--reason", default="", help="why, for the audit")
        parser.add_argument("--json", action="store_true", help="print one JSON document")

    def handle(self, *args: Any, file: str, dry_run: bool, reason: str, json: bool, **options: Any) -> None:
        done = _declare(read_document(file), dry_run=dry_run, reason=reason)
        declared = [each for each in done if isinstance(each, Declared)]
        problems = [each for each in done if isinstance(each, Problem)]
        if json:
            self.stdout.write(_as_document(declared, problems, dry_run=dry_run))
        elif problems:
            self.stderr.write(_refusal(file, problems))
        else:
            self.stdout.write(_table(declared, dry_run=dry_run))
        if problems:
            sys.exit(3)


def _declare(document: object, *, dry_run: bool, reason: str) -> Sequence[Declared | Problem]:
    read = validation.catalog_from_document(document)
    models = [each for each in read if isinstance(each, Model)]
    if len(models) < len(read):
        return [each for each in read if isinstance(each, Problem)]
    return actions.declare_all(models, by=operator(), now=datetime.now(UTC), dry_run=dry_run, reason=reason)


def _as_document(declared: Sequence[Declared], problems: Sequence[Problem], *, dry_run: bool) -> str:
    if problems:
        return as_json({"problems": [problem.to_json() for problem in problems], "dry_run": dry_run})
    items = [{"name": each.row.name, "change": each.change, "revision": each.row.revision} for each in declared]
    return as_json({"items": items, "dry_run": dry_run})


def _refusal(file: str, problems: Sequence[Problem]) -> str:
    count = f"{len(problems)} problem{'s' if len(problems) > 1 else ''}"
    return "\n".join([f"{file}: refused, {count}, nothing was saved", *(f"  {each.text()}" for each in problems)])


def _table(declared: Sequence[Declared], *, dry_run: bool) -> str:
    rows = [(each.row.name, each.change, each.row.revision) for each in declared]
    told = as_table(("model", "change", "revision"), rows) if rows else "the catalog names no model"
    return f"{told}\nnothing was saved: this was a dry run" if dry_run else told
