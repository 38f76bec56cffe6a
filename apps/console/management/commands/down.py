"""Stops the `up` that runs on a state folder, and its engines if asked."""

import sys
from argparse import ArgumentParser
from typing import Any, Final

from django.conf import settings
from django.core.management.base import BaseCommand

from llmgw.local import identity
from llmgw.local.programs import stop_engines
from llmgw.local.state import StateFolder

PATIENCE_S: Final = 30.0


class Command(BaseCommand):
    """`manage.py down [--engines] [--state DIR]`."""

    help = (
        "Stop what `manage.py up` runs; engines go on unless told otherwise. "
        "Exit code 0: nothing runs any more; 1: something could not be stopped."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--engines", action="store_true", help="end the engines of this machine's node, too")
        parser.add_argument("--state", metavar="DIR", help="the state folder of that `up` (default: .state)")

    def handle(self, *args: Any, engines: bool, **options: Any) -> None:
        state = StateFolder(settings.STATE_DIR)
        stopped = self._stop(state)
        ended = self._end_engines(state) if engines and stopped else True
        sys.exit(0 if stopped and ended else 1)

    def _stop(self, state: StateFolder) -> bool:
        running = state.running()
        if running is None:
            self.stdout.write(f"no `up` runs on {state.path}")
        elif not identity.ask_to_end(running, PATIENCE_S):
            self.stderr.write(f"{running.command()} does not end; `kill -9 {running.pid}` ends it, its programs follow")
            return False
        else:
            self.stdout.write(f"stopped {running.command()}")
        for name, left in state.left_over():
            self.stdout.write(f"stopped {name}, left over: {left.command()}")
            if not identity.end(left, PATIENCE_S):
                return False
        return True

    def _end_engines(self, state: StateFolder) -> bool:
        if not state.node_settings.exists():
            self.stdout.write("no node ran here")
            return True
        done = stop_engines(state)
        self.stdout.write((done.stdout + done.stderr).rstrip())
        return done.returncode == 0
