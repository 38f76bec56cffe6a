"""What replicas do when nodes and the catalog tell them something."""

import pytest

from apps.nodes import actions as nodes
from apps.nodes.models import NodeRow
from apps.nodes.signals import ticked
from apps.replicas import actions, dispatch, listeners, queries
from apps.replicas.models import OrderRow
from llmgw.core import wire
from llmgw.core.world import NodeState, State
from tests.apps.replicas.test_dispatch import messages, sent_orders
from tests.apps.replicas.world import ALICE
from tests.builders import a_model


def beat(node, *launches):
    return wire.Beat(
        tick=1, epoch=node.epoch, instance=node.instance, boot_id=node.boot_id, digest=wire.digest(launches)
    )


def tick(world, *beats):
    ticked.send(NodeRow, tick=1, beats=dict(beats), now=world.now)


@pytest.mark.parametrize("state", [NodeState.UNREACHABLE, NodeState.LOST])
def test_a_node_that_changes_its_state_asks_for_a_pass(world, state):
    world.serve()
    world.passes()
    nodes.mark("n1", NodeState.READY, state, why="silent", by=ALICE, now=world.now)
    assert world.passes()


def test_a_node_that_tells_otherwise_twice_is_asked_to_register(world):
    node = world.serve()
    launch = world.shard().launch_id
    before = len(node.hellos())
    OrderRow.objects.filter(kind="hello").update(state="acknowledged")
    world.pass_by(10)
    tick(world, ("n1", beat(node, (launch, "loading"))))
    assert len(node.hellos()) == before
    tick(world, ("n1", beat(node, (launch, "loading"))))
    assert len(node.hellos()) == before + 1
    tick(world, ("n1", beat(node, (launch, "loading"))))
    assert len(node.hellos()) == before + 1, "it has not answered yet"
    node.join(node.status(launch, State.LOADING, *[]))
    assert node.hellos()[-1].state == "acknowledged"


def test_a_start_that_beats_lag_behind_asks_nobody_to_register(world, settings):
    node = world.node()
    world.declare()
    world.passes()
    launch, before = world.shard().launch_id, len(node.hellos())
    told: list[tuple[str, State]] = []
    for state in (State.FETCHING, State.LOADING, State.LOADING, State.READY, State.READY, State.READY):
        node.tell(launch, state)
        world.pass_by(settings.LLMGW_HEARTBEAT_S)
        tick(world, ("n1", beat(node, *told)))  # what it told a tick ago
        told = [(launch, state)]
    assert len(node.hellos()) == before


def test_a_node_that_agrees_is_left_alone(world):
    node = world.serve()
    before = len(node.hellos())
    for _ in range(3):
        tick(world, ("n1", beat(node, (world.shard().launch_id, "ready"))))
    assert len(node.hellos()) == before


def test_a_tick_sends_again_what_is_due(committed_world, redis_url):
    committed_world.node()
    committed_world.declare()
    committed_world.passes()
    before = len(sent_orders(redis_url))
    committed_world.pass_by(60)
    tick(committed_world)
    assert len(sent_orders(redis_url)) > before


def test_a_tick_calls_the_pass_for_the_moment_a_wait_ends(committed_world, redis_url, settings):
    world = committed_world
    settings.LLMGW_HEARTBEAT_S = 2.0
    node = world.node()
    world.declare(a_model())
    world.passes()
    for _ in range(4):
        node.fail(world.shard().launch_id)
        world.passes()
        world.now = world.replica().next_try_at
        actions.request_if_due(world.now)
        world.passes()
    node.fail(world.shard().launch_id)  # the fifth: 16 s
    world.passes()
    before = len(messages(redis_url, wire.CONTROL_QUEUE))
    tick(world)
    assert len(messages(redis_url, wire.CONTROL_QUEUE)) == before, "too early"
    world.pass_by(15)
    tick(world)
    headers, kwargs = messages(redis_url, wire.CONTROL_QUEUE)[-1]
    assert (headers["task"], kwargs) == (dispatch.RECONCILE_TASK, {"by": "retry"})
    assert headers["eta"] is not None


def test_a_first_failure_is_retried_to_the_moment_without_waiting_for_a_tick(committed_world, redis_url):
    world = committed_world
    node = world.node()
    world.declare()
    world.passes()
    node.fail(world.shard().launch_id)
    world.passes()
    headers, kwargs = messages(redis_url, wire.CONTROL_QUEUE)[-1]
    assert (kwargs, headers["eta"] is not None) == ({"by": "retry"}, True)


def test_a_tick_of_an_idle_fleet_takes_few_queries(world, django_assert_max_num_queries):
    node = world.serve()
    beats = {"n1": beat(node, (world.shard().launch_id, "ready"))}
    with django_assert_max_num_queries(6):
        listeners.after_tick(beats=beats, now=world.now)


def test_a_known_fleet_needs_no_pass_at_a_tick(world):
    world.serve()
    world.passes()
    tick(world)
    assert world.passes() == ()
    assert queries.passes().requested == queries.passes().done
