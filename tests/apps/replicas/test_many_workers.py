"""Several control workers at once, on a real database and a real broker: nothing is done twice, nothing is lost."""

import sys
import threading
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest
import redis
from celery import Celery
from django.db import connection, connections

from apps.replicas import actions, queries, reconcile
from apps.replicas.ids import new_id
from apps.replicas.models import OrderRow, ReplicaRow, ShardRow, TransitionRow
from llmgw.core import wire
from llmgw.core.lifecycle import Happened
from llmgw.core.world import State
from tests.apps.replicas.world import ALICE
from tests.builders import a_cpu, a_model


@pytest.fixture
def world(committed_world):
    return committed_world


def at_once(*calls):
    """Run these in threads that begin together, and return what they returned."""
    gate = threading.Barrier(len(calls))
    results: list[Any] = [None] * len(calls)

    def run(index, call):
        try:
            gate.wait(10)
            results[index] = call()
        except Exception as error:  # noqa: BLE001  # told to the test below
            results[index] = error
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run, args=each) for each in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not [result for result in results if isinstance(result, Exception)], results
    return results


def a_run():
    return reconcile.run(by=ALICE, clock=lambda: datetime.now(UTC), ids=new_id)


def test_two_workers_start_each_replica_once(world):
    for name in ("n1", "n2", "n3"):
        world.node(name, devices=(a_cpu(slots=4),))
    world.declare(a_model(replicas=8))
    at_once(*[a_run] * 4)
    assert ReplicaRow.objects.count() == ShardRow.objects.count() == 8
    assert OrderRow.objects.filter(kind="launch").count() == 8
    assert max(Counter(ShardRow.objects.values_list("node__name", flat=True)).values()) <= 4
    row = queries.passes()
    assert (row.done, row.holder) == (row.requested, "")


def test_requests_while_others_run_are_never_forgotten(world):
    world.node(devices=(a_cpu(slots=100),))

    def declare_and_run(number):
        def call():
            from apps.catalog import actions as catalog

            catalog.declare(a_model(f"model-{number}"), by=ALICE, now=world.now)
            a_run()

        return call

    at_once(*[declare_and_run(number) for number in range(6)])
    a_run()
    assert Counter(ReplicaRow.objects.values_list("state", flat=True)) == {State.PLACED: 6}


def test_reports_and_passes_at_once_leave_one_consistent_story(world):
    nodes = [world.node(name, devices=(a_cpu(slots=4),)) for name in ("n1", "n2")]
    world.declare(a_model(replicas=6))
    world.passes()
    by_node = {node.name: list(ShardRow.objects.filter(node__name=node.name)) for node in nodes}

    def telling(node):
        def call():
            for state in (State.FETCHING, State.LAUNCHING, State.LOADING, State.READY):
                for shard in by_node[node.name]:
                    node.tell(shard.launch_id, state)

        return call

    def passing():
        for _ in range(6):
            actions.request_pass()
            a_run()

    at_once(*[telling(node) for node in nodes], passing, passing)
    assert Counter(ReplicaRow.objects.values_list("state", flat=True)) == {State.READY: 6}
    for shard in ShardRow.objects.all():
        afters = TransitionRow.objects.filter(shard=shard).values_list("after", flat=True)
        assert list(afters) == ["placed", "fetching", "launching", "loading", "ready"]
    assert ShardRow.objects.count() == 6


def test_the_same_report_by_two_workers_is_applied_once(world):
    node = world.node()
    world.declare()
    world.passes()
    report = node.shard_report(node.status(world.shard().launch_id, State.READY))
    outcomes = at_once(*[lambda: actions.record_report(report, now=world.now)] * 4)
    assert sorted(outcomes) == ["repeated", "repeated", "repeated", "taken"]
    assert TransitionRow.objects.filter(shard__isnull=False).count() == 5


def test_an_edit_a_drain_and_passes_at_once_end_in_what_is_wanted(world):
    node = world.serve(None, a_model(replicas=3))

    def drain():
        actions.drain(world.replica("smollm2/1"), by=ALICE, now=world.now)

    def shrink():
        world.declare(a_model(replicas=1))

    at_once(drain, shrink, a_run, a_run)
    for _ in range(6):
        for shard in ShardRow.objects.filter(state__in=(State.DRAINING, State.STOPPING)):
            node.stop(shard.launch_id)
        for shard in ShardRow.objects.filter(state=State.PLACED):
            node.tell(shard.launch_id, State.READY)
        world.ask_for_pass()
    assert [row.state for row in queries.present()] == [State.READY]


# --- a real worker ------------------------------------------------------------------------------------------------


@pytest.fixture
def worker(processes, redis_url, tmp_path):
    """A control worker as in production, on this test's database and broker."""

    def start():
        name = str(connection.settings_dict["NAME"])
        url = f"sqlite:///{name}"
        if connection.vendor == "postgresql":
            at = connection.settings_dict
            url = f"postgres://{at['USER']}:{at['PASSWORD']}@{at['HOST']}:{at['PORT']}/{name}"
        words = ["-P", "threads", "-c", "4", "-Q", wire.CONTROL_QUEUE, "--without-gossip", "--without-mingle"]
        env = {"DATABASE_URL": url, "REDIS_URL": redis_url, "LLMGW_STATE": str(tmp_path)}
        return processes.start([sys.executable, "-m", "celery", "-A", "llmgw.celery", "worker", *words], env=env)

    return start


@pytest.mark.slow
def test_five_hundred_triggers_make_one_or_two_passes(world, worker, redis_url, eventually):
    world.node()
    world.passes()
    with redis.Redis.from_url(redis_url) as client:
        client.delete(wire.CONTROL_QUEUE)
        before = queries.passes().token
        world.declare()
        for _ in range(499):
            actions.request_pass()
        assert client.llen(wire.CONTROL_QUEUE) == 500
        worker()
        eventually(lambda: client.llen(wire.CONTROL_QUEUE) == 0 and not client.exists("unacked"), timeout=60)
    assert world.replica().state == State.PLACED
    assert queries.passes().token - before in (1, 2)


@pytest.mark.slow
def test_a_worker_takes_reports_in_and_starts_what_failed_again_after_a_second(world, worker, redis_url, eventually):
    world.now = datetime.now(UTC)
    node = world.node()
    world.declare()
    worker()
    eventually(lambda: ShardRow.objects.filter(state=State.PLACED).exists(), timeout=30)
    sender = Celery(broker=redis_url)

    def send(raw):
        sender.send_task(wire.REPORT_TASK, kwargs={"raw": raw}, queue=wire.CONTROL_QUEUE)

    send({"v": 99})
    send(wire.to_wire(node.shard_report(node.status(world.shard().launch_id, State.READY))))
    eventually(lambda: world.replica().state == State.READY)
    failed = world.shard()
    send(wire.to_wire(node.shard_report(node.status(failed.launch_id, State.FAILED, Happened.FAILED))))
    eventually(lambda: world.replica().attempt == 2)
    failed.refresh_from_db()
    assert 1.0 <= (world.shard().created_at - failed.ended_at).total_seconds() < 2.0
