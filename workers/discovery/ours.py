"""Tells which of the processes that hold memory of a card are engines of this node's worker, or their children."""

from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from llmgw.core.hardware.gpus import Gpu, Process
from workers.ports import Machine

_GENERATIONS: Final = 32
"""So far the parents of a process are looked at."""


class _Stat(NamedTuple):
    parent: int
    session: int


def mark(gpus: tuple[Gpu, ...], engines: AbstractSet[int], machine: Machine) -> tuple[Gpu, ...]:
    """Mark the processes that are ours; `engines` are the pids of our engines, each of which leads a session."""
    return tuple(_mark_card(gpu, engines, machine) for gpu in gpus)


def _mark_card(gpu: Gpu, engines: AbstractSet[int], machine: Machine) -> Gpu:
    instances = tuple(
        msgspec.structs.replace(instance, processes=_marked(instance.processes, engines, machine))
        for instance in gpu.instances
    )
    return msgspec.structs.replace(gpu, processes=_marked(gpu.processes, engines, machine), instances=instances)


def _marked(
    processes: tuple[Process, ...] | None, engines: AbstractSet[int], machine: Machine
) -> tuple[Process, ...] | None:
    if not processes:
        return processes
    return tuple(msgspec.structs.replace(each, ours=_is_ours(each.pid, engines, machine)) for each in processes)


def _is_ours(pid: int, engines: AbstractSet[int], machine: Machine) -> bool:
    """Climb from a process to its parents until one is an engine or lives in an engine's session."""
    for _ in range(_GENERATIONS):
        if pid in engines:
            return True
        stat = parse_stat(machine.read_text(Path(f"/proc/{pid}/stat")) or "") if engines and pid > 1 else None
        if stat is None:
            return False
        if stat.session in engines:
            return True
        pid = stat.parent
    return False


def parse_stat(text: str) -> _Stat | None:
    """Read the parent and the session from `/proc/<pid>/stat`; the name in it may hold blanks and parentheses."""
    fields = text.rpartition(")")[2].split()
    try:
        return _Stat(int(fields[1]), int(fields[3]))
    except (IndexError, ValueError):
        return None
