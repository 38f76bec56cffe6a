"""Starts an engine behind a gate, knows it again after a restart, and ends it and nobody else.

An engine leads a session and a process group of its own, so that it outlives the worker. It must never run unknown:
its process first waits at a gate, a shell that reads one line, until the worker has written down who it is. A worker
that dies before leaves a closed pipe, and the process ends by itself.
"""

import os
import select
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

PID_FILE_VERSION: Final = 1
LAUNCH_ID: Final = "LLMGW_LAUNCH_ID"
"""In every engine's environment: which launch it belongs to."""
GATE: Final = ("/bin/sh", "-c", 'read -r go || exit 111; exec "$@" </dev/null', "llmgw-gate")
GATE_CLOSED: Final = 111
NEVER_RAN: Final = frozenset({GATE_CLOSED, 126, 127})
"""How the gate's shell ends when it was not opened, or when there is no such program."""
_PROC: Final = Path("/proc")


class Fingerprint(msgspec.Struct, frozen=True, kw_only=True):
    """Who an engine's process is: what the pid file says."""

    launch_id: str
    pid: int
    pgid: int
    start_ticks: int
    """When it started, in the kernel's clock ticks since boot: no later process of this pid has the same."""
    boot_id: str
    argv: tuple[str, ...]
    """What is executed, once the gate is open."""
    v: int = PID_FILE_VERSION


class Stat(NamedTuple):
    """What `/proc/<pid>/stat` says, as far as it matters here."""

    state: str
    pgrp: int
    session: int
    start_ticks: int

    @property
    def is_alive(self) -> bool:
        """A zombie has ended; only its exit code is still there."""
        return self.state not in {"Z", "X", "x"}


def parse_stat(text: str) -> Stat | None:
    """Read `/proc/<pid>/stat`; the command's name in it may hold blanks and parentheses."""
    fields = text.rpartition(")")[2].split()
    try:
        return Stat(fields[0], int(fields[2]), int(fields[3]), int(fields[19]))
    except (IndexError, ValueError):
        return None


def stat_of(pid: int) -> Stat | None:
    """Return how a process is; None when there is none."""
    try:
        return parse_stat((_PROC / str(pid) / "stat").read_text("utf-8", errors="replace"))
    except OSError:
        return None


def argv_of(pid: int) -> tuple[str, ...]:
    """Return a process's command line; empty when it is gone or a zombie."""
    return _zero_separated(_PROC / str(pid) / "cmdline")


def launch_id_of(pid: int) -> str | None:
    """Return the launch that a process was started for, by its environment."""
    mark = f"{LAUNCH_ID}="
    entries = _zero_separated(_PROC / str(pid) / "environ")
    return next((entry.removeprefix(mark) for entry in entries if entry.startswith(mark)), None)


def pids() -> Iterator[int]:
    """List the processes of this machine."""
    return (int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit())


def leaders_by_launch(folders: Path) -> dict[str, int]:
    """Find every living engine that was started in one of these folders: launch id → pid of the group's leader.

    Its environment says which launch it belongs to, and where it stands whose: a machine may have several nodes.
    """
    found = {}
    for pid in pids():
        launch_id = launch_id_of(pid)
        stat = stat_of(pid) if launch_id else None
        if launch_id and stat and stat.is_alive and stat.session == pid and _stands_in(pid, folders / launch_id):
            found[launch_id] = pid
    return found


def _stands_in(pid: int, folder: Path) -> bool:
    """Tell whether it stands in a folder, which may have been deleted since."""
    try:
        told = str((_PROC / str(pid) / "cwd").readlink())
    except OSError:
        return False
    return Path(told.removesuffix(" (deleted)")) == folder.resolve()


def _zero_separated(path: Path) -> tuple[str, ...]:
    try:
        raw = path.read_bytes()
    except OSError:
        return ()
    return tuple(os.fsdecode(part) for part in raw.removesuffix(b"\0").split(b"\0")) if raw else ()


def runs(shown: Sequence[str], argv: Sequence[str]) -> bool:
    """Tell whether a process that shows this command line executes `argv`.

    The arguments decide: for a program that is a script, the kernel puts its interpreter in front.
    """
    arguments = tuple(argv[1:]) or tuple(argv)
    return tuple(shown[-len(arguments) :]) == arguments and not is_at_gate(shown)


def is_at_gate(shown: Sequence[str]) -> bool:
    """Tell whether a process that shows this command line still waits to become the engine."""
    return tuple(shown[: len(GATE)]) == GATE


class _Child(subprocess.Popen[bytes]):
    """A child that is meant to outlive this object and this process: nobody waits for it here, and nobody complains."""

    def __del__(self) -> None:
        """Leave it alone."""


class End(NamedTuple):
    """How a process ended; both None when it was not our child, so that nobody told us."""

    exit_code: int | None = None
    signal: int | None = None

    def text(self) -> str:
        """Say it in a few words."""
        if self.signal is not None:
            return f"ended by {_signal_name(self.signal)}"
        return "ended, exit code unknown" if self.exit_code is None else f"ended with exit code {self.exit_code}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class Gone(NamedTuple):
    """No living process has the fingerprint's pid."""


class NotOurs(NamedTuple):
    """A living process has the fingerprint's pid and is another one: it is left alone."""

    what: str
    """What does not match: `boot-id`, `start-time`, `argv`."""
    detail: str


class EngineProcess:
    """An engine whose identity was proved, held by a descriptor that the kernel never gives to another process."""

    def __init__(self, fingerprint: Fingerprint, descriptor: int) -> None:
        self.fingerprint = fingerprint
        self._descriptor = descriptor

    @property
    def pid(self) -> int:
        return self.fingerprint.pid

    def fileno(self) -> int:
        """Readable once the process has ended: for `poll`."""
        return self._descriptor

    def has_ended(self) -> bool:
        """Tell whether it has ended, without waiting."""
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        return bool(poll.poll(0))

    def is_at_gate(self) -> bool:
        """Tell whether it has not become the engine yet."""
        return is_at_gate(argv_of(self.pid))

    def signal_group(self, number: int) -> None:
        """Send a signal to the engine and its children, if it still lives."""
        if not self.has_ended():
            with suppress(ProcessLookupError):
                os.killpg(self.fingerprint.pgid, number)

    def members(self) -> Iterator[int]:
        """List the living processes of its group, the leader left out."""
        for pid in pids():
            stat = stat_of(pid)
            if stat and stat.is_alive and pid != self.pid and stat.pgrp == self.fingerprint.pgid == stat.session:
                yield pid

    def group(self) -> Iterator[int]:
        """List the engine and its group; most engines are one process, so the rest is looked for last."""
        yield self.pid
        yield from self.members()

    def end_leftovers(self) -> int:
        """After the leader's end, kill what it left behind; return how many that were.

        A group's number is not given away while the group has members. So if nobody lives under the leader's pid,
        or only the leader, a group of that number is the one that we made.
        """
        leader = stat_of(self.pid)
        if leader and leader.is_alive and leader.start_ticks != self.fingerprint.start_ticks:
            return 0
        ended: set[int] = set()
        while left := [pid for pid in self.members() if pid not in ended]:
            for pid in left:
                self._kill_member(pid)
            ended.update(left)
        return len(ended)

    def _kill_member(self, pid: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            descriptor = os.pidfd_open(pid)
            try:
                stat = stat_of(pid)  # asked again: now it cannot be replaced by another process
                if stat and stat.pgrp == self.fingerprint.pgid:
                    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            finally:
                os.close(descriptor)

    def end(self) -> End:
        """Take its exit code, once it has ended; only its parent is told."""
        try:
            told = os.waitid(os.P_PIDFD, self._descriptor, os.WEXITED | os.WNOHANG)
        except ChildProcessError:
            return End()
        if told is None:
            return End()
        return End(exit_code=told.si_status) if told.si_code == os.CLD_EXITED else End(signal=told.si_status)

    def close(self) -> None:
        """Let go of the descriptor; the process is not touched."""
        os.close(self._descriptor)


@dataclass(frozen=True, slots=True)
class AtGate:
    """A child that has started and is not an engine yet."""

    pid: int
    start_ticks: int
    descriptor: int
    gate: int

    def release(self, fingerprint: Fingerprint) -> EngineProcess:
        """Let it become the engine."""
        with suppress(BrokenPipeError):  # somebody has killed it: its end will be seen
            os.write(self.gate, b"go\n")
        os.close(self.gate)
        return EngineProcess(fingerprint, self.descriptor)

    def discard(self) -> None:
        """End it at its closed gate."""
        os.close(self.gate)
        with suppress(ChildProcessError):
            os.waitid(os.P_PIDFD, self.descriptor, os.WEXITED)
        os.close(self.descriptor)


def spawn(argv: Sequence[str], environment: Mapping[str, str], folder: Path, log: Path) -> AtGate:
    """Start a process that will execute `argv`, with its output appended to `log`; raises OSError."""
    there, here = os.pipe()
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
    try:
        child = _Child(
            (*GATE, *argv),
            stdin=there,
            stdout=output,
            stderr=output,
            env=dict(environment),
            cwd=folder,
            start_new_session=True,
        )
        # Nobody has waited for the child: even if it has ended, its pid is still its own.
        descriptor = os.pidfd_open(child.pid)
    except OSError:
        os.close(here)
        raise
    finally:
        os.close(there)
        os.close(output)
    stat = stat_of(child.pid)
    return AtGate(child.pid, stat.start_ticks if stat else 0, descriptor, here)


def hold(fingerprint: Fingerprint, boot_id: str) -> EngineProcess | Gone | NotOurs:
    """Take hold of the process that a fingerprint names, if it is really that one."""
    if fingerprint.boot_id != boot_id:
        return NotOurs("boot-id", f"it was written before the machine's last start (boot {fingerprint.boot_id})")
    try:
        descriptor = os.pidfd_open(fingerprint.pid)
    except OSError:  # gone, or a number that no process can have
        return Gone()
    # The descriptor is open first: what is read after this is read of that process, or of nobody.
    found = _compare(fingerprint, stat_of(fingerprint.pid), argv_of(fingerprint.pid))
    if found is None:
        return EngineProcess(fingerprint, descriptor)
    os.close(descriptor)
    return found


def _compare(fingerprint: Fingerprint, stat: Stat | None, shown: tuple[str, ...]) -> Gone | NotOurs | None:
    if stat is None or not stat.is_alive:
        return Gone()
    if stat.start_ticks != fingerprint.start_ticks:
        return NotOurs("start-time", f"the process with pid {fingerprint.pid} started at another time")
    if not (runs(shown, fingerprint.argv) or shown == (*GATE, *fingerprint.argv)):
        return NotOurs("argv", f"the process with pid {fingerprint.pid} has another command line") if shown else Gone()
    return None
