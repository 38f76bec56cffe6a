"""NVML in a child process: what it says, and what becomes of a library that is not there, hangs, crashes or lies."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.core.hardware.findings import Problem
from tests.fakes import nvml as fake_nvml
from workers.discovery.nvidia import nvml
from workers.discovery.nvidia.cards import Cards
from workers.ports import ToolResult
from workers.settings import NodeSettings
from workers.system import RealMachine


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    return fake_nvml.compiled(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def ask(tmp_path, library):
    def run(*cards, limit=20.0, environment=(), **machine):
        file = fake_nvml.described(tmp_path, cards=cards, **machine)
        settings = NodeSettings(id="n1", nvml=str(library), tool_limits_s={"nvml": limit})
        return nvml.ask(RealMachine({**os.environ, "FAKE_NVML": str(file), **dict(environment)}), settings)

    return run


CARD = {"uuid": "GPU-1", "name": "NVIDIA L4", "total": 23034, "used": 10, "reserved": 400, "free": 22624}


def test_a_driver_without_cards_says_so(ask):
    cards = ask()
    assert (cards.gpus, cards.driver.attached, cards.driver.version) == ((), 0, "580.95.05")


@pytest.mark.parametrize(
    ("code", "problem"),
    [(18, "nvml.mismatch"), (9, "nvml.driver-not-loaded"), (4, "nvml.not-allowed"), (999, "nvml.exit")],
)
def test_a_driver_that_cannot_be_asked_says_why(ask, code, problem):
    told = ask(init=f"!{code}")
    assert isinstance(told, Problem)
    assert told.code == problem
    assert told.literal


def test_a_library_that_is_not_there_is_told(tmp_path):
    settings = NodeSettings(id="n1", nvml=str(tmp_path / "none.so"))
    told = nvml.ask(RealMachine(), settings)
    assert told.code == "nvml.library-not-found"
    assert "none.so" in told.literal


def test_a_library_without_the_newer_memory_question_is_asked_the_older(ask):
    (gpu,) = ask(CARD, old=1).gpus
    assert (gpu.memory_total_bytes >> 20, gpu.memory_used_bytes >> 20, gpu.memory_reserved_bytes) == (23034, 410, None)


def test_one_failed_fact_costs_itself(ask):
    cards = ask({**CARD, "temperature": "!999"})
    assert (cards.gpus[0].temperature_celsius, cards.gpus[0].failed) == (None, None)
    assert [(bad.code, bad.fact) for bad in cards.problems] == [("nvml.field-failed", "gpu 0: temperature")]


def test_a_card_that_needs_a_reset_has_failed(ask):
    cards = ask({**CARD, "temperature": "!16"})
    assert (cards.gpus[0].failed, cards.problems) == ("GPU requires restart", ())


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
    assert nvml.parse(answer).code == code


@given(st.text())
def test_whatever_is_printed_is_read_or_not(text):
    assert isinstance(nvml.parse(ToolResult(0, text)), Cards | Problem)
