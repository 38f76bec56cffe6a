"""Runs llmgw on this machine, in the foreground, until Ctrl-C."""

import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from apps.console.management import preparation
from llmgw.local import up


class Command(BaseCommand):
    """`manage.py up [--demo] [--state DIR] [--port N] [--router-port N] [--redis-port N] [--no-node] [--host ADDR]`."""

    help = (
        "Run the console, the control worker, beat, the router, a Redis and a node on this machine, in the "
        "foreground, with one log. DATABASE_URL and REDIS_URL in the environment name a database and a Redis of yours. "
        "Exit code 0: stopped as asked; 1: failed; 2: wrong usage; 3: refused, with what to do."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        up.add_arguments(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        # `manage.py` itself comes here for `--help` only: it need not load Django before it starts the programs.
        sys.exit(up.run(options, lambda: preparation))
