"""Our questions to NVML, against a library that is compiled for the test, through the real machine."""

import shutil
import subprocess
from pathlib import Path

import pytest

from llmgw.core.units import MIB, Bytes
from workers.discovery import gpus, nvml
from workers.discovery.cards import Card
from workers.settings import NodeSettings
from workers.system import RealMachine

SOURCE = Path(__file__).with_name("fake_nvml.c")
H100 = "NVIDIA H100 80GB HBM3"


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler: the library that stands in for NVML cannot be made")
    built = tmp_path_factory.mktemp("nvml") / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(built), str(SOURCE)], check=True)
    return built


def machine(monkeypatch, **says):
    for name, value in says.items():
        monkeypatch.setenv(f"FAKE_NVML_{name.upper()}", str(value))
    return RealMachine()


def ask(machine, library, timeout=20.0):
    return machine.output((*nvml.PROGRAM, str(library)), timeout)


def test_cards_are_told(library, monkeypatch):
    answer = ask(machine(monkeypatch, gpus=3, lost=1, mig=2), library)
    memory = Bytes(81559 * MIB)
    assert nvml.parse(answer.out) == (
        Card("GPU-0", H100, memory),
        Card("GPU-1", None, None, dead="GPU is lost"),
        Card("GPU-2", H100, memory, is_cut=True),
    )


def test_a_driver_that_fails_is_told_in_its_words(library, monkeypatch):
    answer = ask(machine(monkeypatch, fails=18), library)
    assert (answer.code, answer.err) == (1, "RM has detected an NVML/RM version mismatch.\n")


def test_a_library_that_is_none_is_told(tmp_path, monkeypatch):
    wrong = tmp_path / "libnvidia-ml.so.1"
    wrong.write_text("not a library")
    answer = ask(machine(monkeypatch), wrong)
    assert answer.code == 1
    assert "libnvidia-ml.so.1" in answer.err


def test_a_driver_that_hangs_costs_the_deadline_and_no_more(library, monkeypatch):
    answer = ask(machine(monkeypatch, hangs=1), library, timeout=1.0)
    assert answer.problem == "no answer within 1 s"


def test_the_settings_may_name_the_library(library, monkeypatch):
    devices, problems = gpus.find(machine(monkeypatch, gpus=1), NodeSettings(id="n1", nvml=str(library)))
    assert [(device.id, device.device_class) for device in devices] == [("GPU-0", "h100-80g")]
    assert problems == ()
