"""What becomes of a launch that an earlier worker has begun: taken over, gone on with, or given up; never guessed."""

import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from typing import Final

from llmgw.core.hardware.findings import Finding
from llmgw.core.units import LaunchId
from llmgw.core.world import State
from workers.engines import process
from workers.engines.process import EngineProcess, Fingerprint, Gone, NotOurs
from workers.supervisor.journal import LaunchFolder, Unusable
from workers.supervisor.launch import Launch

BEFORE_ITS_PROCESS: Final = frozenset({State.PLACED, State.FETCHING, State.LAUNCHING})
_GATE_CLOSES_WITHIN: Final = 2.0
_LOOK_AGAIN: Final = 0.002


def take_up(launch: Launch, leaders: Mapping[str, int], boot_id: str) -> Finding | None:
    """Find out what is left of a launch that is not at rest, and adopt, go on, or give up.

    `leaders` are the living processes that carry a launch id in their environment.
    """
    told = launch.folder.read_pid_file()
    if isinstance(told, Unusable):
        return _leave(launch, f"pidfile.{told.what}", f"the pid file is not usable: {told.detail}", leaders)
    if told is None:
        return _without_pid_file(launch, leaders, boot_id)
    held = _past_its_gate(told, boot_id)
    if isinstance(held, NotOurs):
        return _leave(launch, f"pidfile.{held.what}", held.detail, leaders)
    _adopt_or_go_on(launch, held)
    return None


def _adopt_or_go_on(launch: Launch, held: EngineProcess | Gone) -> None:
    if isinstance(held, EngineProcess):
        launch.adopt(held)
    elif launch.state in BEFORE_ITS_PROCESS:
        return  # the worker died before the process was an engine, and it went with the worker
    else:
        launch.vanish("")


def _without_pid_file(launch: Launch, leaders: Mapping[str, int], boot_id: str) -> Finding | None:
    """Nothing runs, since no engine runs before its pid file is written. Look all the same: files can be deleted."""
    found = _fingerprint(launch, leaders.get(launch.launch_id), boot_id)
    held = _past_its_gate(found, boot_id) if found else Gone()
    if isinstance(held, NotOurs):
        return _leave(launch, "pidfile.missing", "there is no pid file", leaders)
    if found and isinstance(held, EngineProcess):
        with suppress(OSError):  # the next start of a worker finds it in the same way
            launch.folder.write_pid_file(found)
    _adopt_or_go_on(launch, held)
    return None


def _fingerprint(launch: Launch, leader: int | None, boot_id: str) -> Fingerprint | None:
    stat = process.stat_of(leader) if leader is not None else None
    if leader is None or stat is None:
        return None
    return Fingerprint(
        launch_id=launch.launch_id,
        pid=leader,
        pgid=leader,
        start_ticks=stat.start_ticks,
        boot_id=boot_id,
        argv=launch.journal.argv,
    )


def _past_its_gate(told: Fingerprint, boot_id: str) -> EngineProcess | Gone | NotOurs:
    """Take hold of a process; one that still stands at its gate is waited for: with its worker dead it ends at once."""
    deadline = time.monotonic() + _GATE_CLOSES_WITHIN
    while True:
        held = process.hold(told, boot_id)
        if not (isinstance(held, EngineProcess) and held.is_at_gate()):
            return held
        held.close()
        if time.monotonic() > deadline:
            return NotOurs("gate", f"the process with pid {told.pid} is neither an engine nor ends")
        time.sleep(_LOOK_AGAIN)


def _leave(launch: Launch, code: str, what: str, leaders: Mapping[str, int]) -> Finding:
    """Give the launch up and touch nothing."""
    leader = leaders.get(launch.launch_id)
    left = f"; process {leader} says that it belongs to this launch and was left alone" if leader else ""
    cure = f"see with `ps -fp {leader}` whether it should run" if leader else "nothing is left to do"
    text = f"{launch.folder.path}: {what}{left} – {cure}"
    launch.vanish(text)
    return Finding(code, text, launch.launch_id)


def without_folder(leaders: Mapping[str, int], kept: Collection[str]) -> Iterator[Finding]:
    """Find engines that were started here and of which no folder is left: nobody can know that they are not wanted."""
    for launch_id, leader in leaders.items():
        if launch_id not in kept:
            text = (
                f"process {leader} is the engine of launch {launch_id}, of which no journal is left; it was left alone"
                f" – see with `ps -fp {leader}`, and end it with `kill {leader}`"
            )
            yield Finding("engine.without-journal", text, LaunchId(launch_id))


def torn_journal(folder: LaunchFolder, unusable: Unusable) -> Finding:
    """Say that a launch cannot be gone on with, and that its files were left as they are."""
    text = (
        f"{folder.path}: the journal is not usable: {unusable.detail}; the folder and what may run of it were left"
        f" alone – look with `pgrep -af {folder.launch_id}` for an engine, then delete the folder"
    )
    return Finding(f"journal.{unusable.what}", text, LaunchId(folder.launch_id))
