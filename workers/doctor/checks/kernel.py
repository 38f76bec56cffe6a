"""Checks of the kernel: how it joins devices, how it runs CPUs and clocks, and whether it is well."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from llmgw.core.hardware.findings import Severity
from llmgw.core.units import counted, duration
from workers.doctor.checks import kernel_devices, kernel_health, kernel_memory
from workers.doctor.entry import Check, Fix, Group, Outcome, Patient, not_here, passed, unknown, warned
from workers.doctor.reading.host import is_virtual
from workers.doctor.reading.procfs import parse_counts, setting
from workers.doctor.reading.words import listed, number

_MEMINFO: Final = Path("/proc/meminfo")
_THP: Final = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_CPUS: Final = Path("/sys/devices/system/cpu")
_CLOCK: Final = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
_UPTIME: Final = Path("/proc/uptime")
_GOOD_CLOCKS: Final = frozenset({"tsc", "arch_sys_counter"})
_GOOD_IN_GUESTS: Final = frozenset({"kvm-clock", "hyperv_clocksource_tsc_page", "hyperv_clocksource"})
_MUCH_RESERVED: Final = 0.1
_JUST_BOOTED_S: Final = 3600

# --- memory as the kernel hands it out --------------------------------------------------------------------------------


def _numa_balancing(patient: Patient) -> Iterator[Outcome]:
    value = setting(patient.machine, "kernel/numa_balancing")
    if value is None:
        yield not_here("this kernel does not move memory between NUMA nodes")
    elif value:
        text = "the kernel moves memory between NUMA nodes while engines run"
        yield warned(text, numa_balancing=value).cured_by(old=str(value))
    else:
        yield passed("the kernel leaves memory where it is")


def _huge_pages(patient: Patient) -> Iterator[Outcome]:
    told = parse_counts(patient.machine.read_text(_MEMINFO) or "")
    total, pages, size = (told.get(name) for name in ("MemTotal", "HugePages_Total", "Hugepagesize"))
    if not total or pages is None or size is None:
        yield unknown("how much memory is kept for huge pages is not told")
        return
    mode = _chosen(patient.machine.read_text(_THP) or "") or "unknown"
    text = f"{counted(pages, 'huge page')} set aside, {pages * size / total:.0%} of memory; transparent ones: {mode}"
    yield warned(text) if pages * size > _MUCH_RESERVED * total else passed(text)


def _chosen(text: str) -> str:
    """Return the word in brackets: `always [madvise] never`."""
    return text.partition("[")[2].partition("]")[0]


# --- CPUs and clocks --------------------------------------------------------------------------------------------------


def _governor(patient: Patient) -> Iterator[Outcome]:
    machine = patient.machine
    folders = (_CPUS / name for name in machine.names_in(_CPUS) if name.removeprefix("cpu").isdigit())
    told = {(machine.read_text(folder / "cpufreq/scaling_governor") or "").strip() for folder in folders}
    governors = sorted(told - {""})
    if not governors:
        yield not_here("the system does not set the CPUs' speed here")
    elif governors == ["performance"]:
        yield passed("all CPUs run at full speed")
    else:
        others = [name for name in governors if name != "performance"]
        old = others[0] if others[0].isalpha() else "schedutil"
        yield warned(f"CPUs are run by {listed(others)}", governors=governors).cured_by(old=old)


def _clocksource(patient: Patient) -> Iterator[Outcome]:
    told = patient.machine.read(_CLOCK)
    name = (told.text or "").strip()
    if not name:
        yield unknown(f"the kernel's clock is not told: {told.problem or 'the file is empty'}")
    elif name in _GOOD_CLOCKS or (name in _GOOD_IN_GUESTS and is_virtual(patient.machine)):
        yield passed(f"the kernel's clock is {name}")
    else:
        yield warned(f"the kernel's clock is {name}, and asking it for the time is slow", clocksource=name)


def _boot(patient: Patient) -> Iterator[Outcome]:
    uptime = number((patient.machine.read_text(_UPTIME) or "").partition(" ")[0])
    if uptime is None:
        yield unknown("how long this machine has been up is not told")
        return
    text = f"up for {duration(uptime)}"
    is_news = patient.earlier_at is None and uptime < max(_JUST_BOOTED_S, patient.settings.doctor_s)
    yield warned(f"{text}: counters began anew", uptime_s=uptime) if is_news else passed(text, uptime_s=uptime)


Judge = Callable[[Patient], Iterator[Outcome]]


def _of_kernel(check: str, title: str, reads: str, rule: str, costs: str, fix: Fix, judge: Judge) -> Check:
    """Make a check that comes to a warning at most."""
    return Check(check, Group.KERNEL, title, reads, rule, costs, fix, judge, Severity.WARN)


CHECKS: Final[tuple[Check, ...]] = (
    *kernel_devices.CHECKS,
    *kernel_health.CHECKS,
    *kernel_memory.CHECKS,
    _of_kernel(
        "kernel.numa-balancing",
        "The kernel does not move memory between NUMA nodes",
        "/proc/sys/kernel/numa_balancing",
        "Warns unless it is 0.",
        "Pages that move stop the threads that use them: latency jitters.",
        Fix(
            "Switch it off, for good in /etc/sysctl.d.",
            "sysctl -w kernel.numa_balancing=0",
            undo="sysctl -w kernel.numa_balancing={old}",
            safe=True,
        ),
        _numa_balancing,
    ),
    _of_kernel(
        "kernel.huge-pages",
        "No large part of memory is set aside for huge pages",
        f"{_MEMINFO}, {_THP}",
        "Warns where more than a tenth of memory is.",
        "Engines and the page cache cannot use it, since nothing here asks for such pages.",
        Fix("Lower vm.nr_hugepages, unless something else on this machine uses them."),
        _huge_pages,
    ),
    _of_kernel(
        "kernel.governor",
        "All CPUs run at full speed",
        "/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
        "Warns for another governor than `performance`.",
        "The threads that feed the cards wake up slowly.",
        Fix(
            "Choose `performance`, for good by the system's own service for it.",
            "cpupower frequency-set -g performance",
            undo="cpupower frequency-set -g {old}",
            safe=True,
        ),
        _governor,
    ),
    _of_kernel(
        "kernel.clocksource",
        "The kernel's clock is the CPU's own",
        str(_CLOCK),
        "Passes for tsc, on ARM arch_sys_counter, in guests their host's clock; warns for others.",
        "Each look at the time is a call into the kernel, and engines look often.",
        Fix("See in the kernel's log why tsc was given up; `tsc=reliable` on its command line takes it back."),
        _clocksource,
    ),
    _of_kernel(
        "kernel.boot",
        "This machine was not started a moment ago",
        str(_UPTIME),
        "Warns at the first run after a start.",
        "Counters begin anew; MIG instances and IMEX channels that no service makes again are gone.",
        Fix("See the checks of the groups `mig` and `imex`; they are right when this machine has what it had."),
        _boot,
    ),
)
NOT_YET: Final[tuple[tuple[str, str, str], ...]] = ()
