"""Ticks are answered once, in order, from memory, and never wait."""

import time

import msgspec
import pytest

from llmgw.core import wire
from tests.servers import Valkey
from workers.heartbeat import Heart


def told(tick):
    return wire.Beat(tick=tick, epoch=3, instance="i", boot_id="b", digest="00000000")


@pytest.fixture
def server(tmp_path):
    running = Valkey(tmp_path / "redis").start()
    yield running
    running.kill()


@pytest.fixture
def heart(server):
    made = Heart(server.url, "n1", told)
    yield made
    made.close()


def read(server):
    with server.client() as client:
        beat = client.hgetall(wire.beat_key("n1"))
        return client.zscore(wire.HEARD_KEY, "n1"), beat, client.ttl(wire.beat_key("n1"))


def test_an_answer_is_a_beat_that_expires_and_a_number_that_stays(heart, server):
    assert heart.answer(5, 100.0)
    heard, beat, lives = read(server)
    assert heard == 5
    assert msgspec.convert(beat, wire.Beat, strict=False) == told(5)
    assert 30 < lives <= 60


@pytest.mark.parametrize("late", [(5, 100.0), (4, 98.0), (4, 100.0)])
def test_late_and_repeated_ticks_change_nothing(heart, server, late):
    heart.answer(5, 100.0)
    assert not heart.answer(*late)
    assert read(server)[0] == 5


def test_a_counter_that_begins_anew_is_followed(heart, server):
    heart.answer(500, 100.0)
    assert heart.answer(1, 102.0)
    assert read(server)[0] == 1


def test_a_clock_that_is_set_back_is_no_reason_to_fall_silent(heart, server):
    heart.answer(5, 100.0)
    assert heart.answer(6, 40.0)
    assert read(server)[0] == 6


def test_redis_away_costs_a_moment_and_one_warning(heart, server, caplog):
    heart.answer(1, 1.0)
    server.kill()
    begun = time.monotonic()
    assert not heart.answer(2, 2.0)
    assert not heart.answer(3, 3.0)
    assert time.monotonic() - begun < 2.5
    server.start()
    assert heart.answer(4, 4.0), "the first tick after Redis is back is answered"
    assert read(server)[0] == 4


def test_an_answer_is_cheap(heart):
    heart.answer(1, 1.0)
    took = []
    for tick in range(2, 202):
        begun = time.perf_counter()
        heart.answer(tick, float(tick))
        took.append(time.perf_counter() - begun)
    print(f"heartbeat: median {sorted(took)[100] * 1e6:.0f} µs, worst {max(took) * 1e6:.0f} µs")
    assert sorted(took)[100] < 0.01
