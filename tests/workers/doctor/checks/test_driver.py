"""Checks of the driver: its files, its kind, and whether CUDA starts."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.core.hardware.gpus import MigInstance
from tests.workers.doctor.checks.patients import OPEN, SHUT, a_driver, a_gpu, a_patient, only, verdicts
from workers.doctor.checks.driver import CHECKS
from workers.doctor.reading.starting import PROGRAM, NotAsked, Started, parse
from workers.ports import ToolResult

FILES = {"/dev/nvidiactl": OPEN, "/dev/nvidia-uvm": OPEN, "/dev/nvidia0": OPEN}
CARD = {"gpus": (a_gpu(minor_number=0),), "driver": a_driver()}
BLACKWELL = {"gpus": (a_gpu(compute_capability="10.0"),)}
HERE = CARD | {"nodes": FILES}
ON_PCI = {
    "/sys/bus/pci/devices/0000:01:00.0/vendor": "0x10de\n",
    "/sys/bus/pci/devices/0000:01:00.0/class": "0x030200\n",
}
UPDATES = {"/etc/apt/apt.conf.d/20auto-upgrades": 'APT::Periodic::Unattended-Upgrade "1";\n'}
CUT = {"gpus": (a_gpu(mig_enabled=True, instances=(MigInstance(slot=0),)),), "nodes": FILES}
CAP = {"/dev/nvidia-caps/nvidia-cap1": OPEN}


def started(**told):
    return {" ".join(PROGRAM): json.dumps(told)}


WELL = started(code=0, count=1, version=12080)
NOT_READY = started(code=802, name="CUDA_ERROR_SYSTEM_NOT_READY")


@pytest.mark.parametrize(
    ("check", "facts", "expected"),
    [
        ("cuda.starts", {}, "not-applicable"),
        ("cuda.starts", CARD, "unknown"),
        ("cuda.starts", HERE, "unknown"),
        ("cuda.starts", HERE | {"tools": WELL}, "pass"),
        ("cuda.starts", HERE | {"tools": started(code=0, count=0)}, "warn"),
        ("cuda.starts", HERE | {"tools": NOT_READY}, "fail"),
        ("cuda.starts", HERE | {"tools": started(library="libcuda.so.1: cannot open")}, "fail"),
        ("cuda.starts", HERE | {"tools": {" ".join(PROGRAM): "no JSON at all"}}, "unknown"),
        ("cuda.starts", HERE | {"tools": {" ".join(PROGRAM): ToolResult(-6)}}, "fail"),
        (
            "cuda.starts",
            HERE | {"tools": {" ".join(PROGRAM): ToolResult(None, problem="no answer within 30 s")}},
            "fail",
        ),
        ("kernel.address-layout", {}, "not-applicable"),
        ("kernel.address-layout", HERE, "unknown"),
        ("kernel.address-layout", HERE | {"tools": WELL}, "pass"),
        ("kernel.address-layout", HERE | {"tools": NOT_READY}, "fail"),
        ("driver.device-nodes", {}, "not-applicable"),
        ("driver.device-nodes", CARD, "unknown"),
        ("driver.device-nodes", HERE, "pass"),
        ("driver.device-nodes", CARD | {"nodes": {"/dev/nvidiactl": OPEN, "/dev/nvidia0": OPEN}}, "fail"),
        ("driver.device-nodes", CARD | {"nodes": FILES | {"/dev/nvidia0": SHUT}}, "fail"),
        ("mig.caps", HERE, "not-applicable"),
        ("mig.caps", CUT, "unknown"),
        ("mig.caps", CUT | {"nodes": FILES | CAP}, "pass"),
        ("mig.caps", CUT | {"nodes": FILES | {"/dev/nvidia-caps/nvidia-cap1": SHUT}}, "fail"),
        ("driver.nouveau", {}, "not-applicable"),
        ("driver.nouveau", {"files": ON_PCI}, "unknown"),
        ("driver.nouveau", {"files": ON_PCI | {"/sys/module/nvidia/refcnt": "1"}}, "pass"),
        ("driver.nouveau", {"files": ON_PCI | {"/sys/module/nouveau/refcnt": "1"}}, "fail"),
        ("driver.open-module", {}, "not-applicable"),
        ("driver.open-module", CARD, "not-applicable"),
        ("driver.open-module", BLACKWELL | {"driver": a_driver(is_open=None)}, "unknown"),
        ("driver.open-module", BLACKWELL | {"driver": a_driver()}, "pass"),
        ("driver.open-module", BLACKWELL | {"driver": a_driver(is_open=False)}, "fail"),
        ("driver.open-module", {"gpus": (a_gpu(compute_capability="7.0"),), "driver": a_driver()}, "fail"),
        ("driver.secure-boot", {}, "not-applicable"),
        ("driver.secure-boot", {"files": ON_PCI, "driver": a_driver(module_version="570.124.06")}, "pass"),
        ("driver.secure-boot", {"files": ON_PCI}, "unknown"),
        ("driver.secure-boot", {"files": ON_PCI, "tools": {"dmesg": "[1.0] Linux\n"}}, "pass"),
        (
            "driver.secure-boot",
            {"files": ON_PCI, "tools": {"dmesg": "[7.1] Loading of module: Key was rejected by service\n"}},
            "fail",
        ),
        ("driver.latency", {}, "not-applicable"),
        ("driver.latency", CARD, "unknown"),
        ("driver.latency", CARD | {"tools": {"nvidia-smi": "GPU 0\n"}}, "unknown"),
        ("driver.latency", CARD | {"tools": {"nvidia-smi": ToolResult(None, problem="no answer within 20 s")}}, "fail"),
        ("driver.held", {}, "not-applicable"),
        ("driver.held", CARD, "not-applicable"),
        ("driver.held", CARD | {"files": UPDATES}, "unknown"),
        ("driver.held", CARD | {"files": UPDATES, "tools": {"apt-mark showhold": "nvidia-driver-570\n"}}, "pass"),
        ("driver.held", CARD | {"files": UPDATES, "tools": {"apt-mark showhold": "\n"}}, "warn"),
    ],
)
def test_the_driver_is_judged(check, facts, expected):
    assert verdicts(CHECKS, check, a_patient(**facts)) == [expected]


@pytest.mark.parametrize(("took", "verdict"), [(0.1, "pass"), (3.0, "warn"), (12.0, "fail")])
def test_the_time_of_an_answer_is_judged(took, verdict, monkeypatch):
    patient = a_patient(**CARD, tools={"nvidia-smi": "GPU 0\n"})
    clock = iter([100.0, 100.0 + took])
    monkeypatch.setattr(patient.machine, "monotonic", lambda: next(clock))
    assert verdicts(CHECKS, "driver.latency", patient) == [verdict]


def test_the_error_is_told_by_number_and_name():
    told = only(CHECKS, "cuda.starts", a_patient(**HERE, tools=NOT_READY))
    assert told.text == "CUDA does not start: error 802 CUDA_ERROR_SYSTEM_NOT_READY"


# --- the child --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler for the made-up CUDA: apt-get install gcc")
    folder = tmp_path_factory.mktemp("cuda")
    source = Path(__file__).parents[3] / "fakes" / "cuda.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", folder / "libcuda.so.1", source], check=True)
    return folder


def child(**environment):
    env = {**os.environ, **environment}
    done = subprocess.run([sys.executable, *PROGRAM[1:]], env=env, capture_output=True, text=True, check=False)
    return parse(ToolResult(done.returncode, done.stdout, done.stderr))


def test_cuda_that_starts(library):
    told = child(LD_LIBRARY_PATH=str(library), FAKE_CUDA_COUNT="8")
    assert told == Started(code=0, count=8, version=12080)


def test_cuda_that_does_not_start(library):
    told = child(LD_LIBRARY_PATH=str(library), FAKE_CUDA_INIT="802")
    assert (told.code, told.name) == (802, "CUDA_ERROR_SYSTEM_NOT_READY")


def test_cuda_that_crashes_takes_its_child_alone(library):
    told = child(LD_LIBRARY_PATH=str(library), FAKE_CUDA_CRASH="1")
    assert isinstance(told, NotAsked)
    assert told.hangs


def test_a_machine_without_cuda(tmp_path):
    told = child(LD_LIBRARY_PATH=str(tmp_path))
    if told.library is None:
        pytest.skip("this machine has CUDA")
    assert "libcuda.so.1" in told.library


@given(st.text())
def test_whatever_it_prints_is_an_answer(text):
    assert isinstance(parse(ToolResult(0, text)), Started | NotAsked)
