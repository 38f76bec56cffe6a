"""The sweep on a real Redis: who is judged, and who is not."""

from typing import NamedTuple

import msgspec
import pytest
import structlog
from kombu import Connection, Consumer
from kombu.common import Broadcast

from apps.audit.actions import BEAT
from apps.nodes import actions, heartbeats
from apps.nodes.models import NodeRow
from apps.nodes.redis import client
from apps.nodes.tasks import heartbeat
from llmgw import schedule
from llmgw.celery import app
from llmgw.core import wire
from llmgw.core.world import NodeState
from tests.apps.nodes.reports import a_beat, a_registration, at
from workers.app import make_app
from workers.settings import NodeSettings

READY, UNREACHABLE, LOST, JOINING = NodeState.READY, NodeState.UNREACHABLE, NodeState.LOST, NodeState.JOINING
PERIOD = 2.0

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("redis_url")]


class Clock:
    """The control plane's: each beat of it is one period later, and the gate is open again."""

    def __init__(self):
        self.now = at(100)
        self.beats = 0

    def beat(self, *answering, epoch=1, times=1):
        """Sweep, and have these nodes answer the tick."""
        for _ in range(times):
            client().delete(heartbeats.GATE_KEY)
            self.beats += 1
            self.now = at(100 + self.beats * PERIOD)
            tick = heartbeats.sweep(self.now)
            if tick is not None:
                for node in answering:
                    answer(node, tick, epoch)
        return tick

    def sleep(self, seconds):
        self.beats += seconds / PERIOD


def answer(node, tick, epoch=1, **told):
    """Answer a tick as a node does."""
    beat = msgspec.to_builtins(a_beat(tick, epoch=epoch, **told))
    with client().pipeline() as pipe:
        pipe.hset(wire.beat_key(node), mapping=beat)
        pipe.expire(wire.beat_key(node), 60)
        pipe.zadd(wire.HEARD_KEY, {node: tick})
        pipe.execute()


@pytest.fixture
def clock():
    return Clock()


def state(name="gpu07"):
    return NodeRow.objects.get(name=name).state


def test_the_name_of_the_task_is_that_of_the_schedule():
    assert heartbeat.name == schedule.HEARTBEAT
    assert schedule.HEARTBEAT in app.tasks


def test_ticks_are_numbered(clock):
    assert [clock.beat(), clock.beat(), clock.beat()] == [1, 2, 3]


def test_a_node_that_answers_stays_ready(joined, clock):
    joined()
    clock.beat("gpu07", times=20)
    assert state() == READY


def test_a_sweep_without_news_writes_nothing_of_ours(joined, clock):
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    joined()
    clock.beat("gpu07", times=2)
    with CaptureQueriesContext(connection) as done:
        clock.beat("gpu07")
    assert not [query["sql"] for query in done if query["sql"].startswith('UPDATE "nodes_')]


def test_a_silent_node_is_unreachable_after_three_ticks_and_lost_after_nine(joined, clock):
    joined("gpu07")
    joined("gpu08")
    clock.beat("gpu07", "gpu08")
    states = []
    for _ in range(10):
        clock.beat("gpu08")
        states.append(state("gpu07"))
    # The first of these sweeps still finds the tick before answered.
    assert states == [READY] * 3 + [UNREACHABLE] * 6 + [LOST]
    assert state("gpu08") == READY


def test_a_dead_node_is_given_up_within_twenty_seconds(joined, clock):
    joined()
    clock.beat("gpu07")
    died = clock.now
    while state() != LOST:
        clock.beat()
    assert (clock.now - died).total_seconds() <= 20


def test_an_unreachable_node_is_ready_as_soon_as_it_is_heard(joined, clock, told):
    joined()
    clock.beat("gpu07")
    clock.beat(times=5)
    assert state() == UNREACHABLE
    clock.beat("gpu07")
    clock.beat("gpu07")
    assert state() == READY
    assert [each["was"] for each in told["node_returned"]] == [UNREACHABLE]


def test_a_lost_node_that_is_heard_is_joining_until_it_has_registered(joined, clock, told):
    joined()
    clock.beat("gpu07")
    clock.beat(times=10)
    assert (state(), NodeRow.objects.get().epoch) == (LOST, 2)
    clock.beat("gpu07", times=3)
    assert state() == JOINING
    assert [each["was"] for each in told["node_returned"]] == [LOST]
    assert actions.receive(a_registration(epoch=2, seq=9), now=clock.now).taken
    clock.beat("gpu07", epoch=2, times=3)
    assert state() == READY


def test_a_control_plane_that_slept_gives_nobody_up(joined, clock):
    joined()
    clock.beat("gpu07", times=3)
    clock.sleep(3600)
    clock.beat()
    assert state() == READY
    clock.beat("gpu07")
    clock.sleep(3600)
    clock.beat("gpu07", times=2)
    assert state() == READY


def test_a_burst_of_late_heartbeats_is_one(joined, clock):
    """All at the same moment, as when a worker finds a backlog: the gate lets one through."""
    joined()
    clock.beat("gpu07")
    ticks = [heartbeats.sweep(clock.now) for _ in range(10)]
    assert ticks == [None] * 10
    clock.beat()
    assert [heartbeats.sweep(clock.now) for _ in range(10)] == [None] * 10
    assert client().get(wire.TICK_KEY) == b"2"
    assert state() == READY


def test_the_gate_opens_again_by_itself(settings, eventually):
    settings.LLMGW_HEARTBEAT_S = 0.2
    assert heartbeats.sweep(at(0)) == 1
    assert heartbeats.sweep(at(0)) is None
    assert eventually(lambda: heartbeats.sweep(at(1))) == 2


def test_an_emptied_redis_gives_nobody_up_and_counts_on(joined, clock):
    joined("gpu07")
    joined("gone")
    clock.beat("gpu07", "gone")
    clock.beat("gpu07", times=4)
    assert state("gone") == UNREACHABLE
    last = NodeRow.objects.get(name="gone").last_tick
    client().flushall()
    assert clock.beat() == last + 1
    for _ in range(8):
        clock.beat("gpu07")
        assert state("gpu07") == READY
        assert state("gone") == UNREACHABLE
    clock.beat("gpu07", times=2)
    assert (state("gpu07"), state("gone")) == (READY, LOST)


def test_an_answer_to_a_tick_of_the_old_redis_does_not_keep_a_dead_node_alive(joined, clock):
    joined()
    clock.beat("gpu07", times=5)
    client().flushall()
    clock.beat()
    answer("gpu07", 5000)
    clock.beat(times=9)
    assert state() == LOST


def test_a_node_that_has_just_registered_has_missed_nothing(joined, clock):
    clock.beat(times=20)
    joined(now=clock.now)
    clock.beat()
    assert state() == READY


def test_a_node_that_never_answers_is_given_up_too(joined, clock):
    joined(now=clock.now)
    clock.beat(times=10)
    assert state() == LOST


def test_a_node_that_answers_and_that_nobody_knows_is_told_hello(clock, told):
    clock.beat("gpu07", epoch=3)
    clock.beat("gpu07", epoch=3)
    assert (state(), NodeRow.objects.get().epoch) == (JOINING, 4)
    assert [each["node"].name for each in told["node_returned"]] == ["gpu07"]


# --- what others are told


def test_each_sweep_tells_its_tick_and_the_answers_to_the_one_before(joined, clock, told):
    joined("gpu07")
    joined("late")
    clock.beat("gpu07")
    answer("late", 0)
    clock.beat()
    first, second = told["ticked"]
    assert (first["tick"], first["beats"]) == (1, {})
    assert (second["tick"], second["beats"], second["now"]) == (2, {"gpu07": a_beat(1)}, clock.now)


def test_a_beat_that_is_none_is_left_out(joined, clock, told):
    joined()
    tick = clock.beat("gpu07")
    client().hset(wire.beat_key("gpu07"), "epoch", "many")
    clock.beat()
    assert told["ticked"][-1]["beats"] == {}
    assert tick == 1
    assert state() == READY


def test_one_listener_that_fails_does_not_stop_the_sweep(joined, clock, told):
    from apps.nodes.signals import ticked

    def fail(**kwargs):
        raise ValueError("not ours")

    ticked.connect(fail)
    try:
        with structlog.testing.capture_logs() as logs:
            assert clock.beat() == 1
    finally:
        ticked.disconnect(fail)
    assert [line["log_level"] for line in logs if "follows a tick" in line["event"]] == ["error"]


def test_how_long_ago_each_node_was_heard(joined, clock):
    joined()
    clock.beat("gpu07")
    clock.beat(times=3)
    assert heartbeats.last_heard(clock.now) == {"gpu07": 3 * PERIOD}


# --- Redis away


def test_while_redis_is_away_nobody_is_judged_and_the_log_says_so_once(joined, own_redis, settings, eventually):
    joined()
    settings.REDIS_URL = own_redis.url
    clock = Clock()
    clock.beat("gpu07", times=2)
    own_redis.kill()
    with structlog.testing.capture_logs() as logs:
        for seconds in range(300, 340):
            assert heartbeats.sweep(at(seconds)) is None
    assert [line["event"] for line in logs] == ["Redis cannot be reached: no ticks are sent and no node is judged"]
    assert state() == READY
    assert heartbeats.last_heard(at(340)) == {}
    own_redis.start()
    settings.REDIS_URL = own_redis.url
    with structlog.testing.capture_logs() as logs:
        assert eventually(lambda: heartbeats.sweep(at(400))) == 3
    assert [line["event"] for line in logs] == ["Redis is back: ticks go on"]
    assert state() == READY


# --- the broadcast


class Seen(NamedTuple):
    """A tick as it arrived."""

    task: str
    kwargs: dict
    expires: str | None


def ticks_of(redis_server, node):
    """The queue that this node's own worker reads its ticks from."""
    queues = make_app(NodeSettings(id=node, redis_url=redis_server)).amqp.queues
    app.set_current()  # here the control plane's remains the one that sends
    return [queue for queue in queues.values() if isinstance(queue, Broadcast)]


def test_every_node_hears_every_tick(redis_server, clock, eventually):
    seen: dict[str, list[Seen]] = {"a": [], "b": []}

    def hear(name):
        def heard(body, message):
            seen[name].append(Seen(message.headers["task"], body[1], message.headers["expires"]))
            message.ack()

        return heard

    def drained(connection):
        try:
            connection.drain_events(timeout=0.2)
        except TimeoutError:
            return

    with (
        Connection(redis_server) as one,
        Connection(redis_server) as two,
        Consumer(one.channel(), ticks_of(redis_server, "a"), callbacks=[hear("a")], accept=["json"]),
        Consumer(two.channel(), ticks_of(redis_server, "b"), callbacks=[hear("b")], accept=["json"]),
    ):
        drained(one)
        drained(two)
        clock.beat()
        first = clock.now
        clock.beat()
        eventually(lambda: (drained(one), drained(two), len(seen["a"]) == len(seen["b"]) == 2)[-1])
    expected = [
        Seen(wire.TICK_TASK, {"tick": 1, "at": first.timestamp()}, None),
        Seen(wire.TICK_TASK, {"tick": 2, "at": clock.now.timestamp()}, None),
    ]
    assert seen == {"a": expected, "b": expected}


def test_ticks_that_nobody_hears_leave_nothing_behind(clock):
    clock.beat(times=40)
    kept = set(client().scan_iter())
    assert kept <= {key.encode() for key in (wire.TICK_KEY, heartbeats.SENT_KEY, heartbeats.GATE_KEY, wire.ROUTES_KEY)}
    assert client().zcard(heartbeats.SENT_KEY) <= 20


@pytest.mark.django_db(transaction=True)
def test_a_forgotten_node_is_heard_no_more(joined, clock):
    joined()
    clock.beat("gpu07")
    actions.mark("gpu07", READY, LOST, why="silent", by=BEAT, now=clock.now)
    assert heartbeats.read_heard().answered == {"gpu07": 1}
    actions.forget("gpu07", by=BEAT, now=clock.now)
    assert heartbeats.read_heard().answered == {}
