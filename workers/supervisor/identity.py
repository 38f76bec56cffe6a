"""Who this node is to its control plane: instance, session and epoch, in a state folder that one worker holds."""

import fcntl
import os
import threading
from pathlib import Path
from typing import Final, Self

import msgspec

from workers.ports import Machine
from workers.supervisor.files import read_or_none, write_atomically

_FILE: Final = "node.json"
_LOCK: Final = "worker.lock"
_SESSION_SHIFT: Final = 32
_VERSION: Final = 1


class StateRefused(Exception):
    """This worker must not use the state folder; the text says why and what to do."""


class StateHeld(StateRefused):
    """Another worker uses it."""


class StateUnreadable(StateRefused):
    """It holds something that is not ours to overwrite."""


class NodeFile(msgspec.Struct, frozen=True, kw_only=True):
    """What `node.json` says."""

    instance: str
    session: int
    epoch: int
    v: int = _VERSION


def parse_node_file(raw: bytes) -> NodeFile | None:
    """Read `node.json`; None when it is torn or of another version."""
    try:
        read = msgspec.json.decode(raw, type=NodeFile)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return read if read.v == _VERSION and read.instance else None


class Identity:
    """Open it once in a worker's life: it counts the session, and keeps the folder until `close`."""

    def __init__(self, path: Path, lock: int, told: NodeFile) -> None:
        self._path = path
        self._folder_lock = lock
        self._told = told
        self._lock = threading.Lock()
        self._reports = 0

    @classmethod
    def open(cls, state: Path, machine: Machine) -> Self:
        """Take the folder for this worker and begin a session; raises StateRefused."""
        state.mkdir(parents=True, exist_ok=True, mode=0o750)
        lock = hold_folder(state)
        path = state / _FILE
        before = read_or_none(path)
        told = (
            parse_node_file(before) if before is not None else NodeFile(instance=machine.new_id(), session=0, epoch=0)
        )
        if told is None:
            os.close(lock)
            raise StateUnreadable(
                f"{path} is torn or was written by another version of llmgw"
                f" – move it away: the node then registers as a new one and keeps the engines that run"
            )
        identity = cls(path, lock, told)
        identity._store(msgspec.structs.replace(told, session=told.session + 1))
        return identity

    @property
    def instance(self) -> str:
        """Name this state folder, for ever."""
        return self._told.instance

    @property
    def session(self) -> int:
        """Count the workers that this folder has seen."""
        return self._told.session

    @property
    def epoch(self) -> int:
        """Return the highest epoch that the control plane has told; 0 before the first."""
        return self._told.epoch

    def next_seq(self) -> int:
        """Number the next report: higher than all before, of earlier sessions too."""
        with self._lock:
            self._reports += 1
            return self.session << _SESSION_SHIFT | self._reports

    def accept_epoch(self, epoch: int) -> bool:
        """Keep an epoch if it is not lower than the one we know; False when it is."""
        with self._lock:
            if epoch > self.epoch:
                self._store(msgspec.structs.replace(self._told, epoch=epoch))
            return epoch == self.epoch

    def close(self) -> None:
        """Let another worker have the folder."""
        if self._folder_lock >= 0:
            os.close(self._folder_lock)
            self._folder_lock = -1

    def _store(self, told: NodeFile) -> None:
        write_atomically(self._path, msgspec.json.encode(told))
        self._told = told


def hold_folder(state: Path) -> int:
    """Lock the folder until the descriptor is closed; engines do not inherit the lock. Raises StateHeld."""
    path = state / _LOCK
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(descriptor, 32, 0).decode("ascii", errors="replace").strip()
        os.close(descriptor)
        raise StateHeld(
            f"{path.parent} is in use by another node worker, pid {holder or 'unknown'}"
            f" – stop that one first, or give this one a state folder of its own"
        ) from None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor
