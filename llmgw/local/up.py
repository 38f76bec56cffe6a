"""`manage.py up`: checks everything that can be checked, starts the programs, and prepares the database beside them.

Django takes a second to load. So it is loaded in a thread, while the programs start; where the state folder says that
the tables were in order at the last start, and nothing has changed since, the programs do not wait for it either.
"""

import argparse
import asyncio
import hashlib
import os
import shlex
import sys
import threading
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, Protocol

from llmgw import logs
from llmgw.local import demo, first_words, identity, ports, programs
from llmgw.local.log import Log
from llmgw.local.programs import DATABASE, REDIS, ROOT, Wanted
from llmgw.local.runner import Program, Runner, Step
from llmgw.local.state import CONSOLE_URL, Refused, StateFolder

REFUSED: Final = 3
DEFAULT_STATE: Final = ROOT / ".state"
_LEFT_OVER_PATIENCE_S: Final = 5.0
_CHECKED: Final = "database_checked"


class Preparation(Protocol):
    """What Django does for `up`, once it is loaded."""

    def prepare_database(self) -> int | Refused:
        """Bring the tables to where the code is; return how many migrations that took."""
        ...

    def inference_key(self, state: StateFolder) -> str:
        """Return the key that belongs to this state folder."""
        ...

    def sign_in_link(self) -> str:
        """Return the path of a link that signs the operator in, once."""
        ...

    def declare_demo(self) -> bool:
        """Declare the demo's model, unless it was declared before."""
        ...

    def follow(
        self, model: str, since: float, say: Callable[..., None], answers: Callable[[], bool], stop: threading.Event
    ) -> bool:
        """Tell how a model has come up since that moment until it answers; False if we are to stop first."""
        ...


Load = Callable[[], Preparation]


# --- the command line ---------------------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what may be said."""
    parser.add_argument("--demo", action="store_true", help="serve a small model on the CPU")
    parser.add_argument("--state", metavar="DIR", help="where everything is kept (default: .state)")
    parser.add_argument("--host", default=ports.LOOPBACK, metavar="ADDR", help="what to listen on (%(default)s)")
    parser.add_argument("--port", type=int, default=8000, metavar="N", help="of the console (%(default)s)")
    parser.add_argument("--router-port", type=int, default=8080, metavar="N", help="of the router (%(default)s)")
    parser.add_argument("--redis-port", type=int, default=0, metavar="N", help="of our Redis; 0 is any free one")
    parser.add_argument("--no-node", action="store_true", help="run no node on this machine")


def main(words: list[str], load: Load) -> int:
    """Run `manage.py up` with these words; return its exit code."""
    parser = argparse.ArgumentParser(prog="manage.py up")
    add_arguments(parser)
    return run(vars(parser.parse_args(words)), load)


def run(options: Mapping[str, Any], load: Load) -> int:
    """Run until a signal; return the exit code: 0 stopped as asked, 1 failed, 3 refused."""
    log = Log(as_json=os.environ.get("LLMGW_LOG") == "json")
    os.environ.setdefault("LLMGW_LOG", "text")
    logs.configure("up")
    state = StateFolder(Path(options["state"] or os.environ.get("LLMGW_STATE") or DEFAULT_STATE))
    os.environ["LLMGW_STATE"] = str(state.path)
    wanted = Wanted(
        state,
        host=options["host"],
        console_port=options["port"],
        router_port=options["router_port"],
        redis_port=options["redis_port"],
        with_node=not options["no_node"],
        with_demo=options["demo"],
    )
    done = _run(wanted, log, dict(os.environ), load)
    if isinstance(done, Refused):
        print(f"refused: {done.what}\n  {done.cure}", file=sys.stderr)
        return REFUSED
    return done


def _run(wanted: Wanted, log: Log, given: Mapping[str, str], load: Load) -> int | Refused:
    if refused := (demo.check(given) if wanted.with_demo else None) or wanted.state.prepare():
        return refused
    held = wanted.state.hold()
    if isinstance(held, Refused):
        return held
    with held:
        _end_left_over(wanted.state, log)
        table = wanted.check() or _refusal_of_database(given) or _programs(wanted, given)
        if isinstance(table, Refused):
            return table
        wanted.state.write(CONSOLE_URL, wanted.console_url)
        _warn_if_public(wanted, log)
        errand = Errand(wanted, log, given.get("DATABASE_URL", ""), load)
        return asyncio.run(Runner(table, errand.steps(), state=wanted.state, log=log).run())


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
    return [program, *programs.ours(wanted, url, given)]


def _refusal_of_database(given: Mapping[str, str]) -> Refused | None:
    url = given.get("DATABASE_URL")
    if not url or url.startswith(("sqlite:///", "postgres://", "postgresql://")):
        return None
    what = "DATABASE_URL names no database that llmgw works with"
    return Refused(
        "database.unusable", what, "begin it with postgres://, or unset it to use a file in the state folder"
    )


def _refusal_of(url: str) -> Refused | None:
    """Ask the Redis that was named whether it is there."""
    import redis  # noqa: PLC0415  # a fifth of a second, and not needed for our own

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


# --- beside the programs ------------------------------------------------------------------------------------------


class Errand:
    """What is done once: the database, then an answer to whoever started this, then the demo."""

    def __init__(self, wanted: Wanted, log: Log, database_url: str, load: Load) -> None:
        self._wanted = wanted
        self._log = log
        self._load = load
        self._fingerprint = fingerprint(wanted.state, database_url)
        self._key = ""
        self._began = time.time()

    def steps(self) -> list[Step]:
        """Return them in order; programs wait for the database only where it may need something."""
        is_in_order = self._wanted.state.read(_CHECKED) == self._fingerprint
        name = "check" if is_in_order else DATABASE
        steps = [
            Step(name, self._database, needs=(REDIS,)),
            Step("welcome", self._welcome, needs=(name, "web", "router")),
            Step("demo", self._demo, needs=("welcome",)),
        ]
        return steps if self._wanted.with_demo else steps[:2]

    def _database(self, _: threading.Event) -> Refused | None:
        began = time.monotonic()
        self._django = self._load()
        migrated = self._django.prepare_database()
        if isinstance(migrated, Refused):
            return migrated
        if migrated:
            took = round(time.monotonic() - began, 2)
            self._log.say(f"database is ready, {migrated} migrations applied", seconds=took)
        self._wanted.state.write(_CHECKED, self._fingerprint)
        self._key = self._django.inference_key(self._wanted.state)
        return None

    def _welcome(self, _: threading.Event) -> None:
        if self._wanted.with_demo and self._django.declare_demo():
            self._log.say(f"model {demo.MODEL} declared", catalog=str(demo.CATALOG.relative_to(ROOT)))
        console, router = self._wanted.console_url, self._wanted.router_url
        link = f"{console}{self._django.sign_in_link()}"
        curl = first_words.curl(router, self._key, demo.MODEL)
        if self._log.as_json:
            self._log.answer(console=console, sign_in=link, api=f"{router}/v1", key=self._key, curl=curl)
        else:
            self._log.block(
                [
                    f"  Console   {console}/",
                    f"  Sign in   {link}   (once, within 15 minutes; `manage.py signin` makes another)",
                    f"  API       {router}/v1",
                    f"  Key       {self._key}",
                    f"  Try it    {curl}",
                    *self._elsewhere(),
                    "  Ctrl-C stops everything but the engines.",
                ]
            )

    def _elsewhere(self) -> list[str]:
        """Say how other commands find a state folder that is not the usual one."""
        folder = self._wanted.state.path
        return [] if folder == DEFAULT_STATE else [f"  Commands  export LLMGW_STATE={shlex.quote(str(folder))}"]

    def _demo(self, stopping: threading.Event) -> None:
        began = time.monotonic()

        def answers() -> bool:
            return first_words.answers(self._wanted.router_url, self._key, demo.MODEL)

        if self._django.follow(demo.MODEL, self._began, self._log.say, answers, stopping):
            took = round(time.monotonic() - began, 2)
            self._log.say(f"model {demo.MODEL} is ready: it has answered through the router", seconds=took)


def fingerprint(state: StateFolder, database_url: str) -> str:
    """Condense what decides whether the tables must be looked at before they are used."""
    there = [database_url or f"{state.path}/llmgw.sqlite3 {(state.path / 'llmgw.sqlite3').exists()}"]
    files = sorted(str(file.relative_to(ROOT)) for file in ROOT.glob("apps/*/migrations/[0-9]*.py"))
    told = repr((there, files, version("django")))
    return hashlib.sha256(told.encode()).hexdigest()
