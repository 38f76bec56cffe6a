"""`manage.py up` and `down` as an operator uses them: real processes, a state folder of their own, free ports."""

import json
import os
import re
import shlex
import signal
import sqlite3
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

import psutil
import pytest

from llmgw.local import identity
from llmgw.local.state import StateFolder
from tests.processes import ROOT
from tests.servers import free_port

pytestmark = pytest.mark.slow
NAMES = ["redis", "web", "router", "control", "beat"]


class Up:
    """One `up` and what it said."""

    def __init__(self, processes, eventually, state: Path, **environment: str) -> None:
        self.processes = processes
        self.eventually = eventually
        self.state = StateFolder(state)
        self.out = Path(tempfile.mkstemp(".log", "up-", state.parent)[1])
        self.port, self.router_port = free_port(), free_port()
        # Ours are for the tests' own Django; what is set here is what an operator would have set.
        unset = ("DATABASE_URL", "REDIS_URL", "LLMGW_SECRET_KEY", "LLMGW_STATE", "DJANGO_SETTINGS_MODULE")
        self.environment = dict.fromkeys(unset) | environment

    def start(self, *words: str) -> "Up":
        ports = ["--port", str(self.port), "--router-port", str(self.router_port)]
        with self.out.open("wb") as out:
            words = ("up", "--state", str(self.state.path), *ports, *words)
            self.process = self.processes.manage(*words, env=self.environment, stdout=out, stderr=subprocess.STDOUT)
        return self

    def said(self) -> str:
        return self.out.read_text()

    def until(self, pattern: str) -> "re.Match[str]":
        def found():
            match = re.search(pattern, self.said())
            assert match or self.process.poll() is None, self.said()
            return match

        return self.eventually(found, timeout=60)

    def serving(self) -> "Up":
        self.until("Ctrl-C stops")
        return self

    def ended(self) -> int:
        return self.process.wait(30)

    def stop(self, number: int = signal.SIGINT) -> int:
        self.process.send_signal(number)
        return self.ended()

    def pid(self, name: str) -> int:
        known = self.eventually(lambda: identity.read(self.state.record(name)))
        return known.pid

    def get(self, path: str) -> int:
        """Return the status; 0 when nobody answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as reply:
                return int(reply.status)
        except urllib.error.HTTPError as reply:
            reply.close()
            return reply.code
        except OSError:
            return 0


@pytest.fixture
def up(processes, eventually, tmp_path):
    def make(name: str = "state", **environment: str) -> Up:
        return Up(processes, eventually, tmp_path / name, **environment)

    return make


def manage(processes, *words):
    with processes.start(
        [sys.executable, "manage.py", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as done:
        out, _ = done.communicate(timeout=60)
    return done.returncode, out.decode()


def test_a_first_start_a_second_and_the_end(up, processes):
    first = up().start("--no-node").serving()
    assert re.search(r"up +database is ready, \d+ migrations applied", first.said())
    link = first.until(r"Sign in +http://127.0.0.1:\d+(/sign-in/\w+/)")[1]
    key = first.until(r"Key +(llmgw-\w+)")[1]
    assert f"Authorization: Bearer {key}" in first.until(r"Try it +(.*)")[1]
    assert first.get("/healthz") == 200
    assert first.get(link) == 200
    assert {name for name in NAMES if psutil.pid_exists(first.pid(name))} == set(NAMES)
    assert not secrets_that_leaked(first, processes)
    assert f"http://127.0.0.1:{first.port}/sign-in/" in as_it_says(first, processes, "signin")
    assert first.stop() == 0
    assert not processes.alive(), "nothing of ours is left"

    second = up().start("--no-node").serving()
    assert "migrations applied" not in second.said()
    assert second.until(r"Key +(llmgw-\w+)")[1] == key
    assert second.until(r"Sign in +http://127.0.0.1:\d+(/sign-in/\w+/)")[1] != link
    assert second.stop(signal.SIGTERM) == 0
    assert not processes.alive()

    pretend_a_newer_migration(second.state.path / "llmgw.sqlite3")
    third = up().start("--no-node")
    assert third.ended() == 3
    assert "catalog.9999_from_the_future" in third.said()
    assert not processes.alive()


def as_it_says(started, processes, *words):
    """Run a command on the state folder as the closing block tells."""
    (folder,) = shlex.split(started.until(r"export LLMGW_STATE=(.*)")[1])
    environment = started.environment | {"LLMGW_STATE": folder}
    with processes.manage(*words, env=environment, stdout=subprocess.PIPE) as done:
        return done.communicate(timeout=60)[0].decode()


def secrets_that_leaked(started, processes):
    """Look for each secret in the log around the answer, on command lines, and in files that others may read."""
    secrets = {name: started.state.read(name) for name in ("secret_key", "redis_password", "demo_key")}
    assert all(secrets.values())
    log = started.said().partition("Console ")[0] + started.said().rpartition("Ctrl-C stops")[2]
    shown = [log, *(word for process in processes.alive() for word in process.cmdline())]
    files = [started.state.path / name for name in (*secrets, "redis_url", "redis/redis.conf")]
    open_to_others = [str(file) for file in files if file.stat().st_mode & 0o077]
    return [name for name, secret in secrets.items() if any(secret in text for text in shown)] + open_to_others


def pretend_a_newer_migration(file):
    with sqlite3.connect(file) as database:
        database.execute(
            "INSERT INTO django_migrations (app, name, applied) VALUES ('catalog', '9999_from_the_future', '2027')"
        )
    database.close()


def test_what_dies_comes_back_and_what_up_leaves_behind_ends(up, processes):
    started = up("state of mine").start().serving()
    started.until("local@llmgw ready")
    killed = started.pid("web")
    os.kill(killed, signal.SIGKILL)
    started.until(r"up +error: web was ended by SIGKILL after .* starts again in 1 s")
    started.eventually(lambda: started.get("/healthz") == 200, timeout=30)
    assert started.pid("web") != killed

    started.process.kill()
    started.process.wait()
    started.eventually(lambda: not processes.alive(), timeout=20)
    # As it would be where the kernel does not end children with their parent.
    left = processes.start(["/bin/sleep", "60"])
    known = identity.identify(left.pid)
    assert known is not None
    started.state.write_bytes(started.state.record("beat"), identity.to_json(known))
    again = up("state of mine").start("--no-node").serving()
    assert f"ending beat of an earlier start: /bin/sleep 60 (pid {left.pid})" in again.said()
    assert left.wait(5) == -signal.SIGTERM
    assert again.stop() == 0


def test_what_is_in_use_is_refused_until_down_stops_it(up, processes):
    first = up("first").start("--no-node").serving()
    state = str(first.state.path)
    second = up("first").start("--no-node")
    assert second.ended() == 3
    assert f"another `up` (pid {first.process.pid}) runs on the state folder" in second.said()
    third = up("third")
    third.port = first.port
    assert third.start("--no-node").ended() == 3
    assert f"port {first.port} on 127.0.0.1 is taken by" in third.said()
    assert f"(pid {first.pid('web')})" in third.said()
    assert re.search(r"--port \d+", third.said())

    code, said = manage(processes, "reset", "--yes", "--state", state)
    assert (code, "an `up` runs on" in said) == (3, True)
    code, said = manage(processes, "down", "--state", state)
    assert (code, f"(pid {first.process.pid})" in said) == (0, True)
    assert first.ended() == 0
    assert not processes.alive()
    assert manage(processes, "down", "--state", state)[0] == 0
    assert manage(processes, "reset", "--state", state)[0] == 2
    assert manage(processes, "reset", "--yes", "--state", state)[0] == 0
    assert not first.state.path.exists()


def test_on_a_redis_and_a_database_of_ones_own_for_others_to_reach(up, own_redis, tmp_path):
    url = f"sqlite:///{tmp_path}/elsewhere.sqlite3"
    given = {"REDIS_URL": own_redis.url, "DATABASE_URL": url, "LLMGW_LOG": "json"}
    started = up(**given).start("--no-node", "--host", "0.0.0.0")  # noqa: S104
    started.until('"event": "serving"')
    assert (tmp_path / "elsewhere.sqlite3").exists()
    assert not (started.state.path / "llmgw.sqlite3").exists()
    assert not started.state.record("redis").exists()
    with own_redis.client() as client:
        started.eventually(lambda: client.get("llmgw:tick"))
    started.stop()
    events = [json.loads(line) for line in started.said().splitlines()]
    (serving,) = [event for event in events if event["event"] == "serving"]
    assert serving["console"] == f"http://127.0.0.1:{started.port}"
    assert any(event["event"].startswith("LISTENING ON 0.0.0.0") for event in events)
    assert {"up", "router"} <= {event["process"] for event in events}


def test_what_cannot_be_reached_is_refused_without_its_password(up):
    nowhere = f"redis://:hunter22@127.0.0.1:{free_port()}/0"
    started = up(REDIS_URL=nowhere).start("--no-node")
    assert started.ended() == 3
    assert "the Redis named by REDIS_URL cannot be used" in started.said()
    database = f"postgres://llmgw:hunter22@127.0.0.1:{free_port()}/llmgw"
    other = up(DATABASE_URL=database).start("--no-node")
    assert other.ended() == 3
    assert "the database cannot be used" in other.said()
    unknown = up(DATABASE_URL="oracle://llmgw:hunter22@db/llmgw").start("--no-node")
    assert unknown.ended() == 3
    assert "DATABASE_URL names no database that llmgw works with" in unknown.said()
    assert "hunter22" not in started.said() + other.said() + unknown.said()


def test_a_newer_state_folder_is_refused(up):
    started = up()
    started.state.prepare()
    started.state.write("version", "99")
    assert started.start("--no-node").ended() == 3
    assert "has version 99" in started.said()


@pytest.mark.parametrize(("words", "code"), [(["--help"], 0), (["--no-such"], 2)])
def test_help_and_wrong_usage(words, code):
    argv = [sys.executable, "manage.py", "up", *words]
    assert subprocess.run(argv, cwd=ROOT, capture_output=True, check=False).returncode == code
