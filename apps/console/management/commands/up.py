"""Runs llmgw on this machine, in the foreground, until Ctrl-C."""

import asyncio
import os
import sys
import threading
import time
from argparse import ArgumentParser
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import redis
from celery import current_app
from django.conf import settings
from django.core.management.base import BaseCommand
from django.db import connections

from apps.accounts import actions as accounts
from apps.console.management import preparation
from apps.console.management.following import Follower
from llmgw import logs
from llmgw.local import demo, first_words, identity, ports, programs
from llmgw.local.log import Log
from llmgw.local.programs import DATABASE, REDIS, Wanted
from llmgw.local.runner import Program, Runner, Step
from llmgw.local.state import Refused, StateFolder

REFUSED: Final = 3
_LEFT_OVER_PATIENCE_S: Final = 5.0


class Command(BaseCommand):
    """`manage.py up [--demo] [--state DIR] [--port N] [--router-port N] [--redis-port N] [--no-node] [--host ADDR]`."""

    help = (
        "Run the console, the control worker, beat, the router, a Redis and a node on this machine, in the "
        "foreground, with one log. DATABASE_URL and REDIS_URL in the environment name a database and a Redis of yours. "
        "Exit code 0: stopped as asked; 1: failed; 3: refused, with what to do."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--demo", action="store_true", help="serve a small model on the CPU")
        parser.add_argument("--state", metavar="DIR", help="where everything is kept (default: .state)")
        parser.add_argument("--host", default=ports.LOOPBACK, metavar="ADDR", help="what to listen on (%(default)s)")
        parser.add_argument("--port", type=int, default=8000, metavar="N", help="of the console (%(default)s)")
        parser.add_argument("--router-port", type=int, default=8080, metavar="N", help="of the router (%(default)s)")
        parser.add_argument("--redis-port", type=int, default=0, metavar="N", help="of our Redis; 0 is any free one")
        parser.add_argument("--no-node", action="store_true", help="run no node on this machine")

    def handle(self, *args: Any, **options: Any) -> None:
        log = Log(as_json=os.environ.get("LLMGW_LOG") == "json")
        os.environ.setdefault("LLMGW_LOG", "text")
        logs.configure("up")
        wanted = Wanted(
            StateFolder(settings.STATE_DIR),
            host=options["host"],
            console_port=options["port"],
            router_port=options["router_port"],
            redis_port=options["redis_port"],
            with_node=not options["no_node"],
        )
        done = run(wanted, log, os.environ, with_demo=options["demo"])
        if isinstance(done, Refused):
            self.stderr.write(f"refused: {done.what}\n  {done.cure}")
            sys.exit(REFUSED)
        sys.exit(done)


def run(wanted: Wanted, log: Log, given: Mapping[str, str], *, with_demo: bool) -> int | Refused:
    """Check everything that can be checked before anything is started, then run until a signal."""
    if refused := (demo.check(given) if with_demo else None) or wanted.state.prepare():
        return refused
    held = wanted.state.hold()
    if isinstance(held, Refused):
        return held
    with held:
        _end_left_over(wanted.state, log)
        if refused := wanted.check():
            return refused
        to_migrate = preparation.missing_migrations()
        if isinstance(to_migrate, Refused):
            return to_migrate
        table = _programs(wanted, given)
        if isinstance(table, Refused):
            return table
        _warn_if_public(wanted, log)
        preparing = Preparation(wanted, log, to_migrate, with_demo=with_demo)
        return asyncio.run(Runner(table, preparing.steps(), state=wanted.state, log=log).run())


def _end_left_over(state: StateFolder, log: Log) -> None:
    for name, known in state.left_over():
        log.say(f"ending {name} of an earlier start: {known.command()}", level="warning")
        identity.end(known, _LEFT_OVER_PATIENCE_S)


def _programs(wanted: Wanted, given: Mapping[str, str]) -> list[Program] | Refused:
    wanted.state.secret("secret_key")
    if url := given.get("REDIS_URL"):
        return _refusal_of(url) or programs.ours(wanted, url, given)
    binary = programs.redis_binary()
    if isinstance(binary, Refused):
        return binary
    program, url = programs.own_redis(wanted, binary)
    # For what this process itself sends.
    settings.REDIS_URL = url
    current_app.conf.update(broker_url=url)
    return [program, *programs.ours(wanted, url, given)]


def _refusal_of(url: str) -> Refused | None:
    """Ask the Redis that was named whether it is there."""
    try:
        with redis.Redis.from_url(url, socket_connect_timeout=3, socket_timeout=3) as client:
            client.ping()
    except (redis.RedisError, ValueError, OSError) as no:
        what = f"the Redis named by REDIS_URL cannot be used: {logs.redacted(str(no))}"
        return Refused("redis.unusable", what, "correct REDIS_URL, or unset it to use the bundled one")
    return None


def _warn_if_public(wanted: Wanted, log: Log) -> None:
    if not ports.is_loopback(wanted.host):
        log.say(
            f"LISTENING ON {wanted.host}: others can reach the console and the router, and nothing between you and "
            "them is encrypted. Put a proxy with TLS before it, or listen on 127.0.0.1.",
            level="warning",
        )


class Preparation:
    """What is done once, beside the programs: tables first, then the answer to whoever started this."""

    def __init__(self, wanted: Wanted, log: Log, to_migrate: preparation.Migrations, *, with_demo: bool) -> None:
        self._wanted = wanted
        self._log = log
        self._to_migrate = to_migrate
        self._with_demo = with_demo
        self._key = ""

    def steps(self) -> list[Step]:
        """Return them in order."""
        steps = [
            Step(DATABASE, self._database, needs=(REDIS,)),
            Step("welcome", self._welcome, needs=("web", "router")),
            Step("demo", self._demo, needs=("welcome",)),
        ]
        return steps if self._with_demo else steps[:2]

    def _database(self, _: threading.Event) -> None:
        began = time.monotonic()
        if self._to_migrate:
            preparation.migrate()
            took = round(time.monotonic() - began, 2)
            self._log.say(f"{len(self._to_migrate)} migrations applied to the database", seconds=took)
        self._key = preparation.inference_key(self._wanted.state, datetime.now(UTC))
        connections.close_all()

    def _welcome(self, _: threading.Event) -> None:
        now = datetime.now(UTC)
        link = accounts.sign_in_link(accounts.ensure_operator(now=now), now=now)
        if self._with_demo and preparation.declare_demo(now):
            self._log.say(f"model {demo.MODEL} declared", catalog=str(_from_here(demo.CATALOG)))
        connections.close_all()
        console, router = self._wanted.console_url, self._wanted.router_url
        self._log.block(
            [
                f"  Console   {console}/",
                f"  Sign in   {console}/sign-in/{link}/   (once, within 15 minutes)",
                f"  API       {router}/v1",
                f"  Key       {self._key}",
                f"  Try it    {first_words.curl(router, self._key, demo.MODEL)}",
                "  Ctrl-C stops everything but the engines.",
            ]
        )

    def _demo(self, stopping: threading.Event) -> None:
        began = time.monotonic()
        router = self._wanted.router_url
        follower = Follower(demo.MODEL, self._log.say, lambda: first_words.answers(router, self._key, demo.MODEL))
        if follower.follow(stopping):
            took = round(time.monotonic() - began, 2)
            self._log.say(f"model {demo.MODEL} is ready: it has answered through the router", seconds=took)
        connections.close_all()


def _from_here(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
