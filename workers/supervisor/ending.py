"""Ends the engines of a state folder that no worker holds, for a machine that is to be left as it was.

Each launch's journal is told that the end was asked for, so that the next worker reports it as stopped, not as failed.
"""

import os
import select
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from llmgw.core import lifecycle
from llmgw.core.lifecycle import Happened, NotAllowed
from llmgw.core.wire import Step
from workers.engines import process
from workers.engines.process import EngineProcess, Gone
from workers.ports import Machine
from workers.supervisor.identity import hold_folder
from workers.supervisor.journal import Journal, LaunchFolder

KILL_WAITS_S: Final = 5.0
ASKED: Final = "stopped on the machine by the operator"


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
    held: list[tuple[LaunchFolder, EngineProcess]] = []
    for name in _launches(state, machine):
        folder = LaunchFolder(state / "launches" / name)
        found = _find(folder, machine.boot_id())
        if isinstance(found, Outcome):
            yield found
        elif found is not None:
            _note(folder, Happened.STOP_ASKED, ASKED, machine)  # first, so that an end is never without its reason
            found.signal_group(signal.SIGTERM)  # all at once: each may take its time
            held.append((folder, found))
    for folder, engine in held:
        outcome = _see_off(engine, patience_s)
        if outcome.ended:
            _note(folder, Happened.EXITED, outcome.text, machine)
        yield outcome


def _note(folder: LaunchFolder, happened: Happened, why: str, machine: Machine) -> None:
    """Write it down for the next worker, as a worker would have; whoever wants an engine ended gets that anyway."""
    told = folder.read_journal()
    if not isinstance(told, Journal) or told.state in lifecycle.AT_REST:
        return
    after = lifecycle.after(told.state, happened)
    if isinstance(after, NotAllowed):
        return
    steps = (*told.steps, Step(happened, machine.now(), why))
    with suppress(OSError):
        folder.write_journal(msgspec.structs.replace(told, state=after, steps=steps), durable=True)


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
