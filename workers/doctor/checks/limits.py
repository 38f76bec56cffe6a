"""Checks of what the system allows the worker's unit, and with it every engine: these are not the shell's limits."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from llmgw.core.hardware.findings import Severity
from llmgw.core.units import GIB, counted, gib
from workers.discovery import cgroups
from workers.doctor.checks.adapters import hardware_ports
from workers.doctor.entry import Check, Fix, Group, Outcome, Patient, Verdict, failed, passed, unknown, warned
from workers.doctor.reading import units
from workers.doctor.reading.procfs import Limit
from workers.doctor.reading.words import whole

_SHM: Final = Path("/dev/shm")  # noqa: S108 – engines put their shared memory there
_LEAST_FILES: Final = 4096
_FILES: Final = 65536
_PROCESSES: Final = 16384
_STACK: Final = 8 * 1024**2
_LEAST_SHM: Final = GIB
_SHM_BYTES: Final = 16 * GIB
_LEAST_TASKS: Final = 4096
_UNLIMITED: Final = 2**60
"""Version 1 of control groups says a number near 2**63 for no limit."""
_ENGINES_OF_SEVERAL_PROCESSES: Final = 2

# --- limits of processes ----------------------------------------------------------------------------------------------

Rule = Callable[[Patient, Limit], tuple[Verdict, str]]
"""Judges a limit: what it comes to, and the limit in words."""


def _judge(name: str, rule: Rule) -> Callable[[Patient], Iterator[Outcome]]:
    """Make a check of one limit of the unit; of this process where there is no unit, and then it is a hint alone."""

    def judge(patient: Patient) -> Iterator[Outcome]:
        told = units.limits(patient)
        limit = told.limits.get(name)
        if limit is None:
            yield unknown(f"{name.lower()} of {told.whose} could not be read")
            return
        verdict, words = rule(patient, limit)
        if told.counts:
            yield Outcome(verdict, f"{told.whose} may have {words}")
        else:
            yield _hint(verdict, f"{told.why_not}; this process may have {words}")

    return judge


def _hint(verdict: Verdict, text: str) -> Outcome:
    """Say what is true of this process and may not be of the worker: never well, and never certainly broken."""
    return unknown(text) if verdict is Verdict.PASS else warned(text)


def _memlock(patient: Patient, limit: Limit) -> tuple[Verdict, str]:
    if limit.soft is None:
        return Verdict.PASS, "all its memory locked"
    needs_it = bool(hardware_ports(patient))
    words = f"{limit.soft // 1024} KiB of locked memory"
    return (Verdict.FAIL, words) if needs_it else (Verdict.WARN, f"{words}, too little once RDMA is used")


def _files(_: Patient, limit: Limit) -> tuple[Verdict, str]:
    if limit.soft is None or limit.soft >= _FILES:
        return Verdict.PASS, "any number of files open" if limit.soft is None else f"{limit.soft} files open"
    return (Verdict.FAIL if limit.soft < _LEAST_FILES else Verdict.WARN), f"{limit.soft} files open"


def _at_least(least: int, unit: str) -> Rule:
    def rule(_: Patient, limit: Limit) -> tuple[Verdict, str]:
        if limit.soft is None:
            return Verdict.PASS, f"any number of {unit}"
        return (Verdict.PASS if limit.soft >= least else Verdict.WARN), f"{limit.soft} {unit}"

    return rule


# --- limits of control groups -----------------------------------------------------------------------------------------


def _groups(patient: Patient, controller: str) -> tuple[Path, ...]:
    """Return the control groups that hold the worker, from its own to the top; none where the kernel does not tell."""
    pid = units.limits(patient).pid
    told = cgroups.parse(patient.machine.read_text(Path("/proc") / str(pid or "self") / "cgroup") or "")
    roots = {"": cgroups.ROOT, controller: cgroups.ROOT / controller}
    own = [(root, root / told[name].lstrip("/")) for name, root in roots.items() if name in told]
    return tuple(folder for root, path in own for folder in (path, *path.parents) if folder.is_relative_to(root))


def _least(patient: Patient, controller: str, *names: str) -> tuple[bool, int | None]:
    """Return whether the control groups are known, and the lowest number in such a file of theirs."""
    folders = _groups(patient, controller)
    told = (whole(patient.machine.read_text(folder / name)) for folder in folders for name in names)
    return bool(folders), min((value for value in told if value is not None and value < _UNLIMITED), default=None)


def _cgroup_memory(patient: Patient) -> Iterator[Outcome]:
    is_known, limit = _least(patient, "memory", "memory.max", "memory.limit_in_bytes")
    total = patient.inventory.memory_total
    if not is_known:
        yield unknown("which control group holds the worker is not told")
    elif limit is None:
        yield passed("no control group limits the memory of engines")
    else:
        yield warned(
            f"engines and worker together may use {gib(limit)}; the node offers {gib(total)}", limit_bytes=limit
        )


def _cgroup_tasks(patient: Patient) -> Iterator[Outcome]:
    is_known, limit = _least(patient, "pids", "pids.max")
    if not is_known:
        yield unknown("which control group holds the worker is not told")
    elif limit is None or limit >= _LEAST_TASKS:
        yield passed(f"engines and worker together may have {limit or 'any number of'} threads")
    else:
        yield warned(f"engines and worker together may have {limit} threads", limit=limit)


def _cgroup_cpus(patient: Patient) -> Iterator[Outcome]:
    usable, machine = patient.inventory.cpu_count, _online(patient)
    if machine is None:
        yield unknown("how many CPUs this machine has is not told")
    elif usable >= machine:
        yield passed(f"the worker may use all {machine} CPUs")
    else:
        yield warned(f"the worker may use {usable} of {counted(machine, 'CPU')}", usable=usable, online=machine)


def _online(patient: Patient) -> int | None:
    names = patient.machine.names_in(Path("/sys/devices/system/cpu"))
    return sum(name.startswith("cpu") and name.removeprefix("cpu").isdigit() for name in names) or None


# --- shared memory ----------------------------------------------------------------------------------------------------


def _shared_memory(patient: Patient) -> Iterator[Outcome]:
    disk = patient.machine.disk(_SHM)
    if disk is None:
        yield unknown(f"the space of {_SHM} could not be read")
        return
    left = [name for name in patient.machine.names_in(_SHM) if name.startswith(("psm_", "nccl-", "sem.mp-", "torch_"))]
    text = f"{gib(disk.free)} of {gib(disk.total)} of {_SHM} free"
    text += f", {counted(len(left), 'file')} of engines in it" if left else ""
    facts: dict[str, Any] = {"total_bytes": disk.total, "free_bytes": disk.free, "files": len(left)}
    is_needed = len(patient.inventory.gpus) >= _ENGINES_OF_SEVERAL_PROCESSES
    if disk.free < _LEAST_SHM:
        yield (failed if is_needed else warned)(text, **facts)
    else:
        yield warned(text, **facts) if is_needed and disk.total < _SHM_BYTES else passed(text, **facts)


_UNIT: Final = "systemctl show (MainPID), else the state folder's lock; /proc/PID/limits of the worker"
_OTHERWISE: Final = " Where no worker is found, this process's own limit is a hint alone, and never passes."


def _drop_in(line: str) -> Fix:
    return Fix(
        f"Write `{line}` into the unit's [Service] section (`systemctl edit llmgw-node`) and restart the worker, then "
        "the engines: those that run keep the old limit. What is set in limits.conf holds for shells and not for units."
    )


CHECKS: Final[tuple[Check, ...]] = (
    Check(
        id="limits.memlock",
        group=Group.LIMITS,
        title="Engines may lock all their memory",
        reads=f"{_UNIT} (Max locked memory)",
        rule=f"Passes when unlimited; fails on a node with RDMA adapters, else warns.{_OTHERWISE}",
        costs="Memory cannot be registered with the adapter: `ibv_reg_mr` and `ibv_create_qp` fail, and NCCL ends.",
        fix=_drop_in("LimitMEMLOCK=infinity"),
        judge=_judge("Max locked memory", _memlock),
    ),
    Check(
        id="limits.open-files",
        group=Group.LIMITS,
        title="Engines may have enough files open",
        reads=f"{_UNIT} (Max open files)",
        rule=f"Passes from {_FILES} on, fails below {_LEAST_FILES}.{_OTHERWISE}",
        costs="`Too many open files`: connections are refused under load.",
        fix=_drop_in("LimitNOFILE=1048576"),
        judge=_judge("Max open files", _files),
    ),
    Check(
        id="limits.processes",
        group=Group.LIMITS,
        title="Engines may have enough threads",
        reads=f"{_UNIT} (Max processes)",
        rule=f"Warns below {_PROCESSES}.{_OTHERWISE}",
        costs="An engine of several cards has thousands of threads; the next one cannot be started.",
        fix=_drop_in("LimitNPROC=infinity"),
        judge=_judge("Max processes", _at_least(_PROCESSES, "processes and threads")),
        worst=Severity.WARN,
    ),
    Check(
        id="limits.stack",
        group=Group.LIMITS,
        title="Threads have the usual stack",
        reads=f"{_UNIT} (Max stack size)",
        rule=f"Warns below {_STACK} bytes.{_OTHERWISE}",
        costs="Threads of compilers and of BLAS libraries crash.",
        fix=_drop_in("LimitSTACK=8M"),
        judge=_judge("Max stack size", _at_least(_STACK, "bytes of stack")),
        worst=Severity.WARN,
    ),
    Check(
        id="limits.memory",
        group=Group.LIMITS,
        title="No control group limits the memory of engines",
        reads="/proc/PID/cgroup of the worker, memory.max or memory.limit_in_bytes of its groups",
        rule="Warns where there is a limit.",
        costs="Engines are ended at that limit, however much memory the machine has; the page cache counts too.",
        fix=Fix("Take MemoryMax out of the unit, or give the container more."),
        judge=_cgroup_memory,
        worst=Severity.WARN,
    ),
    Check(
        id="limits.tasks",
        group=Group.LIMITS,
        title="No control group keeps engines from starting threads",
        reads="/proc/PID/cgroup of the worker, pids.max of its groups",
        rule=f"Warns below {_LEAST_TASKS} for worker and engines together.",
        costs="`Resource temporarily unavailable`: an engine fails in the middle of its start.",
        fix=_drop_in("TasksMax=infinity"),
        judge=_cgroup_tasks,
        worst=Severity.WARN,
    ),
    Check(
        id="limits.cpus",
        group=Group.LIMITS,
        title="The worker may use all CPUs",
        reads="the CPUs this process may use, /sys/devices/system/cpu",
        rule="Warns where there are more.",
        costs="Engines start more threads than they have CPUs, and all of them wait for each other.",
        fix=Fix("Take AllowedCPUs and CPUQuota out of the unit; or leave it so, and the node offers what it may use."),
        judge=_cgroup_cpus,
        worst=Severity.WARN,
    ),
    Check(
        id="limits.shared-memory",
        group=Group.LIMITS,
        title="Shared memory has room",
        reads=f"{_SHM}: size, free space, files that engines left",
        rule="On a node with several cards, fails below 1 GiB free and warns below 16 GiB in all; else warns below "
        "1 GiB free.",
        costs="The processes of one engine cannot talk: SIGBUS, or `No space left on device`.",
        fix=Fix(
            "Make it larger; with no engine running, remove what engines left (`psm_*`, `nccl-*`, `torch_*`).",
            "mount -o remount,size=50% /dev/shm",
        ),
        judge=_shared_memory,
    ),
)
NOT_YET: Final[tuple[tuple[str, str, str], ...]] = ()
