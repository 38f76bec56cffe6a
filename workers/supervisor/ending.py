"""Ends the engines of a state folder that no worker holds, for a machine that is to be left as it was."""

import os
import select
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from workers.engines import process
from workers.engines.process import EngineProcess, Gone
from workers.ports import Machine
from workers.supervisor.identity import hold_folder
from workers.supervisor.journal import LaunchFolder

KILL_WAITS_S: Final = 5.0


class Outcome(NamedTuple):
    """What was done with one engine."""

    launch_id: str
    ended: bool
    text: str


def end_engines(state: Path, machine: Machine, patience_s: float) -> tuple[Outcome, ...]:
    """Ask every engine to end, then insist; one that cannot be told for certain is left alone. Raises StateHeld."""
    if not state.is_dir():
        return ()
    folder_lock = hold_folder(state)
    try:
        return tuple(_end_each(state, machine, patience_s))
    finally:
        os.close(folder_lock)


def running(state: Path, machine: Machine) -> tuple[Outcome, ...]:
    """Say which engines of a state folder run, and which may; touches nothing."""
    found = [_find(LaunchFolder(state / "launches" / name), machine.boot_id()) for name in _launches(state, machine)]
    return tuple(_let_be(each) if isinstance(each, EngineProcess) else each for each in found if each is not None)


def _let_be(engine: EngineProcess) -> Outcome:
    engine.close()
    return Outcome(engine.fingerprint.launch_id, ended=False, text=f"runs, pid {engine.pid}")


def _launches(state: Path, machine: Machine) -> tuple[str, ...]:
    return machine.names_in(state / "launches")


def _end_each(state: Path, machine: Machine, patience_s: float) -> Iterator[Outcome]:
    held: list[EngineProcess] = []
    for name in _launches(state, machine):
        found = _find(LaunchFolder(state / "launches" / name), machine.boot_id())
        if isinstance(found, Outcome):
            yield found
        elif found is not None:
            found.signal_group(signal.SIGTERM)  # all at once: each may take its time
            held.append(found)
    for engine in held:
        yield _see_off(engine, patience_s)


def _find(folder: LaunchFolder, boot_id: str) -> EngineProcess | Outcome | None:
    told = folder.read_pid_file()
    if told is None:
        return None
    if not isinstance(told, process.Fingerprint):
        return Outcome(folder.launch_id, ended=False, text=f"left alone, its pid file is not usable: {told.detail}")
    held = process.hold(told, boot_id)
    if isinstance(held, EngineProcess):
        return held
    return None if isinstance(held, Gone) else Outcome(folder.launch_id, ended=False, text=f"left alone, {held.detail}")


def _see_off(engine: EngineProcess, patience_s: float) -> Outcome:
    ended = _ends_within(engine, patience_s)
    if not ended:
        engine.signal_group(signal.SIGKILL)
        _ends_within(engine, KILL_WAITS_S)
    engine.end_leftovers()
    has_ended = engine.has_ended()
    text = ("ended" if ended else "killed" if has_ended else "does not end") + f", pid {engine.pid}"
    engine.close()
    return Outcome(engine.fingerprint.launch_id, has_ended, text)


def _ends_within(engine: EngineProcess, seconds: float) -> bool:
    poll = select.poll()
    poll.register(engine, select.POLLIN)
    return bool(poll.poll(seconds * 1000))
