"""Checks of main memory: its errors, what is left of it, and what had to be ended for want of it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from llmgw.core.hardware.findings import Severity
from llmgw.core.units import counted, gib
from workers.doctor.entry import Check, Fix, Group, Outcome, Patient, failed, not_here, passed, unknown, warned
from workers.doctor.reading.host import is_virtual
from workers.doctor.reading.procfs import parse_counts
from workers.doctor.reading.words import whole

_CONTROLLERS: Final = Path("/sys/devices/system/edac/mc")
_MEMINFO: Final = Path("/proc/meminfo")
_VMSTAT: Final = Path("/proc/vmstat")
_TIGHT: Final = 0.1
_MUCH_SWAPPED: Final = 0.25
_THRASHING_PAGES_PER_S: Final = 1000


def _errors(patient: Patient) -> Iterator[Outcome]:
    machine = patient.machine
    names = [name for name in machine.names_in(_CONTROLLERS) if name.startswith("mc")]
    for name in names:
        counts = [whole(machine.read_text(_CONTROLLERS / name / f"{kind}_count")) for kind in ("ce", "ue")]
        yield _judge_controller(patient, name, *counts)
    if not names and is_virtual(machine):
        yield not_here("a virtual machine sees no errors of memory")
    elif not names:
        yield unknown("errors of memory are not told: no EDAC driver is loaded for this machine's memory controller")


def _judge_controller(patient: Patient, name: str, corrected: int | None, uncorrected: int | None) -> Outcome:
    if corrected is None or uncorrected is None:
        return unknown(f"the errors of memory controller {name} could not be read")
    growth = patient.growth(f"edac.{name}.corrected", corrected)
    facts: dict[str, Any] = {"corrected": corrected, "uncorrected": uncorrected}
    if uncorrected:
        return failed(f"memory controller {name} has seen {counted(uncorrected, 'uncorrected error')}", **facts)
    if growth:
        return warned(f"memory controller {name} has corrected {counted(growth, 'error')} since the last run", **facts)
    if growth is None and corrected:
        text = f"{counted(corrected, 'error')} corrected since boot by {name}; compared at the next run"
        return unknown(text, **facts)
    return passed(f"memory controller {name} has seen no new errors", **facts)


def _killed(patient: Patient) -> Iterator[Outcome]:
    total = _vmstat(patient).get("oom_kill")
    if total is None:
        yield unknown("how often the kernel ended processes for want of memory is not told")
        return
    growth = patient.growth("kernel.oom-kills", total)
    many = total if growth is None else growth
    since = "since boot" if growth is None else "since the last run"
    if many:
        yield warned(f"{many} {'process' if many == 1 else 'processes'} ended for want of memory {since}", killed=many)
    else:
        yield passed(f"no process was ended for want of memory {since}")


def _available(patient: Patient) -> Iterator[Outcome]:
    available, total = patient.inventory.memory_available, patient.inventory.memory_total
    if available is None or not total:
        yield unknown("how much memory is available is not told")
        return
    text = f"{gib(available)} of {gib(total)} of memory available"
    if available < min(patient.settings.memory_reserve_bytes, total * _TIGHT):
        yield failed(text)
    else:
        yield warned(text) if available < total * _TIGHT else passed(text)


def _swap(patient: Patient) -> Iterator[Outcome]:
    memory, stat = parse_counts(patient.machine.read_text(_MEMINFO) or ""), _vmstat(patient)
    total, free = memory.get("SwapTotal"), memory.get("SwapFree")
    if total is None or free is None:
        yield unknown("how much is swapped out is not told")
        return
    moved = [patient.growth(f"kernel.{name}", stat[name]) for name in ("pswpin", "pswpout") if name in stat]
    per_s = sum(pages or 0 for pages in moved) / max(1.0, patient.now - (patient.earlier_at or patient.now))
    text = f"{gib(total - free)} of {gib(total)} of swap in use"
    if per_s > _THRASHING_PAGES_PER_S:
        yield failed(f"{text}, and {counted(round(per_s), 'page')} a second go in and out", pages_per_s=per_s)
    elif total and (total - free) > _MUCH_SWAPPED * total:
        yield warned(text)
    else:
        yield passed(text if total else "there is no swap")


def _vmstat(patient: Patient) -> dict[str, int]:
    return parse_counts(patient.machine.read_text(_VMSTAT) or "")


CHECKS: Final[tuple[Check, ...]] = (
    Check(
        id="kernel.memory-errors",
        group=Group.KERNEL,
        title="Main memory has no errors",
        reads="/sys/devices/system/edac/mc/mc*/{ce,ue}_count",
        rule="Fails for any that could not be corrected; warns where corrected ones grow.",
        costs="Wrong results, crashes, and soon a module that fails.",
        fix=Fix("Drain the node and change the module; `edac-util -v` and the kernel's log name it."),
        judge=_errors,
    ),
    Check(
        id="kernel.oom-kills",
        group=Group.KERNEL,
        title="The kernel has ended no process for want of memory",
        reads="/proc/vmstat (oom_kill)",
        rule="By growth, at the first run since boot: any warns.",
        costs="An engine that is ended so dies with -9 in the middle of its requests.",
        fix=Fix("Plan less on the CPU here, or raise memory_reserve_bytes in the node's settings."),
        judge=_killed,
        worst=Severity.WARN,
    ),
    Check(
        id="kernel.memory-available",
        group=Group.KERNEL,
        title="Main memory is left",
        reads="/proc/meminfo (MemAvailable), cut by the worker's control groups",
        rule="Warns below a tenth of memory, fails below what the settings keep free (memory_reserve_bytes).",
        costs="Weights are read from the disk again and again, or something is ended for want of memory.",
        fix=Fix("See what uses it (`ps aux --sort -rss`); run fewer engines on the CPU."),
        judge=_available,
    ),
    Check(
        id="kernel.swap",
        group=Group.KERNEL,
        title="Nothing that works is swapped out",
        reads="/proc/meminfo (Swap*), /proc/vmstat (pswpin, pswpout)",
        rule="Warns above a quarter of the swap in use; fails above a thousand pages a second in and out.",
        costs="Engines stop for the disk.",
        fix=Fix("Free memory; then `swapoff -a && swapon -a` brings back what is out."),
        judge=_swap,
    ),
)
