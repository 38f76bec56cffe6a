"""The doctor in the worker: its thread outlives whatever one examination meets."""

import time

import pytest

from llmgw.core.hardware.examination import Examination
from llmgw.core.units import Bytes
from llmgw.core.wire import Inventory
from tests.fakes.machine import FakeMachine
from workers.doctor.watch import DoctorWatch
from workers.settings import NodeSettings

NOTHING = Inventory(devices=(), cpu_count=1, memory_total=Bytes(0))


@pytest.fixture
def watching(tmp_path):
    """Start watches that are stopped with the test."""
    watches = []

    def start(inventory, told, *, every=3600, first_s=0.01):
        settings = NodeSettings(id="n1", state=tmp_path / "none", doctor_s=every)
        watches.append(DoctorWatch(FakeMachine(), settings, inventory, told, first_s=first_s))
        watches[-1].start()
        return watches[-1]

    yield start
    for watch in watches:
        watch.stop()


class Breaks:
    """Whoever calls it; counts how often."""

    calls = 0

    def __call__(self, *_):
        self.calls += 1
        raise ZeroDivisionError


def test_it_runs_a_while_after_the_first_look_and_when_it_is_ordered(watching, eventually):
    told: list[Examination] = []
    seen = [None, None, NOTHING]
    watch = watching(lambda: seen.pop(0) if len(seen) > 1 else seen[0], told.append)
    eventually(lambda: len(told) == 1)
    watch.ask()
    eventually(lambda: len(told) == 2)
    assert all(examination.outcomes for examination in told)


def test_where_it_is_switched_off_it_runs_when_it_is_ordered(watching, eventually):
    told: list[Examination] = []
    watch = watching(lambda: NOTHING, told.append, every=0)
    time.sleep(0.05)
    assert not told
    watch.ask()
    eventually(lambda: len(told) == 1)


def test_one_that_breaks_is_not_tried_again_at_once(watching, eventually):
    breaks = Breaks()
    watch = watching(breaks, print)
    eventually(lambda: breaks.calls)
    time.sleep(0.1)
    assert breaks.calls == 1
    watch.ask()
    eventually(lambda: breaks.calls == 2)


def test_what_cannot_be_handed_on_does_not_end_the_watch(watching, eventually):
    breaks = Breaks()
    watch = watching(lambda: NOTHING, breaks)
    eventually(lambda: breaks.calls == 1)
    watch.ask()
    eventually(lambda: breaks.calls == 2)
