"""The state folder of one `up`: one at a time, of a version we know, its secrets readable by their owner only."""

import fcntl
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from llmgw.core.units import MIB, gib
from llmgw.local import identity
from llmgw.local.identity import Identity

VERSION: Final = 1
"""Rises when an older llmgw could not work with what a newer one has written."""
LEAST_FREE: Final = 256 * MIB
CONSOLE_URL: Final = "console_url"
"""The small file that says where `up` has put the console."""


@dataclass(frozen=True, slots=True)
class Refused:
    """Why this cannot be done here, and what can."""

    code: str
    what: str
    cure: str

    def text(self) -> str:
        """Say it in one line."""
        return f"{self.what} – {self.cure}"


class StateFolder:
    """Everything that `up` keeps on this machine."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()

    # --- where things are

    @property
    def lock_file(self) -> Path:
        """Held by the `up` that runs here, and names it."""
        return self.path / "up.lock"

    @property
    def redis(self) -> Path:
        """What the bundled Redis keeps."""
        return self.path / "redis"

    @property
    def node(self) -> Path:
        """The state folder of this machine's node."""
        return self.path / "node"

    @property
    def node_settings(self) -> Path:
        """The node's settings file, written at each start."""
        return self.path / "node.toml"

    @property
    def router(self) -> Path:
        """Where the router remembers its table."""
        return self.path / "router"

    def record(self, name: str) -> Path:
        """The file that says which process runs as `name`."""
        return self.path / "run" / f"{name}.json"

    # --- whether it may be used

    def prepare(self) -> Refused | None:
        """Make the folder, or say why it cannot be used."""
        try:
            for folder in (self.path, self.path / "run", self.redis, self.node, self.router):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if refused := self._newer() or self._too_full():
                return refused
            self.write("version", str(VERSION))
        except OSError as no:
            return Refused(
                "state.not-writable",
                f"cannot write to the state folder {self.path}: {no.strerror}",
                "make it yours, or name another with --state",
            )
        return None

    def _newer(self) -> Refused | None:
        told = self.read("version") or str(VERSION)
        if told.isdecimal() and int(told) <= VERSION:
            return None
        return Refused(
            "state.newer",
            f"the state folder {self.path} has version {told[:20]}, this llmgw knows versions up to {VERSION}",
            "start it with the newer llmgw that wrote it, or name another folder with --state",
        )

    def _too_full(self) -> Refused | None:
        free = shutil.disk_usage(self.path).free
        if free >= LEAST_FREE:
            return None
        return Refused(
            "state.disk-full",
            f"{gib(free)} free where {self.path} lies, {gib(LEAST_FREE)} is the least to start with",
            "make room, or name a folder elsewhere with --state",
        )

    # --- small files

    def read(self, name: str) -> str | None:
        """Return what a small file says."""
        with suppress(OSError, UnicodeDecodeError):
            return (self.path / name).read_text("utf-8").strip()
        return None

    def write(self, name: str, text: str) -> None:
        """Write a small file whole or not at all; only its owner may read it."""
        self.write_bytes(self.path / name, f"{text}\n".encode())

    def write_bytes(self, file: Path, content: bytes) -> None:
        """Write a file whole or not at all; only its owner may read it."""
        if file.exists() and file.read_bytes() == content:
            return
        draft = file.with_name(f".{file.name}.{os.getpid()}")
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        draft.replace(file)

    def secret(self, name: str, make: Callable[[], str] = secrets.token_urlsafe) -> str:
        """Return the secret of that name, made at the first time."""
        if (kept := self.read(name)) is not None:
            return kept
        self.write(name, made := make())
        return made

    # --- what runs here

    def running(self) -> Identity | None:
        """The `up` that runs on this folder."""
        known = identity.read(self.lock_file)
        return known if known and self.is_locked() and identity.is_alive(known) else None

    def is_locked(self) -> bool:
        """Tell whether somebody holds this folder."""
        try:
            with self.lock_file.open("rb") as file:
                return not _lock(file)
        except FileNotFoundError:
            return False

    def hold(self) -> IO[bytes] | Refused:
        """Hold this folder for as long as the returned file is open."""
        file = os.fdopen(os.open(self.lock_file, os.O_RDWR | os.O_CREAT, 0o600), "r+b")
        if not _lock(file):
            file.close()
            return self._held()
        file.truncate()
        file.write(identity.to_json(_ourselves()))
        file.flush()
        return file

    def _held(self) -> Refused:
        holder = identity.read(self.lock_file)
        who = f"pid {holder.pid}" if holder else "pid unknown"
        return Refused(
            "state.held",
            f"another `up` ({who}) runs on the state folder {self.path}",
            f"use that one, stop it with `manage.py down --state {self.path}`, or name another folder with --state",
        )

    def left_over(self) -> Iterator[tuple[str, Identity]]:
        """Programs that an earlier `up` started and could not stop, each with its name."""
        for file in sorted((self.path / "run").glob("*.json")):
            known = identity.read(file)
            if known and identity.is_alive(known):
                yield file.stem, known
            else:
                file.unlink(missing_ok=True)


def _ourselves() -> Identity:
    return identity.identify(os.getpid()) or Identity(os.getpid(), 0.0, ())


def _lock(file: IO[bytes]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
