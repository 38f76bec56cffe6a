"""The door out: ordered, coalesced, numbered, and patient with a broker that is away."""

import threading
import time
from dataclasses import dataclass, field

import msgspec
import pytest

from llmgw.core import wire
from llmgw.core.lifecycle import Happened
from llmgw.core.units import Bytes, LaunchId, OrderId, Seconds, replica_id
from llmgw.core.world import State
from workers.app import make_app
from workers.report import MOST_ANSWERS, MOST_SHARDS, BrokerAway, CelerySender, Outbox, Reporter, Whole
from workers.settings import NodeSettings
from workers.supervisor.identity import Identity
from workers.system import RealMachine

INVENTORY = wire.Inventory(devices=(), cpu_count=2, memory_total=Bytes(1))


def status(launch, steps=1, **facts):
    happened = tuple(wire.Step(Happened.LAUNCH_BEGUN, Seconds(n)) for n in range(steps))
    return wire.ShardStatus(
        launch_id=LaunchId(launch),
        replica=replica_id("m", 1),
        attempt=1,
        state=State.LAUNCHING,
        steps=happened,
        **facts,
    )


def answer(order, kind=wire.AnswerKind.TAKEN):
    return wire.Answer(OrderId(order), kind)


# --- what is to be said -------------------------------------------------------------------------------------------


@pytest.fixture
def outbox():
    return Outbox()


def test_a_newer_status_takes_the_older_ones_place(outbox):
    outbox.add([status("a", 1), status("b", 1), status("a", 2)], [])
    assert [(told.launch_id, len(told.steps)) for told in outbox.next().shards] == [("b", 1), ("a", 2)]


def test_an_older_status_never_takes_a_newer_ones_place(outbox):
    outbox.add([status("a", 3), status("a", 2)], [])
    assert [len(told.steps) for told in outbox.next().shards] == [3]


def test_an_older_status_than_was_said_is_not_said(outbox):
    outbox.add([status("a", 3)], [])
    outbox.said(outbox.next())
    outbox.add([status("a", 2)], [])
    assert outbox.next() is None


def test_news_with_the_same_steps_is_news(outbox):
    outbox.add([status("a", 1)], [])
    outbox.said(outbox.next())
    outbox.add([status("a", 1, progress=wire.Progress(Bytes(5)))], [])
    assert outbox.next().shards[0].progress.done == 5


def test_what_becomes_newer_while_it_is_said_is_said_again(outbox):
    outbox.add([status("a", 1)], [answer("o1")])
    letter = outbox.next()
    outbox.add([status("a", 2)], [answer("o1", wire.AnswerKind.REPEATED)])
    outbox.said(letter)
    again = outbox.next()
    assert len(again.shards[0].steps) == 2
    assert again.answers[0].kind is wire.AnswerKind.REPEATED


def test_a_registration_goes_first_and_says_what_waits(outbox):
    outbox.want_inventory()
    outbox.add([status("a")], [answer("o1")])
    outbox.want_registration()
    letter = outbox.next()
    assert letter.registrations
    assert letter.answers
    outbox.said(letter)
    assert outbox.next() is None


def test_a_registration_that_was_asked_for_meanwhile_is_made(outbox):
    outbox.want_registration()
    letter = outbox.next()
    outbox.want_registration()
    outbox.said(letter)
    assert outbox.next().registrations


def test_a_report_is_bounded_and_nothing_is_left_out(outbox):
    outbox.add([status(f"l{n}") for n in range(2 * MOST_SHARDS + 1)], [])
    sizes = []
    while letter := outbox.next():
        sizes.append(len(letter.shards))
        outbox.said(letter)
    assert sizes == [MOST_SHARDS, MOST_SHARDS, 1]


def test_answers_do_not_grow_without_bound(outbox):
    outbox.add([], [answer(f"o{n}") for n in range(MOST_ANSWERS + 5)])
    assert len(outbox.next().answers) == MOST_ANSWERS
    assert outbox.next().answers[0].order_id == "o5", "the oldest go: their orders are sent again"


# --- the thread ---------------------------------------------------------------------------------------------------


@dataclass
class Broker:
    """Takes reports, or does not."""

    away: bool = False
    failing: bool = False
    taken: list = field(default_factory=list)
    tries: int = 0
    closed: bool = False

    def send(self, raw):
        self.tries += 1
        if self.away:
            raise BrokerAway("away")
        if self.failing:
            raise ValueError("ours")
        self.taken.append(wire.report_from_wire(raw))

    def close(self):
        self.closed = True


@pytest.fixture
def broker():
    return Broker()


@pytest.fixture
def identity(tmp_path):
    opened = Identity.open(tmp_path / "state", RealMachine({}))
    yield opened
    opened.close()


def a_reporter(identity, sender, machine=None):
    whole = Whole("127.0.0.1", INVENTORY, (status("kept"),), {"rack": "a"}, ())
    return Reporter("n1", identity=identity, machine=machine or RealMachine({}), sender=sender, whole=lambda: whole)


@pytest.fixture
def reporter(identity, broker):
    made = a_reporter(identity, broker)
    made.start()
    yield made
    made.close()


def test_a_report_names_its_node_and_is_numbered(reporter, broker, identity, eventually):
    identity.accept_epoch(7)
    reporter.push(status("a"), answer=answer("o1"))
    eventually(lambda: broker.taken)
    reporter.push(status("b"))
    eventually(lambda: len(broker.taken) == 2)
    first, second = broker.taken
    assert isinstance(first, wire.ShardReport)
    assert (first.node, first.instance, first.epoch) == ("n1", identity.instance, 7)
    assert first.boot_id == RealMachine({}).boot_id()
    assert (first.shards, first.answers) == ((status("a"),), (answer("o1"),))
    assert second.seq > first.seq > 1 << 32


def test_a_start_is_told_in_one_report(identity, broker, eventually):
    reporter = a_reporter(identity, broker)
    reporter.push(status("a", 1), answer=answer("o1"))
    reporter.start()  # as in life: it wakes up while the launch goes on
    reporter.push(status("a", 2))
    reporter.push(msgspec.structs.replace(status("a", 3), state=State.LOADING))
    eventually(lambda: broker.taken)
    (told,) = broker.taken
    assert (len(told.shards[0].steps), told.answers) == (3, (answer("o1"),))
    reporter.close()


def test_what_is_only_on_its_way_is_told_soon_all_the_same(reporter, broker, eventually):
    reporter.push(status("a"))
    eventually(lambda: broker.taken, timeout=2)


def test_what_serves_or_fails_waits_for_nobody(outbox):
    for state in (State.LOADING, State.READY, State.FAILED, State.STOPPED):
        outbox.add([status("a"), msgspec.structs.replace(status("b"), state=state)], [])
        assert not outbox.can_wait()


def test_a_registration_says_everything(reporter, broker, eventually):
    reporter.register()
    eventually(lambda: broker.taken)
    (report,) = broker.taken
    assert isinstance(report, wire.Registration)
    assert (report.inventory, report.shards, report.labels) == (INVENTORY, (status("kept"),), {"rack": "a"})


def test_a_changed_inventory_is_said(reporter, broker, eventually):
    reporter.inventory_changed()
    eventually(lambda: broker.taken)
    assert isinstance(broker.taken[0], wire.InventoryChanged)


def test_while_the_broker_is_away_only_the_newest_is_kept(reporter, broker, eventually):
    broker.away = True
    for steps in range(1, 50):
        reporter.push(status("a", steps))
    eventually(lambda: broker.tries > 2)
    broker.away = False
    eventually(lambda: broker.taken)
    assert [len(report.shards[0].steps) for report in broker.taken] == [49]


def test_a_report_that_cannot_be_made_does_not_stop_the_others(reporter, broker, eventually):
    broker.failing = True
    reporter.push(status("a"))
    eventually(lambda: broker.tries)
    broker.failing = False
    reporter.push(status("b"))
    eventually(lambda: broker.taken)
    assert [told.launch_id for told in broker.taken[0].shards] == ["b"]


def test_closing_says_what_can_be_said_and_takes_no_longer_than_a_second(identity, broker):
    reporter = a_reporter(identity, broker)
    reporter.push(status("a"))
    reporter.start()
    reporter.close()
    assert broker.taken
    assert broker.closed
    broker.away = True
    reporter = a_reporter(identity, broker)
    reporter.push(status("b"))
    reporter.start()
    begun = time.monotonic()
    reporter.close()
    assert time.monotonic() - begun < 1.5


class Checkpoints(RealMachine):
    """Remembers where a test might have killed the process."""

    def __init__(self):
        super().__init__({})
        self.passed = []

    def checkpoint(self, point):
        self.passed.append(point)


def test_there_are_points_to_die_at(identity, broker, eventually):
    machine = Checkpoints()
    reporter = a_reporter(identity, broker, machine)
    reporter.push(status("a"))
    assert machine.passed == ["report-queued"]
    reporter.start()
    eventually(lambda: machine.passed == ["report-queued", "report-sent"])
    reporter.close()


# --- over a real Redis --------------------------------------------------------------------------------------------


def heard(app, count, timeout=10.0):
    """Read reports as the control plane would."""
    reports: list[wire.ShardReport] = []
    with app.connection_for_read() as connection, connection.SimpleQueue(wire.CONTROL_QUEUE) as queue:
        while len(reports) < count:
            message = queue.get(timeout=timeout)
            message.ack()
            assert message.headers["task"] == wire.REPORT_TASK
            report = wire.report_from_wire(message.payload[1]["raw"])
            assert isinstance(report, wire.ShardReport)
            reports.append(report)
    return reports


def over(url):
    return make_app(NodeSettings(id="n1", redis_url=url))


def test_reports_arrive_in_order(redis_url, identity):
    app = over(redis_url)
    reporter = a_reporter(identity, CelerySender(app))
    reporter.start()
    for n in range(20):
        reporter.push(msgspec.structs.replace(status(f"l{n}"), state=State.READY))
    reports: list[wire.ShardReport] = []
    while sum(len(report.shards) for report in reports) < 20:
        reports += heard(app, 1)
    reporter.close()
    assert [told.launch_id for report in reports for told in report.shards] == [f"l{n}" for n in range(20)]
    assert [report.seq for report in reports] == sorted(report.seq for report in reports)


def test_a_broker_that_was_killed_gets_the_news_when_it_is_back(own_redis, identity):
    app = over(own_redis.url)
    reporter = a_reporter(identity, CelerySender(app))
    reporter.start()
    reporter.push(status("a", 1))
    heard(app, 1)
    own_redis.kill()
    reporter.push(status("a", 2))
    reporter.push(status("b", 1))
    own_redis.start()
    begun = time.monotonic()
    reports = heard(app, 1)
    assert time.monotonic() - begun < 2
    told = {told.launch_id: len(told.steps) for report in reports for told in report.shards}
    assert told["a"] == 2
    reporter.close()


def test_a_report_leaves_at_once(redis_url, identity):
    """Measured from `push` until Redis has it; the median, since the machine may be busy."""
    app = over(redis_url)
    sent = threading.Event()

    class Timed(CelerySender):
        def send(self, raw):
            super().send(raw)
            sent.set()

    reporter = a_reporter(identity, Timed(app))
    reporter.start()
    took = []
    for n in range(50):
        sent.clear()
        begun = time.perf_counter()
        reporter.push(msgspec.structs.replace(status(f"l{n}"), state=State.READY))
        assert sent.wait(5)
        took.append(time.perf_counter() - begun)
    reporter.close()
    print(f"report latency: median {sorted(took)[25] * 1000:.2f} ms, worst {max(took) * 1000:.2f} ms")
    assert sorted(took)[25] < 0.02
