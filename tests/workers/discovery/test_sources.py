"""A source that hangs or breaks costs its own facts, for as long as it does, and nothing else."""

import threading

import pytest

from tests.fakes.machine import FakeMachine
from workers.discovery.sources import Inquiry, Source

NOW = 1_000_000.0


class Tap:
    """A source that answers when it is let: with what stands in `says`, or by raising it."""

    def __init__(self, says):
        self.says = says
        self.asked = 0
        self.opened = threading.Event()
        self.opened.set()

    def __call__(self):
        self.asked += 1
        self.opened.wait(10)
        if isinstance(self.says, Exception):
            raise self.says
        return self.says


@pytest.fixture
def tap():
    tap = Tap("first")
    yield tap
    tap.opened.set()


def ask(inquiry, seconds=5.0):
    inquiry.begin()
    return inquiry.wait(seconds)


def test_an_answer_is_told_with_its_moment(tap):
    answer = ask(Inquiry(Source("ports", tap), FakeMachine()))
    assert (answer.value, answer.at, answer.problem) == ("first", NOW, None)


def test_one_that_hangs_is_not_waited_for_and_what_it_told_before_holds_on(tap):
    machine = FakeMachine()
    inquiry = Inquiry(Source("ports", tap), machine)
    ask(inquiry)
    machine.at += 60
    tap.opened.clear()
    answer = ask(inquiry, 0)
    assert (answer.value, answer.at) == ("first", NOW)
    assert (answer.problem.code, answer.problem.fact) == ("ports.held-up", "ports")
    assert answer.problem.text.startswith("ports: still being asked since 1970-01-12 13:47:40 UTC; what is said")


def test_one_that_hangs_is_not_asked_again_before_it_has_answered(tap):
    tap.opened.clear()
    inquiry = Inquiry(Source("ports", tap), FakeMachine())
    first = [ask(inquiry, 0) for _ in range(3)]
    assert {answer.problem for answer in first} == {first[0].problem}, "said once, not anew at each look"
    assert "nothing is known of it yet" in first[0].problem.text
    tap.opened.set()
    assert inquiry.wait(5).value == "first"
    assert tap.asked == 1
    tap.says = "second"
    assert ask(inquiry).value == "second"


def test_one_that_breaks_is_told_and_asked_again(tap):
    inquiry = Inquiry(Source("ports", tap, every_s=3600), FakeMachine())
    tap.says = ValueError("odd file")
    answer = ask(inquiry)
    assert (answer.value, answer.problem.code, answer.problem.literal) == (None, "ports.garbage", "odd file")
    tap.says = "first"
    assert ask(inquiry).value == "first"


def test_one_for_which_there_is_no_thread_is_asked_again(tap, monkeypatch):
    def none_left(_):
        raise RuntimeError("can't start new thread")

    inquiry = Inquiry(Source("ports", tap), FakeMachine())
    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", none_left)
        answer = ask(inquiry)
    assert (answer.value, answer.problem.literal) == (None, "can't start new thread")
    assert ask(inquiry).value == "first"


def test_a_slow_source_is_asked_again_only_after_its_time(tap):
    machine = FakeMachine()
    inquiry = Inquiry(Source("topology", tap, every_s=60), machine)
    ask(inquiry)
    tap.says = "second"
    machine.at += 59
    assert ask(inquiry).value == "first"
    machine.at += 1
    assert ask(inquiry).value == "second"
