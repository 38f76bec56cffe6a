"""Checks of the disks: state, weights, caches, health."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from llmgw.core.units import GIB, Bytes
from llmgw.core.world import State
from tests.builders import a_launch_order
from tests.fakes.machine import FakeMachine
from tests.workers.doctor.checks.patients import a_gpu, a_patient, only, outcomes, verdicts
from workers.doctor.checks.disk import CHECKS, NOT_YET
from workers.ports import Disk, ToolResult
from workers.settings import NodeSettings
from workers.supervisor.journal import Journal

STATE = "/var/lib/llmgw-node"
MOUNTS = "/proc/self/mountinfo"
HUNG = {"stat": ToolResult(None, problem="no answer within 10 s")}
SOUND = '{"smart_status": {"passed": true}, "nvme_smart_health_information_log": {"percentage_used": 3}}'


def mounted(kind, options="rw", point="/", device="259:2"):
    return {MOUNTS: f"22 1 {device} / {point} {options},relatime shared:1 - {kind} source {options}\n"}


def space(free, total=100):
    return {"disk_space": Disk(Bytes(total * GIB), Bytes(int(free * GIB)))}


def inodes(total, free):
    return {"df": f"Filesystem Inodes IUsed IFree IUse% Mounted on\n/dev/sda1 {total} 5 {free} 1% /\n"}


def smart(text):
    return {"files": {"/sys/block/nvme0n1/size": "1", "/sys/block/loop0/size": "1"}, "tools": {"smartctl": text}}


def rotational(value, above=""):
    return {f"/sys/dev/block/259:2/{above}queue/rotational": f"{value}\n"}


PART = {f"{STATE}/weights/hf/Qwen/Qwen3-0.6B-GGUF/0a1b/model.gguf.f00d.part": ""}
FETCHING = {
    f"{STATE}/launches/l1/launch.json": msgspec.json.encode(
        Journal(order=a_launch_order(launch_id="l1"), state=State.FETCHING)
    ).decode()
}


@pytest.mark.parametrize(
    ("check", "facts", "expected"),
    [
        ("disk.state-folder", {}, "unknown"),
        ("disk.state-folder", {"files": mounted("ext4")}, "pass"),
        ("disk.state-folder", {"files": mounted("ext4", "ro")}, "fail"),
        ("disk.state-folder", {"files": mounted("nfs4")}, "warn"),
        ("disk.state-folder", {"files": mounted("tmpfs")}, "warn"),
        ("disk.free", space(50), "pass"),
        ("disk.free", space(10), "warn"),
        ("disk.free", space(1), "fail"),
        ("disk.free", space(50) | {"gpus": (a_gpu(),)}, "warn"),
        ("disk.free", {"disk_space": None}, "unknown"),
        ("disk.free", {"files": mounted("nfs4"), "tools": HUNG}, "unknown"),
        ("disk.inodes", {}, "unknown"),
        ("disk.inodes", {"tools": inodes(1000, 900)}, "pass"),
        ("disk.inodes", {"tools": inodes(1000, 10)}, "warn"),
        ("disk.inodes", {"tools": inodes(1000, 0)}, "fail"),
        ("disk.inodes", {"tools": inodes(0, 0)}, "not-applicable"),
        ("disk.inodes", {"tools": inodes("-", "-")}, "not-applicable"),
        ("disk.inodes", {"tools": {"df": "garbage"}}, "unknown"),
        ("disk.inodes", {"disk_space": None}, "unknown"),
        ("disk.network-answer", {"files": mounted("ext4")}, "not-applicable"),
        ("disk.network-answer", {"files": mounted("nfs4"), "tools": {"stat": "  File: /\n"}}, "pass"),
        ("disk.network-answer", {"files": mounted("nfs4"), "tools": HUNG}, "fail"),
        ("disk.partials", {}, "pass"),
        ("disk.partials", {"files": PART}, "warn"),
        ("disk.partials", {"files": PART | FETCHING}, "pass"),
        ("disk.partials", {"files": mounted("nfs4"), "tools": HUNG}, "unknown"),
        ("disk.kind", {}, "unknown"),
        ("disk.kind", {"files": mounted("ext4")}, "unknown"),
        ("disk.kind", {"files": mounted("ext4") | rotational(0)}, "pass"),
        ("disk.kind", {"files": mounted("ext4") | rotational(1, "../")}, "warn"),
        (
            "disk.kind",
            {"files": mounted("ext4") | rotational(1) | {"/proc/cpuinfo": "flags : hypervisor\n"}},
            "unknown",
        ),
        ("disk.kind", {"files": mounted("nfs4"), "tools": {"stat": ""}}, "not-applicable"),
        ("disk.health", {}, "not-applicable"),
        ("disk.health", smart(SOUND), "pass"),
        ("disk.health", smart('{"smart_status": {"passed": false}}'), "fail"),
        ("disk.health", smart('{"nvme_smart_health_information_log": {"critical_warning": 4}}'), "fail"),
        ("disk.health", smart('{"nvme_smart_health_information_log": {"percentage_used": 97}}'), "warn"),
        ("disk.health", smart('{"nvme_smart_health_information_log": {"media_errors": 2}}'), "warn"),
        ("disk.health", smart('{"smartctl": {"messages": [{"string": "Permission denied"}]}}'), "unknown"),
        ("disk.health", smart("[1"), "unknown"),
        ("disk.health", {"files": {"/sys/block/sda/size": "1"}}, "unknown"),
        ("disk.logs", space(5), "pass"),
        ("disk.logs", space(0.1), "fail"),
        ("disk.logs", {"disk_space": None}, "unknown"),
        ("disk.caches", {}, "unknown"),
        ("disk.caches", {"environ": {"HOME": "/home/llmgw"}}, "unknown"),
        ("disk.caches", {"environ": {"HOME": "/home/llmgw"}, "files": mounted("ext4")}, "pass"),
        ("disk.caches", {"environ": {"HOME": "/home/llmgw"}, "files": mounted("ext4", "ro")}, "fail"),
        ("disk.caches", {"environ": {"HOME": "/home/llmgw"}, "files": mounted("nfs"), "tools": {"stat": ""}}, "warn"),
    ],
)
def test_a_disk_is_judged(check, facts, expected):
    assert verdicts(CHECKS, check, a_patient(**facts)) == [expected]


class Untouched(FakeMachine):
    """Whose disks nobody may look at."""

    def disk(self, path):
        raise AssertionError(path)


def test_a_mount_that_does_not_answer_is_not_touched():
    patient = a_patient(files=mounted("nfs4"), tools=HUNG)
    machine = Untouched(files=patient.machine.files, tools=HUNG, programs=patient.machine.programs)
    patient = replace(patient, machine=machine)
    for check in ("disk.free", "disk.inodes", "disk.network-answer", "disk.partials", "disk.logs"):
        assert "pass" not in verdicts(CHECKS, check, patient)
    assert [call for call in machine.calls if call[0] == "stat"] == [("stat", "-f", "--", "/")] * 3


def test_every_cache_that_the_environment_names_is_looked_at():
    environ = {"HOME": "/home/llmgw", "VLLM_CACHE_ROOT": "/srv/vllm", "TRITON_CACHE_DIR": "relative"}
    found = outcomes(CHECKS, "disk.caches", a_patient(environ=environ, files=mounted("ext4")))
    assert [outcome.about for outcome in found] == ["/home/llmgw/.cache", "/srv/vllm"]


def test_the_disk_of_the_state_folder_is_meant_and_no_other():
    files = {MOUNTS: mounted("ext4")[MOUNTS] + mounted("nfs", point="/srv")[MOUNTS]}
    assert verdicts(CHECKS, "disk.state-folder", a_patient(files=files)) == ["pass"]
    there = NodeSettings(id="n1", state=Path("/srv/state"))
    assert verdicts(CHECKS, "disk.state-folder", a_patient(files=files, settings=there, tools={"stat": ""})) == ["warn"]


def test_what_was_left_is_named():
    found = only(CHECKS, "disk.partials", a_patient(files=PART))
    assert found.evidence == {"parts": [next(iter(PART))]}


def test_what_is_not_checked_yet_says_why():
    assert all(why.startswith("needs ") for _, _, why in NOT_YET)
