"""The outbox: what is written is sent, again until it is answered, and never by a request that waits for a broker."""

import base64
import json
import socket
import time
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
import redis
from celery import current_app

from apps.nodes import actions as nodes
from apps.nodes.models import NodeRow
from apps.replicas import actions, dispatch, queries
from apps.replicas.actions import orders
from apps.replicas.models import OrderRow
from llmgw.core import wire
from llmgw.core.world import NodeState, State
from tests.apps.replicas.world import ALICE
from tests.builders import a_cpu, a_model
from tests.servers import free_port


def messages(url, queue):
    """What waits in a queue, oldest first: task, keywords and headers."""
    with redis.Redis.from_url(url) as client:
        raw = [json.loads(message) for message in reversed(client.lrange(queue, 0, -1))]
    return [(each["headers"], json.loads(base64.b64decode(each["body"]))[1]) for each in raw]


def sent_orders(url, node="n1"):
    return [kwargs["raw"] for headers, kwargs in messages(url, wire.node_queue(node))]


@contextmanager
def broker(url):
    """Let the control plane's messages go to another broker."""
    app: Any = current_app
    before = app.conf.broker_url
    _connect(app, url)
    try:
        yield
    finally:
        _connect(app, before)


def _connect(app, url):
    app.conf.broker_url = url
    app.amqp._producer_pool = app._pool = None
    dispatch.outage.until = 0.0


@pytest.fixture
def world(committed_world):
    return committed_world


def the(kind="launch"):
    return OrderRow.objects.select_related("node").get(kind=kind)


def test_an_order_travels_as_a_task_on_its_nodes_queue_that_expires(world, redis_url):
    world.node()
    world.declare()
    world.passes()
    (headers, kwargs) = messages(redis_url, "node.n1")[-1]
    assert headers["task"] == wire.ORDER_TASK
    assert headers["expires"] is not None
    order = wire.order_from_wire(kwargs["raw"])
    assert isinstance(order, wire.LaunchOrder)
    assert (order.launch_id, order.epoch) == (world.shard().launch_id, NodeRow.objects.get().epoch)
    assert (the().state, the().sends, the().sent_at) == ("sent", 1, world.now)


def test_an_order_is_sent_only_after_its_transaction(db, world, redis_url):
    from django.db import transaction

    world.node()
    before = len(sent_orders(redis_url))
    with transaction.atomic():
        orders.hello(NodeRow.objects.get(), order_id="hello-again", now=world.now)
        OrderRow.objects.filter(kind="hello").exclude(order_id="hello-again").delete()
        transaction.set_rollback(True)
    assert len(sent_orders(redis_url)) == before


def test_what_is_not_answered_is_sent_again_ever_more_rarely(world, redis_url, settings):
    settings.LLMGW_ORDER_RESEND_S = 5.0
    world.node()
    world.declare()
    world.passes()
    waits = []
    for _ in range(6):
        waits.append((the().next_send_at - world.now).total_seconds())
        world.now = the().next_send_at
        assert dispatch.resend_due(world.now - timedelta(milliseconds=1)) == 0
        assert dispatch.resend_due(world.now) == 1
    assert waits == [5.0, 10.0, 20.0, 40.0, 60.0, 60.0]
    launches = [order for order in sent_orders(redis_url) if order["kind"] == "launch"]
    assert len(launches) == 7
    assert len({order["order_id"] for order in launches}) == 1


def test_an_answered_order_is_sent_no_more(world):
    node = world.node()
    world.declare()
    world.passes()
    node.tell(world.shard().launch_id, State.FETCHING)
    assert dispatch.resend_due(world.now + timedelta(days=1)) == 0


def test_a_broker_that_lost_everything_is_told_again(world, redis_url):
    world.node()
    world.declare()
    world.passes()
    with redis.Redis.from_url(redis_url) as client:
        client.flushall()
    dispatch.resend_due(the().next_send_at)
    assert [order["kind"] for order in sent_orders(redis_url)] == ["launch"]


def test_an_order_bears_the_epoch_of_the_moment_it_is_sent(world, redis_url):
    world.node()
    world.declare()
    world.passes()
    NodeRow.objects.update(epoch=7)
    dispatch.resend_due(the().next_send_at)
    assert sent_orders(redis_url)[-1]["epoch"] == 7


@pytest.mark.parametrize("state", [NodeState.UNREACHABLE, NodeState.LOST])
def test_a_node_that_is_not_heard_is_sent_nothing(world, redis_url, state):
    node = world.serve()
    NodeRow.objects.update(state=state)
    before = len(sent_orders(redis_url))
    actions.drain(world.replica(), by=ALICE, now=world.now)
    assert len(sent_orders(redis_url)) == before
    assert the("stop").state == "pending"
    assert dispatch.resend_due(world.now + timedelta(days=1)) == 0
    NodeRow.objects.update(state=NodeState.READY)
    assert dispatch.resend_due(world.now + timedelta(days=1)) == 1
    assert node.name == "n1"


def test_a_node_that_was_not_heard_gets_what_it_missed_at_once(world, redis_url):
    world.serve()
    by = {"why": "test", "by": ALICE, "now": world.now}
    nodes.mark("n1", NodeState.READY, NodeState.UNREACHABLE, **by)
    actions.drain(world.replica(), by=ALICE, now=world.now)
    nodes.mark("n1", NodeState.UNREACHABLE, NodeState.READY, **by)
    assert sent_orders(redis_url)[-1]["kind"] == "stop"


def test_a_node_back_from_the_dead_is_told_hello(world, redis_url):
    world.serve()
    by = {"why": "test", "by": ALICE, "now": world.now}
    nodes.mark("n1", NodeState.READY, NodeState.LOST, **by)
    nodes.mark("n1", NodeState.LOST, NodeState.JOINING, **by)
    told = sent_orders(redis_url)[-1]
    assert (told["kind"], told["epoch"]) == ("hello", NodeRow.objects.get().epoch)


def test_two_that_resend_at_once_send_once(world, redis_url):
    world.node()
    world.declare()
    world.passes()
    order = the()
    before = len(sent_orders(redis_url))
    assert dispatch.send(order, world.now)
    order.sends -= 1  # as another worker has read it
    assert dispatch.send(order, world.now)
    assert len(sent_orders(redis_url)) == before + 1


def test_an_order_about_what_has_ended_is_taken_back(world):
    world.node()
    world.declare()
    world.passes()
    shard = world.shard()
    shard.state = State.FAILED
    shard.save()
    assert dispatch.resend_due(world.now + timedelta(days=1)) == 0
    assert the().state == "expired"


# --- the broker is away -------------------------------------------------------------------------------------------


def test_a_broker_that_is_away_costs_a_moment_and_loses_nothing(world, redis_url):
    world.node()
    world.declare()
    with broker(f"redis://127.0.0.1:{free_port()}/0"):
        begun = time.monotonic()
        world.passes()
        assert time.monotonic() - begun < 5
    assert world.shard().state == State.PLACED
    assert (the().state, the().sends) == ("pending", 1)
    assert dispatch.resend_due(the().next_send_at) == 1
    assert sent_orders(redis_url)[-1]["kind"] == "launch"


def test_a_change_is_saved_while_the_broker_is_away_and_its_pass_still_wanted(world):
    world.node()
    world.passes()
    with broker(f"redis://127.0.0.1:{free_port()}/0"):
        world.declare(a_model("declared-in-the-dark"))
    row = queries.passes()
    assert row.requested > row.done
    assert len(world.passes()) == 1


@pytest.mark.slow
def test_a_broker_that_hangs_is_given_up(world):
    world.node()
    world.passes()
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        with broker(f"redis://127.0.0.1:{mute.getsockname()[1]}/0"):
            begun = time.monotonic()
            assert not dispatch.call_pass()
            assert time.monotonic() - begun < 25


def test_many_orders_do_not_wait_for_an_absent_broker_one_by_one(world):
    world.node(devices=(a_cpu(slots=20),))
    world.declare(a_model(replicas=20))
    with broker(f"redis://127.0.0.1:{free_port()}/0"):
        world.passes()
    assert OrderRow.objects.filter(kind="launch", state="pending").count() == 20
    assert dispatch.resend_due(world.now + timedelta(seconds=10)) == 20


def test_the_first_that_cannot_be_sent_ends_the_round(world):
    world.node()
    world.declare(a_model(replicas=4))
    world.passes()
    later = world.now + timedelta(days=1)
    with broker(f"redis://127.0.0.1:{free_port()}/0"):
        assert dispatch.resend_due(later) == 0
    states = OrderRow.objects.filter(kind="launch").order_by("id").values_list("state", flat=True)
    assert list(states) == ["pending", "sent", "sent", "sent"]


def test_a_pass_is_called_once_for_a_transaction(world, redis_url):
    world.node()
    world.passes()
    with redis.Redis.from_url(redis_url) as client:
        client.delete(wire.CONTROL_QUEUE)
    from django.db import transaction

    with transaction.atomic():
        for _ in range(10):
            actions.request_pass()
    (call,) = messages(redis_url, wire.CONTROL_QUEUE)
    assert (call[0]["task"], call[1]) == (dispatch.RECONCILE_TASK, {"by": "request"})
