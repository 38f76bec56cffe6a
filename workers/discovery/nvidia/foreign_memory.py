"""Finds memory of a card that is held by nobody of ours, and says by whom where the driver does."""

from collections.abc import Iterator, Sequence
from typing import Final

from llmgw.core.hardware.findings import Severity
from llmgw.core.hardware.gpus import Gpu, MigInstance, Process
from llmgw.core.units import GIB, MIB, gib

_FLOOR: Final = 500 * MIB
"""Less than this an idle driver, a display or a monitor holds."""
_FLOOR_WITH_RESERVE: Final = 1536 * MIB
"""The same where the driver's own share is not told apart, and in virtual cards."""
_MUCH: Final = 2 * GIB
_MOST_NAMED: Final = 3

Held = tuple[str, Severity, str]
"""What it is about (a UUID), how bad it is, and in words."""


def held_by_others(gpu: Gpu) -> Iterator[Held]:
    """Return what others hold of a card, or of each of its instances."""
    if gpu.memory_is_unified:
        return
    if gpu.instances:
        for part in gpu.instances:
            yield from _held(part.uuid, part.memory_used_bytes, _of_part(gpu, part), _FLOOR, f"MIG {part.slot}")
        return
    is_plain = gpu.memory_reserved_bytes is not None and gpu.virtualization != "vgpu"
    floor = _FLOOR if is_plain else _FLOOR_WITH_RESERVE
    yield from _held(gpu.uuid, gpu.memory_used_bytes, gpu.processes, floor, "")


def _of_part(gpu: Gpu, part: MigInstance) -> Sequence[Process] | None:
    """Return the processes of an instance: its own list, else those of the card that name it."""
    if part.processes is not None or gpu.processes is None:
        return part.processes
    return [process for process in gpu.processes if process.gpu_instance_id == part.gpu_instance_id]


def _held(
    uuid: str | None, used: int | None, processes: Sequence[Process] | None, floor: int, called: str
) -> Iterator[Held]:
    ours = [process for process in processes or () if process.ours]
    if uuid is None or used is None or any(process.memory_bytes is None for process in ours):
        return  # how much of it is ours is not told, so neither is the rest
    rest = used - sum(process.memory_bytes or 0 for process in ours)
    # Of what an engine of ours holds the driver counts a part to no process.
    if rest < floor + (GIB if ours else 0):
        return
    severity = Severity.FAIL if rest >= _MUCH else Severity.WARN
    where = f"{called}: " if called else ""
    yield uuid, severity, f"{where}{gib(rest)} of memory are held by {_whom(processes)}"


def _whom(processes: Sequence[Process] | None) -> str:
    others = [process for process in processes or () if not process.ours]
    if processes is None:
        return "whom the driver does not say"
    if not others:
        return "nobody that is listed: a process that is dead, of another container, or of MPS"
    named = sorted(others, key=lambda process: -(process.memory_bytes or 0))[:_MOST_NAMED]
    more = "" if len(others) <= _MOST_NAMED else f" and {len(others) - _MOST_NAMED} more"
    return ", ".join(_words(process) for process in named) + more


def _words(process: Process) -> str:
    held = "unknown" if process.memory_bytes is None else gib(process.memory_bytes)
    return f"pid {process.pid} ({process.name or 'no name told'}, {held})"
