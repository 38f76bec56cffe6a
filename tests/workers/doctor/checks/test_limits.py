"""Checks of limits: those of the unit that runs the worker, and not of the shell."""

import pytest

from llmgw.core.units import GIB, Bytes
from tests.workers.doctor.checks.patients import a_gpu, a_patient, a_port, only, verdicts
from workers.doctor.checks.limits import CHECKS
from workers.ports import Disk, ToolResult

HEAD = "Limit                     Soft Limit           Hard Limit           Units     \n"
NO_SYSTEMD = {"systemctl": ToolResult(1, err="System has not been booted with systemd as init system")}
SILENT = {"systemctl": "LoadState=loaded\nMainPID=812\n"}
RUNNING = {"systemctl": "LoadState=loaded\nMainPID=812\nLimitMEMLOCK=8388608\n"}
STOPPED = (
    "LoadState=loaded\nMainPID=0\nLimitMEMLOCK={0}\nLimitMEMLOCKSoft={0}\nLimitNOFILE=524288\nLimitNOFILESoft=1024\n"
)
CHECKED = {
    "limits.memlock": "Max locked memory",
    "limits.open-files": "Max open files",
    "limits.processes": "Max processes",
    "limits.stack": "Max stack size",
}


def limits(name, soft, pid="812"):
    return {f"/proc/{pid}/limits": f"{HEAD}{name:<26}{soft:<21}{'unlimited':<21}units     \n"}


@pytest.mark.parametrize(
    ("check", "soft", "facts", "expected"),
    [
        ("limits.memlock", "unlimited", {}, "pass"),
        ("limits.memlock", "8388608", {}, "warn"),
        ("limits.memlock", "8388608", {"ports": (a_port(),)}, "fail"),
        ("limits.open-files", "1048576", {}, "pass"),
        ("limits.open-files", "unlimited", {}, "pass"),
        ("limits.open-files", "20000", {}, "warn"),
        ("limits.open-files", "1024", {}, "fail"),
        ("limits.processes", "513000", {}, "pass"),
        ("limits.processes", "unlimited", {}, "pass"),
        ("limits.processes", "4096", {}, "warn"),
        ("limits.stack", "8388608", {}, "pass"),
        ("limits.stack", "65536", {}, "warn"),
    ],
)
def test_a_limit_of_the_running_worker_is_judged(check, soft, facts, expected):
    patient = a_patient(tools=RUNNING, files=limits(CHECKED[check], soft), **facts)
    assert verdicts(CHECKS, check, patient) == [expected]


@pytest.mark.parametrize(("check", "name"), CHECKED.items())
def test_a_limit_that_cannot_be_read_is_unknown(check, name):
    assert verdicts(CHECKS, check, a_patient(tools=SILENT)) == ["unknown"]
    assert verdicts(CHECKS, check, a_patient(tools=NO_SYSTEMD)) == ["unknown"]
    assert verdicts(CHECKS, check, a_patient(tools=SILENT, files=limits(name, "garbage"))) == ["unknown"]


def test_the_worker_counts_and_not_the_shell():
    files = limits("Max locked memory", "unlimited", "self") | limits("Max locked memory", "65536", "812")
    found = only(CHECKS, "limits.memlock", a_patient(tools=RUNNING, files=files, ports=(a_port(),)))
    assert (str(found.verdict), found.text) == ("fail", "llmgw-node.service (pid 812) may have 64 KiB of locked memory")


def test_a_unit_that_does_not_run_is_judged_as_it_would_start():
    memlock = [
        only(CHECKS, "limits.memlock", a_patient(tools={"systemctl": STOPPED.format(value)}, ports=(a_port(),)))
        for value in ("infinity", "8388608")
    ]
    assert [str(found.verdict) for found in memlock] == ["pass", "fail"]
    assert memlock[0].text == "llmgw-node.service as it would start may have all its memory locked"
    assert verdicts(CHECKS, "limits.open-files", a_patient(tools={"systemctl": STOPPED.format(0)})) == ["fail"]


@pytest.mark.parametrize("tools", [{}, NO_SYSTEMD, {"systemctl": "LoadState=not-found\nMainPID=0\n"}])
def test_without_a_unit_this_process_is_a_hint_alone(tools):
    well = only(
        CHECKS, "limits.memlock", a_patient(tools=tools, files=limits("Max locked memory", "unlimited", "self"))
    )
    ill = only(CHECKS, "limits.memlock", a_patient(tools=tools, files=limits("Max locked memory", "65536", "self")))
    assert [str(found.verdict) for found in (well, ill)] == ["unknown", "warn"]
    assert "this process may have" in well.text


WORKER = {"/proc/812/cmdline": "/opt/llmgw/.venv/bin/python\0/opt/llmgw/.venv/bin/llmgw-node\0run\0"}


@pytest.mark.parametrize(
    ("command", "expected"), [(WORKER, "fail"), ({"/proc/812/cmdline": "/usr/sbin/sshd\0"}, "unknown")]
)
def test_a_worker_outside_of_a_unit_is_known_by_the_folder_that_it_holds(command, expected):
    files = {
        "/var/lib/llmgw-node/worker.lock": "812\n",
        **limits("Max locked memory", "65536", "812"),
        **limits("Max locked memory", "unlimited", "self"),
    }
    patient = a_patient(tools=NO_SYSTEMD, files=files | command, ports=(a_port(),))
    assert verdicts(CHECKS, "limits.memlock", patient) == [expected]


def groups(**files):
    own = {f"/sys/fs/cgroup/llmgw/{name.replace('_', '.')}": f"{text}\n" for name, text in files.items()}
    return {"/proc/812/cgroup": "0::/llmgw\n", **own}


OLD_GROUPS = {"/proc/812/cgroup": "5:cpu,cpuacct:/llmgw\n4:memory:/llmgw\n"}
OLD_LIMIT = "/sys/fs/cgroup/memory/llmgw/memory.limit_in_bytes"
CPUS = {f"/sys/devices/system/cpu/cpu{number}/online": "1" for number in range(8)}


@pytest.mark.parametrize(
    ("check", "files", "expected"),
    [
        ("limits.memory", {}, "unknown"),
        ("limits.memory", groups(memory_max="max"), "pass"),
        ("limits.memory", groups(memory_max=str(GIB)), "warn"),
        ("limits.memory", {"/proc/812/cgroup": "0::/\n"}, "pass"),
        ("limits.memory", OLD_GROUPS | {OLD_LIMIT: f"{GIB}\n"}, "warn"),
        ("limits.memory", OLD_GROUPS | {OLD_LIMIT: "9223372036854771712\n"}, "pass"),
        ("limits.memory", groups(memory_max="max") | {"/sys/fs/cgroup/memory.max": f"{GIB}\n"}, "warn"),
        ("limits.tasks", {}, "unknown"),
        ("limits.tasks", groups(pids_max="max"), "pass"),
        ("limits.tasks", groups(pids_max="18432"), "pass"),
        ("limits.tasks", groups(pids_max="512"), "warn"),
        ("limits.cpus", {}, "unknown"),
        ("limits.cpus", CPUS, "pass"),
        ("limits.cpus", CPUS | {"/sys/devices/system/cpu/cpu8/online": "1"}, "warn"),
    ],
)
def test_control_groups_are_judged(check, files, expected):
    files = files | limits("Max open files", "1024")
    assert verdicts(CHECKS, check, a_patient(tools=RUNNING, files=files)) == [expected]


CARDS = (a_gpu(), a_gpu(1))


@pytest.mark.parametrize(
    ("gpus", "total", "free", "expected"),
    [
        (CARDS, 64, 60, "pass"),
        (CARDS, 8, 8, "warn"),
        (CARDS, 64, 0, "fail"),
        ((), 8, 8, "pass"),
        ((), 1, 0, "warn"),
    ],
)
def test_shared_memory_is_judged_by_who_needs_it(gpus, total, free, expected):
    patient = a_patient(gpus=gpus, disk_space=Disk(Bytes(total * GIB), Bytes(free * GIB)))
    assert verdicts(CHECKS, "limits.shared-memory", patient) == [expected]


def test_shared_memory_that_cannot_be_read_is_unknown():
    assert verdicts(CHECKS, "limits.shared-memory", a_patient(disk_space=None)) == ["unknown"]


def test_what_engines_left_in_shared_memory_is_counted():
    files = {"/dev/shm/psm_1a2b": "", "/dev/shm/nccl-Xy": "", "/dev/shm/other": ""}
    assert "2 files of engines in it" in only(CHECKS, "limits.shared-memory", a_patient(files=files)).text
