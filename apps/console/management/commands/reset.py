"""Removes the state folder of an `up` that has stopped, with everything in it."""

import shutil
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from typing import Any, Final

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from llmgw.local.programs import stop_engines
from llmgw.local.state import Refused, StateFolder

REFUSED: Final = 3


class Command(BaseCommand):
    """`manage.py reset --yes [--state DIR]`."""

    help = (
        "Remove a state folder: database, keys, weights, logs. "
        "Exit code 0: it is gone; 2: `--yes` is missing; 3: refused, since something runs there or it is none of ours."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--yes", action="store_true", help="really")
        parser.add_argument("--state", metavar="DIR", help="the state folder to remove (default: .state)")

    def handle(self, *args: Any, yes: bool, **options: Any) -> None:
        state = StateFolder(settings.STATE_DIR)
        if not state.path.exists():
            self.stdout.write(f"there is no {state.path}")
            return
        if refused := next(_refusals(state), None):
            self.stderr.write(f"refused: {refused.what}\n  {refused.cure}")
            sys.exit(REFUSED)
        if not yes:
            raise CommandError(f"this removes {state.path} and all that is in it: say --yes", returncode=2)
        shutil.rmtree(state.path)
        self.stdout.write(f"removed {state.path}")


def _refusals(state: StateFolder) -> Iterator[Refused]:
    if state.read("version") is None:
        yield Refused("state.foreign", f"{state.path} is no state folder of llmgw", "name the right one with --state")
    if state.is_locked():
        cure = f"stop it first: `manage.py down --state {state.path}`"
        yield Refused("state.held", f"an `up` runs on {state.path}", cure)
    if left := [known.command() for _, known in state.left_over()]:
        yield Refused("state.in-use", f"{left[0]} still runs", f"`manage.py down --state {state.path}`")
    if state.node_settings.exists() and (told := stop_engines(state, "--dry-run")).returncode:
        what = "engines of it still run: " + "; ".join((told.stdout + told.stderr).splitlines())
        yield Refused("state.engines", what, f"end them first: `manage.py down --engines --state {state.path}`")
