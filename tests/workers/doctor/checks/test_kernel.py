"""Checks of the kernel: devices, memory, clocks, and its own health."""

import pytest

from llmgw.core.units import GIB, Bytes
from tests.workers.doctor.checks.patients import a_gpu, a_patient, a_port, only, outcomes, verdicts
from workers.doctor.checks.kernel import CHECKS, NOT_YET
from workers.ports import ToolResult

CARD, SWITCH = "0000:1a:00.0", "0000:17:00.0"
BOTH = {"gpus": (a_gpu(pci_address=CARD),), "ports": (a_port(),)}
GUEST = {"/proc/cpuinfo": "processor\t: 0\nflags\t\t: fpu sse hypervisor avx2\n"}
BELOW = {f"/sys/bus/pci/devices/{CARD}": f"../../../devices/pci0000:16/0000:16:01.0/{SWITCH}/{CARD}"}
GROUP = {f"/sys/bus/pci/devices/{CARD}/iommu_group": "../../../kernel/iommu_groups/42"}
IOMMU = {"/sys/class/iommu/dmar0/uevent": ""}
TYPE = "/sys/kernel/iommu_groups/42/type"
MEMORY = "MemTotal: 100000000 kB\nHugePages_Total: {}\nHugepagesize: 2048 kB\nSwapTotal: {} kB\nSwapFree: {} kB\n"
GOVERNOR = "/sys/devices/system/cpu/cpu{}/cpufreq/scaling_governor"
CLOCK = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
EDAC = "/sys/devices/system/edac/mc/mc0/{}_count"
QUIET = {"dmesg": "[    0.0] Linux version 6.8.0\n"}


def bridges(address, sign):
    return {"lspci": f"{address} PCI bridge: Broadcom PEX890xx (rev b0)\n\t\tACSCtl:\tSrcValid{sign} TransBlk-\n"}


def memory(pages=0, swap=0, free=0):
    return {"/proc/meminfo": MEMORY.format(pages, swap, free)}


def errors(corrected, uncorrected):
    return {EDAC.format("ce"): f"{corrected}\n", EDAC.format("ue"): f"{uncorrected}\n"}


def setting(name, value):
    return {f"/proc/sys/kernel/{name}": f"{value}\n"}


def said(line):
    return {"tools": {"dmesg": f"[    0.0] Linux version 6.8.0\n[  100.1] {line}\n"}}


@pytest.mark.parametrize(
    ("check", "facts", "expected"),
    [
        ("kernel.acs", {}, "not-applicable"),
        ("kernel.acs", BOTH | {"files": GUEST}, "not-applicable"),
        ("kernel.acs", BOTH, "unknown"),
        ("kernel.acs", BOTH | {"tools": bridges("17:00.0", "+")}, "fail"),
        ("kernel.acs", BOTH | {"tools": bridges("17:00.0", "-")}, "pass"),
        ("kernel.acs", BOTH | {"tools": bridges(SWITCH, "+"), "links": BELOW}, "fail"),
        ("kernel.acs", BOTH | {"tools": bridges("0000:99:00.0", "+"), "links": BELOW}, "pass"),
        (
            "kernel.acs",
            BOTH | {"tools": {"lspci": f"{SWITCH} PCI bridge: PLX\n\tCapabilities: <access denied>\n"}},
            "unknown",
        ),
        ("kernel.iommu", {}, "not-applicable"),
        ("kernel.iommu", BOTH, "pass"),
        ("kernel.iommu", BOTH | {"files": IOMMU}, "unknown"),
        ("kernel.iommu", BOTH | {"files": IOMMU | {"/proc/cmdline": "root=/dev/sda1 intel_iommu=on iommu=pt"}}, "pass"),
        ("kernel.iommu", BOTH | {"files": IOMMU | {"/proc/cmdline": "root=/dev/sda1 intel_iommu=on"}}, "warn"),
        ("kernel.iommu", BOTH | {"files": IOMMU | {TYPE: "identity\n"}, "links": GROUP}, "pass"),
        ("kernel.iommu", BOTH | {"files": IOMMU | {TYPE: "DMA-FQ\n"}, "links": GROUP}, "warn"),
        ("kernel.numa-balancing", {}, "not-applicable"),
        ("kernel.numa-balancing", {"files": setting("numa_balancing", 0)}, "pass"),
        ("kernel.numa-balancing", {"files": setting("numa_balancing", 1)}, "warn"),
        ("kernel.huge-pages", {}, "unknown"),
        ("kernel.huge-pages", {"files": memory()}, "pass"),
        ("kernel.huge-pages", {"files": memory(pages=20000)}, "warn"),
        ("kernel.governor", {}, "not-applicable"),
        ("kernel.governor", {"files": {GOVERNOR.format(0): "performance\n"}}, "pass"),
        ("kernel.governor", {"files": {GOVERNOR.format(0): "performance", GOVERNOR.format(1): "powersave"}}, "warn"),
        ("kernel.clocksource", {}, "unknown"),
        ("kernel.clocksource", {"files": {CLOCK: "tsc\n"}}, "pass"),
        ("kernel.clocksource", {"files": {CLOCK: "arch_sys_counter\n"}}, "pass"),
        ("kernel.clocksource", {"files": {CLOCK: "hpet\n"}}, "warn"),
        ("kernel.clocksource", {"files": {CLOCK: "kvm-clock\n"}}, "warn"),
        ("kernel.clocksource", {"files": GUEST | {CLOCK: "kvm-clock\n"}}, "pass"),
        ("kernel.boot", {}, "unknown"),
        ("kernel.boot", {"files": {"/proc/uptime": "60.1 200.0\n"}}, "warn"),
        ("kernel.boot", {"files": {"/proc/uptime": "60.1 200.0\n"}, "earlier": {}}, "pass"),
        ("kernel.boot", {"files": {"/proc/uptime": "900000.1 200.0\n"}}, "pass"),
        ("kernel.memory-errors", {}, "unknown"),
        ("kernel.memory-errors", {"files": GUEST}, "not-applicable"),
        ("kernel.memory-errors", {"files": errors(0, 0)}, "pass"),
        ("kernel.memory-errors", {"files": errors(5, 0)}, "unknown"),
        ("kernel.memory-errors", {"files": errors(5, 0), "earlier": {"edac.mc0.corrected": 3}}, "warn"),
        ("kernel.memory-errors", {"files": errors(5, 0), "earlier": {"edac.mc0.corrected": 5}}, "pass"),
        ("kernel.memory-errors", {"files": errors(0, 1)}, "fail"),
        ("kernel.memory-errors", {"files": {EDAC.format("ce"): "many\n"}}, "unknown"),
        ("kernel.oom-kills", {}, "unknown"),
        ("kernel.oom-kills", {"files": {"/proc/vmstat": "oom_kill 0\n"}}, "pass"),
        ("kernel.oom-kills", {"files": {"/proc/vmstat": "oom_kill 2\n"}}, "warn"),
        ("kernel.oom-kills", {"files": {"/proc/vmstat": "oom_kill 2\n"}, "earlier": {"kernel.oom-kills": 2}}, "pass"),
        ("kernel.oom-kills", {"files": {"/proc/vmstat": "oom_kill 3\n"}, "earlier": {"kernel.oom-kills": 2}}, "warn"),
        ("kernel.memory-available", {}, "unknown"),
        ("kernel.memory-available", {"memory_available": Bytes(32 * GIB)}, "pass"),
        ("kernel.memory-available", {"memory_available": Bytes(4 * GIB)}, "warn"),
        ("kernel.memory-available", {"memory_available": Bytes(GIB // 2)}, "fail"),
        ("kernel.swap", {}, "unknown"),
        ("kernel.swap", {"files": memory()}, "pass"),
        ("kernel.swap", {"files": memory(swap=1000, free=900)}, "pass"),
        ("kernel.swap", {"files": memory(swap=1000, free=500)}, "warn"),
        (
            "kernel.swap",
            {
                "files": memory(swap=1000, free=900) | {"/proc/vmstat": "pswpin 9000000\npswpout 5\n"},
                "earlier": {"kernel.pswpin": 0},
            },
            "fail",
        ),
        ("kernel.taint", {}, "unknown"),
        ("kernel.taint", {"files": setting("tainted", 0)}, "pass"),
        ("kernel.taint", {"files": setting("tainted", 1 << 12 | 1 << 13 | 1)}, "pass"),
        ("kernel.taint", {"files": setting("tainted", 1 << 9)}, "warn"),
        ("kernel.taint", {"files": setting("tainted", 1 << 7 | 1 << 9)}, "fail"),
        ("kernel.taint", {"files": setting("tainted", -1)}, "unknown"),
        ("kernel.crashes", {}, "unknown"),
        ("kernel.crashes", {"tools": QUIET}, "pass"),
        ("kernel.crashes", said("watchdog: BUG: soft lockup - CPU#3 stuck for 26s! [python:1234]"), "fail"),
        ("kernel.crashes", said("Oops: 0000 [#1] SMP NOPTI"), "fail"),
        ("kernel.crashes", said("general protection fault, probably for non-canonical address 0xdead: 0000"), "fail"),
        ("kernel.crashes", said("NMI watchdog: Watchdog detected hard LOCKUP on cpu 7"), "fail"),
        ("kernel.crashes", said("rcu: INFO: rcu_sched self-detected stall on CPU"), "fail"),
        ("kernel.crashes", said("traps: python3[812] general protection fault ip:7f3a sp:7ffd error:0"), "pass"),
        ("kernel.crashes", said("Kernel command line: root=/dev/sda1 oops=panic panic=10"), "pass"),
        ("kernel.crashes", said("nvme nvme0: debug: 128 queues"), "pass"),
        ("kernel.hangs", {}, "unknown"),
        ("kernel.hangs", {"tools": QUIET}, "pass"),
        ("kernel.hangs", said("INFO: task llama-server:99 blocked for more than 122 seconds."), "warn"),
        ("kernel.machine-checks", {}, "unknown"),
        ("kernel.machine-checks", {"tools": QUIET}, "pass"),
        ("kernel.machine-checks", said("mce: [Hardware Error]: Machine check events logged"), "warn"),
        ("kernel.machine-checks", said("mce: [Hardware Error]: CPU 3: Uncorrected error, bank 7"), "fail"),
        ("kernel.machine-checks", said("mce: [Hardware Error]: event severity: fatal"), "fail"),
        ("kernel.machine-checks", said("mce: [Hardware Error]: event severity: non-fatal"), "warn"),
    ],
)
def test_the_kernel_is_judged(check, facts, expected):
    assert verdicts(CHECKS, check, a_patient(**facts)) == [expected]


def test_the_command_against_access_control_names_each_bridge():
    found = only(CHECKS, "kernel.acs", a_patient(**BOTH, tools=bridges("17:00.0", "+")))
    (check,) = (check for check in CHECKS if check.id == "kernel.acs")
    assert check.fix.command.format(**found.fix_arguments) == f"setpci -s {SWITCH} ECAP_ACS+0x6.w=0000"
    assert not check.fix.safe


def test_a_setting_is_changed_back_to_what_it_was():
    found = only(CHECKS, "kernel.numa-balancing", a_patient(files=setting("numa_balancing", 2)))
    (check,) = (check for check in CHECKS if check.id == "kernel.numa-balancing")
    assert check.fix.safe
    assert check.fix.undo.format(**found.fix_arguments) == "sysctl -w kernel.numa_balancing=2"


def test_a_governor_that_is_no_word_gets_into_no_command():
    odd = {GOVERNOR.format(0): "$(reboot)\n"}
    assert only(CHECKS, "kernel.governor", a_patient(files=odd)).fix_arguments == {"old": "schedutil"}


def test_taints_are_told_by_name():
    text = only(CHECKS, "kernel.taint", a_patient(files=setting("tainted", 1 << 12 | 1 << 7))).text
    assert text == "the kernel has met an oops since boot"
    text = only(CHECKS, "kernel.taint", a_patient(files=setting("tainted", 1 << 12 | 1 << 40))).text
    assert text == "the kernel is tainted by nothing but a module from outside, bit 40"


def test_the_journal_is_read_where_dmesg_may_not_be():
    tools = {
        "dmesg": ToolResult(1, err="dmesg: read kernel buffer failed: Operation not permitted"),
        "journalctl": "ok\n",
    }
    assert verdicts(CHECKS, "kernel.crashes", a_patient(tools=tools)) == ["pass"]


def test_the_log_is_read_once_for_all_that_need_it():
    patient = a_patient(tools=QUIET)
    for check in ("kernel.crashes", "kernel.hangs", "kernel.machine-checks"):
        outcomes(CHECKS, check, patient)
    assert patient.machine.calls == [("dmesg",)]


def test_what_is_not_checked_yet_says_why():
    assert all(why.startswith("needs ") for _, _, why in NOT_YET)
