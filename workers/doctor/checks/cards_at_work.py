"""Whether programs and links of the cards behave: dead holders, floods of errors, links whose errors rise."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from llmgw.core.hardware.findings import Severity
from llmgw.core.units import counted
from workers.discovery.nvidia import kernel_log
from workers.discovery.nvidia.kernel_log import KernelEvent, Kind, XidClass
from workers.doctor.entry import Check, Fix, Group, Outcome, Patient, failed, not_here, passed, unknown, warned
from workers.doctor.reading.kernel_log import kernel_words

_NONE: Final = "there is no NVIDIA card on this machine"
_STATE: Final = re.compile(r"\) ([A-Za-z])")
"""Behind the name in /proc/<pid>/stat, which may itself hold blanks and brackets; the last one counts."""
_HELD_BY: Final = re.compile(r"pid='?(\d+)'?(?:, name='?([^,']+))?")
_FLOOD: Final = 10
"""So many in an hour are a flood: our own limit."""
_HOUR_S: Final = 3600.0

# --- who holds a card -------------------------------------------------------------------------------------------------


def _holders(patient: Patient) -> Iterator[Outcome]:
    pids = {process.pid: process.name for gpu in patient.inventory.gpus for process in gpu.processes or ()}
    if not patient.inventory.gpus:
        yield not_here(_NONE)
    elif all(gpu.processes is None for gpu in patient.inventory.gpus):
        yield unknown("the driver does not tell which processes hold the cards")
    else:
        states = {pid: _state(patient, pid) for pid in sorted(pids)}
        dead = [outcome for pid, state in states.items() if (outcome := _dead(pid, pids[pid], state))]
        yield from dead or [passed(f"{counted(len(pids), 'holder')} of the cards, none of them dead")]


def _state(patient: Patient, pid: int) -> str | None:
    told = _STATE.findall(patient.machine.read_text(Path("/proc") / str(pid) / "stat") or "")
    return told[-1] if told else None


def _dead(pid: int, name: str | None, state: str | None) -> Outcome | None:
    called = f"process {pid} ({name})" if name else f"process {pid}"
    if state == "Z":
        return failed(f"{called} is dead and holds a card still", pid=pid)
    if state == "D":
        return warned(f"{called} holds a card and waits for the kernel", pid=pid)
    return None


# --- floods of errors -------------------------------------------------------------------------------------------------


def _floods(patient: Patient) -> Iterator[Outcome]:
    words = kernel_words(patient)
    if not patient.inventory.gpus:
        yield not_here(_NONE)
    elif words.unknown_because:
        yield unknown(f"Xid errors are not known: {words.unknown_because}")
    else:
        yield _judge_floods(kernel_log.events(words.lines))


def _judge_floods(events: tuple[KernelEvent, ...]) -> Outcome:
    of_programs = [
        (event, found)
        for event in events
        if event.kind is Kind.XID
        and kernel_log.xid_class(event.number or 0) is XidClass.APPLICATION
        and (found := _HELD_BY.search(event.literal))
    ]
    last = max((event.seconds for event, _ in of_programs if event.seconds is not None), default=0.0)
    recent = [found for event, found in of_programs if event.seconds is None or last - event.seconds <= _HOUR_S]
    worst = Counter((found[1], found[2] or "a program") for found in recent).most_common(1)
    if worst and worst[0][1] > _FLOOD:
        (pid, name), times = worst[0]
        return warned(f"{name} (pid {pid}) has caused {times} Xid errors", pid=pid, times=times)
    return passed("no program has caused many Xid errors")


# --- links ------------------------------------------------------------------------------------------------------------


def _link_errors(patient: Patient) -> Iterator[Outcome]:
    told = [(gpu, link) for gpu in patient.inventory.gpus for link in gpu.nvlinks or () if link.errors is not None]
    if not told:
        yield not_here("no card tells errors of its NVLinks")
        return
    growths = {
        f"{gpu.called} link {link.number}": patient.growth(
            f"nvlink.{gpu.uuid}.{link.number}", sum(link.errors.values())
        )
        for gpu, link in told
        if link.errors is not None
    }
    risen = {name: growth for name, growth in growths.items() if growth}
    if all(growth is None for growth in growths.values()):
        yield unknown("errors of NVLinks are judged by their growth between two runs, and this is the first")
    for name, growth in risen.items():
        yield warned(f"{name}: {counted(growth, 'error')} since the last run")
    if not risen and any(growth == 0 for growth in growths.values()):
        yield passed(f"no errors on {counted(len(growths), 'NVLink')} since the last run")


CHECKS: Final[tuple[Check, ...]] = (
    Check(
        "gpu.holders",
        Group.GPUS,
        "No dead process holds a card",
        "processes on the cards, /proc/<pid>/stat",
        "fails for a process that is a zombie, warns for one that waits in the kernel",
        "its memory is not freed before the machine is booted anew, or its parent ended",
        Fix("end its parent; where it waits in the kernel and does not come back, reboot"),
        _holders,
    ),
    Check(
        "gpu.xid-flood",
        Group.GPUS,
        "No program floods the log with Xid errors",
        "the kernel's log",
        f"warns for more than {_FLOOD} of one process within an hour, of those that are a program's own fault",
        "errors of the card are lost among them",
        Fix("restart or mend that program"),
        _floods,
        worst=Severity.WARN,
    ),
    Check(
        "topology.link-errors",
        Group.TOPOLOGY,
        "Errors of the NVLinks do not rise",
        "NVML, else `nvidia-smi nvlink -e`",
        "warns where replays, recoveries or CRC errors of a link have risen since the last run",
        "tensor parallelism over that link is slower, and may end with Xid 74",
        Fix("drain the node, reset the cards; where it comes again, have bridge, board or card replaced"),
        _link_errors,
        worst=Severity.WARN,
    ),
)
NOT_YET: Final[tuple[tuple[str, str, str], ...]] = ()
