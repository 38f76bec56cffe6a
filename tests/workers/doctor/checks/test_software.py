"""Checks of engines and of what is installed around them."""

import msgspec
import pytest

from llmgw.core.hardware.findings import Problem
from llmgw.core.hardware.gpus import Process
from llmgw.core.units import GIB
from llmgw.core.world import State
from tests.builders import a_launch_order
from tests.workers.doctor.checks.patients import OPEN, SHUT, a_gpu, a_patient, a_port, only, verdicts
from workers.doctor.checks.software import CHECKS, NOT_YET
from workers.engines.process import Fingerprint
from workers.ports import ToolResult
from workers.settings import NodeSettings
from workers.supervisor.journal import Journal

LLAMA = {"engines": {"llamacpp": "llama-server at /usr/bin/llama-server"}}
RUNNER = LLAMA | {"modules": {"xllamacpp"}}
MISSING = Problem(code="engine.missing", fact="engine llamacpp", text="engine llamacpp is not offered: not installed")
LDD = "ldd (Debian GLIBC {0}-9+deb12u4) {0}\nCopyright (C) 2022 Free Software Foundation, Inc.\n"
BOOT = {f"/boot/vmlinuz-6.8.0-{number}-generic": "" for number in (40, 45)}
STATUS = "Name:\tpython\nUid:\t{0}\t{0}\t{0}\t{0}\nCapEff:\t{1}\n"
RESTRICTED = {"/proc/sys/kernel/dmesg_restrict": "1\n"}
UMAD = {"/sys/class/infiniband_mad/umad0/ibdev": "mlx5_0\n", "/sys/class/infiniband_mad/umad0/port": "1\n"}


def llama(result):
    return LLAMA | {"tools": {"llama-server": result}}


def status(uid, capabilities="0000000000000000"):
    return {"/proc/self/status": STATUS.format(uid, capabilities)}


def process(pid, *argv, session=None):
    stat = f"{pid} (llama-server) S 1 {pid} {session or pid} 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 1 0 0\n"
    return {f"/proc/{pid}/cmdline": "\0".join(argv) + "\0", f"/proc/{pid}/stat": stat}


@pytest.mark.parametrize(
    ("check", "facts", "expected"),
    [
        ("engine.installed", LLAMA, "pass"),
        ("engine.installed", {"problems": (MISSING,)}, "warn"),
        ("engine.starts", {}, "not-applicable"),
        ("engine.starts", llama(ToolResult(0, err="version: 6500 (abc123)")), "pass"),
        ("engine.starts", llama(ToolResult(-4)), "fail"),
        ("engine.starts", llama(ToolResult(127, err="libcuda.so.1: cannot open shared object file")), "fail"),
        ("engine.starts", llama(ToolResult(None, problem="no answer within 10 s")), "unknown"),
        ("engine.devices", {}, "not-applicable"),
        ("engine.devices", llama("Available devices:\n"), "not-applicable"),
        ("engine.devices", llama("Available devices:\n") | {"gpus": (a_gpu(),)}, "warn"),
        (
            "engine.devices",
            llama("Available devices:\n  CUDA0: NVIDIA H100 (81089 MiB, 80000 MiB free)\n") | {"gpus": (a_gpu(),)},
            "pass",
        ),
        ("engine.devices", llama(ToolResult(1)) | {"gpus": (a_gpu(),)}, "unknown"),
        ("engine.devices", llama("") | {"gpus": (a_gpu(processes=(Process(pid=9),)),)}, "unknown"),
        ("engine.devices", llama("") | {"gpus": (a_gpu(memory_used_bytes=40 * GIB),)}, "unknown"),
        ("engine.devices", RUNNER | {"gpus": (a_gpu(),)}, "unknown"),
        ("engine.leftovers", {}, "pass"),
        ("engine.leftovers", {"files": process(77, "/usr/bin/llama-server", "--port", "1")}, "warn"),
        ("engine.leftovers", {"files": process(77, "VLLM::EngineCore")}, "warn"),
        ("engine.leftovers", {"files": process(77, "/bin/grep", "llama-server.log")}, "pass"),
        ("software.glibc", {}, "unknown"),
        ("software.glibc", {"tools": {"ldd": LDD.format("2.36")}}, "pass"),
        ("software.glibc", {"tools": {"ldd": LDD.format("2.31")}}, "warn"),
        ("software.glibc", {"tools": {"ldd": LDD.format("2.17")}}, "fail"),
        ("software.glibc", {"tools": {"ldd": ToolResult(1, err="musl libc (x86_64)\nVersion 1.2.4")}}, "fail"),
        ("software.compiler", LLAMA, "not-applicable"),
        ("software.compiler", {"engines": {"vllm": "vllm 0.33"}}, "fail"),
        ("software.compiler", {"engines": {"vllm": "vllm 0.33"}, "programs": ("gcc", "ninja")}, "pass"),
        ("software.reboot", {}, "unknown"),
        ("software.reboot", {"kernel": "6.8.0-45-generic", "files": BOOT}, "pass"),
        ("software.reboot", {"kernel": "6.8.0-40-generic", "files": BOOT}, "warn"),
        ("software.reboot", {"kernel": "6.8.0-40-lowlatency", "files": BOOT}, "pass"),
        ("software.reboot", {"kernel": "6.8.0-45-generic", "files": {"/var/run/reboot-required": "***\n"}}, "warn"),
        ("software.rights", {}, "unknown"),
        ("software.rights", {"files": status(0) | RESTRICTED}, "pass"),
        ("software.rights", {"files": status(1000)}, "pass"),
        ("software.rights", {"files": status(1000) | RESTRICTED}, "warn"),
        ("software.rights", {"files": status(1000, "0000000400000000") | RESTRICTED}, "pass"),
        (
            "software.rights",
            {"files": status(1000) | UMAD, "ports": (a_port(),), "nodes": {"/dev/infiniband/umad0": SHUT}},
            "warn",
        ),
        (
            "software.rights",
            {"files": status(1000) | UMAD, "ports": (a_port(),), "nodes": {"/dev/infiniband/umad0": OPEN}},
            "pass",
        ),
        ("software.hub", {}, "unknown"),
        ("software.hub", {"settings": NodeSettings(id="n1", offline=True)}, "not-applicable"),
        ("software.hub", {"tools": {"curl": "200"}}, "pass"),
        ("software.hub", {"tools": {"curl": "404"}}, "pass"),
        ("software.hub", {"tools": {"curl": "503"}}, "warn"),
        ("software.hub", {"tools": {"curl": "407"}}, "warn"),
        ("software.hub", {"tools": {"curl": ToolResult(6, "000", "curl: (6) Could not resolve host")}}, "warn"),
        ("software.hub", {"tools": {"curl": ToolResult(None, problem="no answer within 10 s")}}, "unknown"),
    ],
)
def test_software_is_judged(check, facts, expected):
    assert verdicts(CHECKS, check, a_patient(**facts)) == [expected]


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        ("/lib/libc.so.6: version `GLIBC_2.38' not found (required by llama-server)", "C library is older"),
        ("error while loading shared libraries: libcuda.so.1: cannot open shared object file", "no CUDA driver"),
        ("error while loading shared libraries: libgomp.so.1: cannot open shared object file", "a library"),
        ("ModuleNotFoundError: No module named 'xllamacpp'", "a Python module"),
        ("something else", "it ends with 127"),
    ],
)
def test_why_an_engine_does_not_start_is_told(words, cause):
    found = only(CHECKS, "engine.starts", a_patient(**llama(ToolResult(127, err=words))))
    assert cause in found.text
    assert found.evidence["literal"] == words


def test_an_engine_of_this_node_is_no_leftover(tmp_path):
    ours = Fingerprint(launch_id="l1", pid=77, pgid=77, start_ticks=1, boot_id="b", argv=("llama-server",))
    journal = Journal(order=a_launch_order(launch_id="l1"), state=State.READY)
    files = {
        f"{tmp_path}/launches/l1/launch.json": msgspec.json.encode(journal).decode(),
        f"{tmp_path}/launches/l1/pid.json": msgspec.json.encode(ours).decode(),
        **process(77, "/usr/bin/llama-server"),
        **process(78, "/usr/bin/llama-server", session=77),
    }
    patient = a_patient(files=files, settings=NodeSettings(id="n1", state=tmp_path))
    assert verdicts(CHECKS, "engine.leftovers", patient) == ["pass"]


def test_a_login_of_the_hub_is_seen_nowhere():
    settings = NodeSettings(id="n1", hf_endpoint="https://alice:hunter2@mirror.example/hf")
    patient = a_patient(settings=settings, tools={"curl": "200"})
    assert only(CHECKS, "software.hub", patient).text == "mirror.example answers"
    assert "hunter2" not in repr(patient.machine.calls)


def test_what_is_not_checked_yet_says_why():
    assert all(why.startswith("needs ") for _, _, why in NOT_YET)
