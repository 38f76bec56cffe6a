"""Checks of whether the kernel itself is well: what has tainted it, and what it says of its own faults."""

import re
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from llmgw.core.hardware.findings import Severity, cut
from llmgw.core.units import counted
from workers.doctor.entry import Check, Fix, Group, Outcome, Patient, failed, passed, unknown, warned
from workers.doctor.reading.kernel_log import kernel_words
from workers.doctor.reading.procfs import setting
from workers.doctor.reading.words import listed

_TAINTS: Final[Mapping[int, str]] = MappingProxyType(
    {
        0: "a closed module",
        1: "a module loaded by force",
        2: "a CPU outside of its limits",
        3: "a module unloaded by force",
        4: "a machine check",
        5: "a bad page of memory",
        6: "a user's request",
        7: "an oops",
        8: "a changed ACPI table",
        9: "a kernel warning",
        10: "a staging driver",
        11: "a fault of the firmware",
        12: "a module from outside",
        13: "an unsigned module",
        14: "a CPU that hung",
        15: "a live patch",
        16: "the distribution's own mark",
        17: "a randomised layout",
        18: "a test",
    }
)
"""Bits of /proc/sys/kernel/tainted, as the kernel's documentation lists them."""
_BROKEN: Final = frozenset({4, 5, 7, 14})
_DOUBTFUL: Final = frozenset({1, 2, 3, 9})
_CRASHES: Final = (
    r"\bOops(: | - )|\bBUG: |Kernel panic|general protection fault(?! ip:)"
    r"|(?i:(soft|hard) lockup|rcu\w* .*detected stall)"
)
"""A fault with `ip:` behind it is a program's, and none of the kernel's own."""
_HANGS: Final = r"blocked for more than \d+ seconds"
_MACHINE_CHECKS: Final = r"mce: \[Hardware Error\]|\[Hardware Error\]: .*(Uncorrected|fatal|Corrected)|Machine [Cc]heck"
_GRAVE: Final = r"(?i)uncorrected|(?<!non-)(?<!non)fatal|processor context corrupt"


def _taint(patient: Patient) -> Iterator[Outcome]:
    mask = setting(patient.machine, "kernel/tainted")
    if mask is None or mask < 0:
        yield unknown("whether the kernel is tainted is not told")
        return
    bits = [bit for bit in range(mask.bit_length()) if mask >> bit & 1]
    names = {bit: _TAINTS.get(bit, f"bit {bit}") for bit in bits}
    for marked, say in ((_BROKEN, failed), (_DOUBTFUL, warned)):
        told = [names[bit] for bit in bits if bit in marked]
        if told:
            yield say(f"the kernel has met {listed(told)} since boot", tainted=mask)
            return
    yield passed(
        f"the kernel is tainted by nothing but {listed(list(names.values()))}" if bits else "the kernel is not tainted"
    )


def _judge(
    pattern: str, clean: str, say: Callable[[tuple[str, ...]], Outcome]
) -> Callable[[Patient], Iterator[Outcome]]:
    """Make a check of the kernel's log; `say` judges the lines in which the pattern is found."""

    def judge(patient: Patient) -> Iterator[Outcome]:
        words = kernel_words(patient)
        lines = words.matching(pattern)
        if words.unknown_because:
            yield unknown(f"what the kernel has said is not known: {words.unknown_because}")
        else:
            yield say(lines) if lines else passed(clean)

    return judge


def _crashed(lines: tuple[str, ...]) -> Outcome:
    text = f"the kernel's log has {counted(len(lines), 'line')} of faults of its own"
    return failed(text, literal=cut(lines[-1]))


def _hung(lines: tuple[str, ...]) -> Outcome:
    text = f"the kernel's log has {counted(len(lines), 'line')} of processes that hang in it"
    return warned(text, literal=cut(lines[-1]))


def _machine_checked(lines: tuple[str, ...]) -> Outcome:
    grave = [line for line in lines if re.search(_GRAVE, line)]
    text = f"the kernel's log has {counted(len(lines), 'line')} of faults that the CPU tells of"
    return failed(text, literal=cut(grave[-1])) if grave else warned(text, literal=cut(lines[-1]))


_LOG: Final = "the kernel's log: dmesg, else journalctl -k"

CHECKS: Final[tuple[Check, ...]] = (
    Check(
        id="kernel.taint",
        group=Group.KERNEL,
        title="The kernel has met no fault of its own since boot",
        reads="/proc/sys/kernel/tainted",
        rule="Fails for an oops, a machine check, a bad page, a CPU that hung; warns for a kernel warning, force, and "
        "a CPU outside of its limits. Modules that are closed, unsigned or from outside are no fault.",
        costs="What goes wrong next may have its cause there.",
        fix=Fix(
            "Read the kernel's log for the cause, then drain the node and reboot it: only that takes the mark away."
        ),
        judge=_taint,
    ),
    Check(
        id="kernel.crashes",
        group=Group.KERNEL,
        title="The kernel tells of no fault of its own",
        reads=_LOG,
        rule="Fails for an oops, a bug, a lockup, a stall.",
        costs="Processes hang that cannot be ended, and more of it will follow.",
        fix=Fix("Drain the node, reboot it, and bring kernel and driver up to date."),
        judge=_judge(_CRASHES, "the kernel tells of no fault of its own", _crashed),
    ),
    Check(
        id="kernel.hangs",
        group=Group.KERNEL,
        title="No process hangs in the kernel",
        reads=_LOG,
        rule="Warns where one did for minutes.",
        costs="A disk, a network's file system or a driver does not answer.",
        fix=Fix("See in the log which call it hangs in: nfs, nvidia, ext4."),
        judge=_judge(_HANGS, "no process has hung in the kernel", _hung),
        worst=Severity.WARN,
    ),
    Check(
        id="kernel.machine-checks",
        group=Group.KERNEL,
        title="The CPU tells of no fault of hardware",
        reads=_LOG,
        rule="Fails for faults that could not be corrected, warns for others.",
        costs="Wrong results and crashes.",
        fix=Fix("Look up the bank in the machine's own log (`ipmitool sel list`), and change the part."),
        judge=_judge(_MACHINE_CHECKS, "the CPU tells of no fault of hardware", _machine_checked),
    ),
)
