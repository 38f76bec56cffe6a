"""Histories of the whole control loop keep every promise, and where the code does not, that is found."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.core import plan as planned
from llmgw.core.placement import Fleet, fleet
from llmgw.core.placement.checks import device_refusals
from llmgw.core.plan import Start
from tests.twin.history import Twin
from tests.twin.run import Played, again, play, read, shortened, write

SEEDS = range(1, 301)


def told(played: Played) -> str:
    return f"seed {played.seed}: {played.broken}; see `python -m tests.twin --from {played.seed} --seeds 1`"


@pytest.mark.parametrize("first", SEEDS[::25])
def test_histories_keep_every_promise(first):
    for seed in range(first, first + 25):
        played = play(seed)
        assert not played.broken, told(played)


@given(st.integers(10**6, 10**9))
@settings(max_examples=60, derandomize=True)
def test_so_do_others(seed):
    played = play(seed)
    assert not played.broken, told(played)


def test_a_seed_tells_the_same_history_each_time():
    assert play(7) == play(7)
    assert play(7).events != play(8).events


def test_a_history_is_the_same_from_its_file(tmp_path):
    played = play(11)
    file = write(played, tmp_path)
    assert json.loads(file.read_text())["events"] == played.events
    assert replace(read(file), scene=played.scene) == played


def first_broken(seeds=60):
    return next((played for played in map(play, range(seeds)) if played.broken), None)


class TestBrokenRules:
    """The twin is of use only if it finds what is wrong."""

    def broken(self, promise, seeds=60):
        played = first_broken(seeds)
        assert played is not None
        shorter = shortened(played)
        assert promise in played.promise == shorter.promise
        assert len(shorter.events) <= len(played.events)
        assert again(shorter.scene, shorter.events).promise == shorter.promise

    def test_a_device_given_twice(self, monkeypatch):
        monkeypatch.setattr(Fleet, "free", lambda _self, _node, devices: list(devices))
        self.broken("a device is given beyond its slots")

    def test_one_started_too_many(self, monkeypatch):
        self.plan_with(monkeypatch, lambda model: replace(model, replicas=model.replicas + 2))
        self.broken("than asked")

    def test_one_started_too_few(self, monkeypatch):
        self.plan_with(monkeypatch, lambda model: replace(model, replicas=max(model.replicas - 1, 0)))
        self.broken("one is wanted, and nothing is said")

    def test_nothing_is_ever_started(self, monkeypatch):
        plan = planned.plan

        def lazy(snapshot, now):
            done = plan(snapshot, now)
            return replace(done, actions=tuple(one for one in done.actions if not isinstance(one, Start)))

        monkeypatch.setattr(planned, "plan", lazy)
        self.broken("second pass finds more to do")

    def test_a_refusal_that_is_not_so(self, monkeypatch):
        def by_strangers(node, need, _held):
            return device_refusals(node, need, {device.id: ["a stranger"] * device.slots for device in node.devices})

        monkeypatch.setattr(fleet, "device_refusals", by_strangers)
        self.broken("a refusal is not true")

    def test_an_order_that_is_lost_for_good(self, monkeypatch):
        monkeypatch.setattr(Twin, "on_orders", lambda _self, _name, _fates: None)
        self.broken("not at rest")

    def plan_with(self, monkeypatch, change):
        plan = planned.plan

        def other(snapshot, now):
            return plan(replace(snapshot, models=tuple(change(model) for model in snapshot.models)), now)

        monkeypatch.setattr(planned, "plan", other)
