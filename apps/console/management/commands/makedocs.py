"""Make the pages of docs/reference that are made from code, or say which of them are out of date."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from apps.console import file_reference, inventory_reference, reference
from apps.console.management import reading


class Command(BaseCommand):
    """`manage.py makedocs [--check]`."""

    help = "Make the pages of docs/reference that are made from code."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--check", action="store_true", help="write nothing; fail when a page is out of date")

    def handle(self, *args: Any, check: bool, **options: Any) -> None:
        root = Path(settings.BASE_DIR)
        pages = {**reference.PAGES, **inventory_reference.PAGES, **file_reference.PAGES, **reading.PAGES}
        made = {root / page: make() for page, make in pages.items()}
        old = [path for path, text in made.items() if not path.exists() or path.read_text("utf-8") != text]
        if check and old:
            names = ", ".join(str(path.relative_to(root)) for path in old)
            raise CommandError(f"out of date: {names}; run `make docs`")
        for path in old:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(made[path], "utf-8")
            self.stdout.write(f"made {path.relative_to(root)}")
