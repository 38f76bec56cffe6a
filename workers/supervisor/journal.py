"""What the state folder holds of a launch: journal, pid file and log, and a tombstone when all that is gone."""

import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from llmgw.core.lifecycle import Happened
from llmgw.core.units import LaunchId, OrderId, Seconds
from llmgw.core.wire import Failure, LaunchOrder, Step
from llmgw.core.world import State
from workers.engines.process import PID_FILE_VERSION, Fingerprint
from workers.ports import Machine
from workers.supervisor import logfile
from workers.supervisor.files import read_or_none, write_atomically

VERSION: Final = 1
TOMBSTONE_LASTS: Final = Seconds(7 * 86400.0)
_Kind = TypeVar("_Kind")
_SAFE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class Stop(msgspec.Struct, frozen=True):
    """That this launch is to end."""

    orders: tuple[OrderId, ...]
    asked_at: Seconds
    until: Seconds
    """It may finish its requests until then."""


class Journal(msgspec.Struct, frozen=True, kw_only=True):
    """All that a worker must know to go on with a launch that another one has begun."""

    order: LaunchOrder
    state: State = State.PLACED
    steps: tuple[Step, ...] = ()
    listen: str | None = None
    """The host that the engine was told to listen on."""
    port: int | None = None
    argv: tuple[str, ...] = ()
    failure: Failure | None = None
    stop: Stop | None = None
    v: int = VERSION

    @property
    def launch_id(self) -> LaunchId:
        return self.order.launch_id

    def first(self, happened: Happened) -> Seconds | None:
        """Return when that happened for the first time; None while it has not."""
        return next((step.at for step in self.steps if step.happened is happened), None)


class Tombstone(msgspec.Struct, frozen=True, kw_only=True):
    """A launch that must not be begun any more."""

    launch_id: LaunchId
    at: Seconds
    v: int = VERSION


@dataclass(frozen=True, slots=True)
class Unusable:
    """A file that is there and says nothing we may act on."""

    what: str
    """`torn` or `version`."""
    detail: str


class _AnyVersion(msgspec.Struct):
    v: int


def parse_journal(raw: bytes, launch_id: str) -> Journal | Unusable:
    """Read `launch.json` of the folder that is named after `launch_id`."""
    read = _parse(raw, Journal, VERSION)
    if isinstance(read, Journal) and read.launch_id != launch_id:
        return Unusable("torn", f"it is about launch {read.launch_id}")
    return read


def parse_pid_file(raw: bytes, launch_id: str) -> Fingerprint | Unusable:
    """Read `pid.json`; a pid that no engine of ours can have makes it torn, since signals would go by it."""
    read = _parse(raw, Fingerprint, PID_FILE_VERSION)
    if isinstance(read, Unusable):
        return read
    if read.launch_id != launch_id:
        return Unusable("torn", f"it is about launch {read.launch_id}")
    if read.pid < 2 or read.pgid != read.pid or not read.argv:
        return Unusable("torn", f"pid {read.pid}, process group {read.pgid} cannot be an engine's")
    return read


def _parse(raw: bytes, kind: type[_Kind], version: int) -> _Kind | Unusable:
    try:
        told = msgspec.json.decode(raw, type=_AnyVersion).v
        if told != version:
            return Unusable("version", f"it is of version {told}, this worker reads version {version}")
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return Unusable("torn", str(error))


def _read(path: Path, parse: Callable[[bytes], _Kind | Unusable]) -> _Kind | Unusable | None:
    try:
        raw = read_or_none(path)
    except OSError as error:
        return Unusable("torn", f"it cannot be read: {error.strerror}")
    return None if raw is None else parse(raw)


def is_safe_name(launch_id: str) -> bool:
    """Tell whether a launch id can name a folder."""
    return _SAFE_NAME.fullmatch(launch_id) is not None


class LaunchFolder:
    """The files of one launch."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.log = path / "engine.log"
        self._journal = path / "launch.json"
        self._pid_file = path / "pid.json"

    @property
    def launch_id(self) -> LaunchId:
        return LaunchId(self.path.name)

    def create(self, journal: Journal) -> None:
        """Make the folder with its journal; raises OSError."""
        self.path.mkdir(parents=True, exist_ok=True, mode=0o750)
        self.write_journal(journal, durable=True)

    def write_journal(self, journal: Journal, *, durable: bool) -> None:
        """Replace the journal; raises OSError."""
        write_atomically(self._journal, msgspec.json.encode(journal), durable=durable)

    def read_journal(self) -> Journal | Unusable | None:
        """Read the journal; None when there is none."""
        return _read(self._journal, lambda raw: parse_journal(raw, self.launch_id))

    def write_pid_file(self, fingerprint: Fingerprint) -> None:
        """Write down who the engine is; raises OSError."""
        write_atomically(self._pid_file, msgspec.json.encode(fingerprint))

    def read_pid_file(self) -> Fingerprint | Unusable | None:
        """Read the pid file; None when there is none."""
        return _read(self._pid_file, lambda raw: parse_pid_file(raw, self.launch_id))

    def delete_logs(self) -> None:
        """Remove what the engine has printed; what cannot be removed is left."""
        for log in (self.log, logfile.older(self.log)):
            with suppress(OSError):
                log.unlink(missing_ok=True)

    def delete(self) -> None:
        """Remove all of it; what cannot be removed is left."""
        shutil.rmtree(self.path, ignore_errors=True)


class Tombstones:
    """The launches that must not be begun any more, because they were stopped first or are forgotten."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._buried: dict[str, Seconds] = {}

    def read(self, now: Seconds) -> None:
        """Read them from the disk; those that are old enough, and those that cannot be read, are removed."""
        for path in self._folder.glob("*.json"):
            stone = _parse(read_or_none(path) or b"", Tombstone, VERSION)
            if isinstance(stone, Tombstone) and now - stone.at < TOMBSTONE_LASTS:
                self._buried[stone.launch_id] = stone.at
            else:
                path.unlink(missing_ok=True)

    def add(self, launch_id: LaunchId, now: Seconds) -> None:
        """Keep a launch from being begun, and let go of those that were old enough; raises OSError."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o750)
        self._drop_old(now)
        stone = Tombstone(launch_id=launch_id, at=now)
        write_atomically(self._path(launch_id), msgspec.json.encode(stone))
        self._buried[launch_id] = now

    def _drop_old(self, now: Seconds) -> None:
        for launch_id in [one for one, at in self._buried.items() if now - at >= TOMBSTONE_LASTS]:
            del self._buried[launch_id]
            self._path(launch_id).unlink(missing_ok=True)

    def _path(self, launch_id: str) -> Path:
        return self._folder / f"{launch_id}.json"

    def __contains__(self, launch_id: object) -> bool:
        return launch_id in self._buried


def engines_of(machine: Machine, state: Path) -> frozenset[int]:
    """Return the pids in a state folder's pid files, for whoever has no worker to ask; torn ones are left out."""
    folder = state / "launches"
    found = (
        parse_pid_file((machine.read_text(folder / name / "pid.json") or "").encode(), name)
        for name in machine.names_in(folder)
    )
    return frozenset(each.pid for each in found if not isinstance(each, Unusable))
