"""NVML in a child process: what it says, and what becomes of a library that is not there, hangs, crashes or lies."""

import os

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.core.hardware.findings import Problem
from llmgw.core.hardware.gpus import Driver, Gpu
from tests.fakes import nvml as fake_nvml
from workers.discovery.nvidia import nvml
from workers.discovery.nvidia.cards import Cards
from workers.discovery.nvidia.nvml_lines import Begun, Done, Told
from workers.ports import ToolResult
from workers.settings import NodeSettings
from workers.system import RealMachine


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    return fake_nvml.compiled(tmp_path_factory.mktemp("nvml"))


@pytest.fixture(scope="session")
def old_library(tmp_path_factory):
    return fake_nvml.compiled(tmp_path_factory.mktemp("old-nvml"), old=True)


@pytest.fixture
def ask(tmp_path, library):
    def run(*cards, limit=20.0, environment=(), by=library, **machine):
        file = fake_nvml.described(tmp_path, cards=cards, **machine)
        settings = NodeSettings(id="n1", nvml=str(by), tool_limits_s={"nvml": limit})
        return nvml.ask(RealMachine({**os.environ, "FAKE_NVML": str(file), **dict(environment)}), settings)

    return run


CARD = {"uuid": "GPU-1", "name": "NVIDIA L4", "total": 23034, "used": 10, "reserved": 400, "free": 22624}


def test_a_driver_without_cards_says_so(ask):
    cards = ask()
    assert (cards.gpus, cards.driver.attached, cards.driver.version) == ((), 0, "580.95.05")


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        (18, "nvml.mismatch"),
        (9, "nvml.driver-not-loaded"),
        (17, "nvml.os"),
        (4, "nvml.not-allowed"),
        (999, "nvml.exit"),
    ],
)
def test_a_driver_that_cannot_be_asked_says_why(ask, code, problem):
    told = ask(init=f"!{code}")
    assert isinstance(told, Problem)
    assert told.code == problem
    assert told.literal


def test_a_library_that_is_not_there_is_told(tmp_path):
    settings = NodeSettings(id="n1", nvml=str(tmp_path / "none.so"))
    told = nvml.ask(RealMachine(), settings)
    assert isinstance(told, Problem)
    assert told.code == "nvml.library-not-found"
    assert "none.so" in told.literal


def test_a_file_that_is_no_library_is_told(tmp_path):
    (tmp_path / "libnvidia-ml.so.1").write_text("not a library")
    told = nvml.ask(RealMachine(), NodeSettings(id="n1", nvml=str(tmp_path / "libnvidia-ml.so.1")))
    assert isinstance(told, Problem)
    assert told.code == "nvml.library-not-found"


def test_a_library_of_something_else_is_told():
    told = nvml.ask(RealMachine(), NodeSettings(id="n1", nvml="/lib/x86_64-linux-gnu/libm.so.6"))
    assert isinstance(told, Problem)
    assert told.code in {"nvml.function-not-found", "nvml.library-not-found"}


def test_an_old_library_is_asked_in_the_forms_that_it_knows(ask, old_library):
    facts = {"temperature": 41, "compute": "7,100 8,200", "graphics": "8,1", "reasons": "0x44", "fabric": "3,0,0,0"}
    cards = ask({**CARD, **facts}, by=old_library)
    (gpu,) = cards.gpus
    assert (gpu.memory_total_bytes >> 20, gpu.memory_used_bytes >> 20, gpu.memory_reserved_bytes) == (23034, 410, None)
    assert (gpu.temperature_celsius, gpu.throttle_reasons) == (41, ("hw-thermal", "sw-power-cap"))
    assert [(each.pid, each.kind, each.memory_bytes >> 20) for each in gpu.processes] == [
        (7, "compute", 100),
        (8, "both", 200),
    ]
    assert (gpu.fabric, cards.problems) == (None, ())


def test_repairs_and_limits_of_memory_are_read(ask):
    facts = {"sram_exceeded": 1, "unrepairable": 0, "repair": "1,0", "addressing": 2, "inforom": "!14"}
    (gpu,) = ask({**CARD, **facts}).gpus
    ecc = gpu.ecc
    assert (ecc.sram_threshold_exceeded, ecc.unrepairable_memory) == (True, False)
    assert (ecc.channel_repair_pending, ecc.tpc_repair_pending) == (True, False)
    assert (gpu.addressing_mode, gpu.inforom_ok) == ("ats", False)


def test_errors_are_added_up_where_there_is_no_total(ask):
    (gpu,) = ask({**CARD, "errors.1.0.2": 3, "errors.1.0.7": 1}).gpus
    assert (gpu.ecc.uncorrected_volatile, gpu.ecc.corrected_volatile) == (4, None), "unknown is not 0"


SICK = "3,0,2,dc6e40c4d72243579ba65291dd461278,349,2"
"""Less bandwidth, no recovery, nothing said of routes, a timeout that is being recovered from, a wrong chassis."""


def test_the_health_of_a_fabric_is_read_bit_by_bit(ask):
    (gpu,) = ask({**CARD, "fabric": SICK}).gpus
    fabric = gpu.fabric
    assert (fabric.domain, fabric.health) == ("dc6e40c4-d722-4357-9ba6-5291dd461278.2", "unhealthy")
    assert (fabric.bandwidth, fabric.route_recovery, fabric.route_unhealthy) == ("degraded", False, None)
    assert (fabric.access_timeout_recovery, fabric.incorrect_configuration) == (True, "incorrect chassis sn")


def test_a_library_that_knows_the_second_form_of_fabrics_alone_is_asked_in_that(ask):
    (gpu,) = ask({**CARD, "fabric": SICK}, fabric=2).gpus
    assert (gpu.fabric.clique_id, gpu.fabric.bandwidth, gpu.fabric.health) == (2, "degraded", None)


def test_a_fabric_that_was_joined_with_an_error_says_so(ask):
    (gpu,) = ask({**CARD, "fabric": "3,999,0,0"}).gpus
    assert (gpu.fabric.state, gpu.fabric.status, gpu.fabric.domain) == ("completed", "unknown error", None)


def test_an_instance_whose_name_tells_no_profile_is_named_by_its_size(ask):
    parts = {0: {"uuid": "MIG-GPU-1/3/0", "name": "?", "gi": 3, "ci": 0, "total": 19968, "slices": 3, "sms": 42}}
    (gpu,) = ask({**CARD, "mig": "1,1", "parts": parts}).gpus
    (part,) = gpu.instances
    assert (part.profile, part.uuid, part.multiprocessors) == ("3g.20gb", "MIG-GPU-1/3/0", 42)


def test_one_failed_fact_costs_itself(ask):
    cards = ask({**CARD, "temperature": "!999"})
    assert (cards.gpus[0].temperature_celsius, cards.gpus[0].failed) == (None, None)
    assert [(bad.code, bad.fact) for bad in cards.problems] == [("nvml.field-failed", "gpu 0: temperature")]


def test_a_card_that_needs_a_reset_has_failed(ask):
    cards = ask({**CARD, "temperature": "!16"})
    assert (cards.gpus[0].failed, cards.problems) == ("GPU requires restart", ())


def test_a_card_of_which_nothing_can_be_read_has_failed(ask):
    dead = dict.fromkeys(("temperature", "utilization", "milliwatts"), "!999")
    cards = ask({**CARD, **dead})
    assert (cards.gpus[0].uuid, cards.gpus[0].failed, cards.problems) == ("GPU-1", "Unknown Error", ())


def test_what_may_not_be_read_is_no_failure(ask):
    closed = dict.fromkeys(("name", "total", "temperature", "utilization", "milliwatts"), "!4")
    cards = ask({"uuid": "GPU-1", **closed})
    assert cards.gpus[0].failed is None
    assert {problem.code for problem in cards.problems} == {"nvml.not-allowed"}


def test_a_card_that_is_for_others_is_told_and_is_no_failure(ask):
    cards = ask(CARD, {"handle": "!4"})
    assert [gpu.index for gpu in cards.gpus] == [0]
    assert [(bad.code, bad.fact) for bad in cards.problems] == [("nvml.not-allowed", "gpu 1: handle")]


@pytest.mark.parametrize(
    ("code", "words"), [(15, "GPU is lost"), (16, "GPU requires restart"), (8, "Insufficient External Power")]
)
def test_a_card_without_a_handle_keeps_its_number_and_hides_no_other(ask, code, words):
    cards = ask(CARD, {"handle": f"!{code}"}, {**CARD, "uuid": "GPU-2"})
    assert [(gpu.index, gpu.uuid, gpu.failed) for gpu in cards.gpus] == [
        (0, "GPU-1", None),
        (1, None, words),
        (2, "GPU-2", None),
    ]


def test_a_hang_costs_the_card_and_those_after_it(ask):
    cards = ask(CARD, {**CARD, "uuid": "GPU-2"}, CARD, limit=4.0, environment=[("FAKE_NVML_HANGS", "1")])
    assert [(gpu.uuid, gpu.failed) for gpu in cards.gpus] == [
        ("GPU-1", None),
        (None, "NVML does not answer for it"),
        (None, "NVML does not answer for it"),
    ]
    assert [problem.code for problem in cards.problems] == ["nvml.timeout"]


def test_a_crash_is_told_as_such(ask):
    cards = ask(CARD, CARD, environment=[("FAKE_NVML_CRASHES", "1")])
    assert [gpu.failed for gpu in cards.gpus] == [None, "NVML does not answer for it"]
    assert [problem.code for problem in cards.problems] == ["nvml.crashed"]


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (ToolResult(None, problem="no answer within 20 s"), "nvml.timeout"),
        (ToolResult(None, problem="held up since 12:00:00"), "nvml.held-up"),
        (ToolResult(None, problem="not found"), "nvml.not-allowed"),
        (ToolResult(-11), "nvml.crashed"),
        (ToolResult(0, "hello"), "nvml.garbage"),
    ],
)
def test_no_answer_is_a_problem(answer, code):
    told = nvml.parse(answer)
    assert isinstance(told, Problem)
    assert told.code == code


@given(st.text())
def test_whatever_is_printed_is_read_or_not(text):
    assert isinstance(nvml.parse(ToolResult(0, text)), Cards | Problem)


WHOLE = "".join(
    msgspec.json.encode(line).decode() + "\n"
    for line in (
        Begun(Driver(version="580.95.05", source="nvml", attached=3)),
        *(Told(Gpu(index=n, uuid=f"GPU-{n}", name="NVIDIA L4")) for n in range(3)),
        Done(),
    )
)


@given(st.integers(0, len(WHOLE)), st.text(max_size=5))
def test_wherever_it_breaks_off_the_cards_before_are_kept_and_the_others_named(end, noise):
    told = nvml.parse(ToolResult(-9, WHOLE[:end] + "\n" + noise))
    if isinstance(told, Problem):
        assert told.code == "nvml.crashed"
        return
    assert [gpu.index for gpu in told.gpus] == [0, 1, 2]
    assert all(gpu.uuid == f"GPU-{gpu.index}" or gpu.failed == nvml.UNANSWERED for gpu in told.gpus)
    assert nvml.is_broken_off(told) == (sum(gpu.uuid is not None for gpu in told.gpus) < 3)
