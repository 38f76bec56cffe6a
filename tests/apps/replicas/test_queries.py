"""What a pass may know, read in a handful of queries however large the fleet; and what is shown of it."""

import pytest

from apps.nodes.models import DeviceRow, NodeRow
from apps.replicas import actions, queries
from apps.replicas.models import ReplicaRow, ShardRow
from llmgw.core import wire
from llmgw.core.lifecycle import Happened
from llmgw.core.units import Seconds
from llmgw.core.wanted import Model
from llmgw.core.world import NodeState, State
from tests.apps.replicas.world import ALICE
from tests.builders import NOW, a_model


def a_fleet(world, size):
    """As many nodes, each with a ready replica of one model, written straight into the tables."""
    model = world.declare(a_model(replicas=size))
    told = {"state": NodeState.READY, "state_since": world.now, "engines": ["llamacpp"]}
    nodes = NodeRow.objects.bulk_create(NodeRow(name=f"n{i}", address="127.0.0.1", **told) for i in range(size))
    devices = {"device_id": "cpu", "kind": "cpu", "device_class": "cpu", "memory": 2**40, "slots": 4}
    DeviceRow.objects.bulk_create(DeviceRow(node=node, **devices) for node in nodes)
    moment = {"state": State.READY, "state_since": world.now, "created_at": world.now, "attempt": 1}
    rows = ReplicaRow.objects.bulk_create(ReplicaRow(model=model, ordinal=i + 1, **moment) for i in range(size))
    pairs = zip(rows, nodes, strict=True)
    ShardRow.objects.bulk_create(
        ShardRow(replica=row, node=node, launch_id=f"l-{node.name}", devices=["cpu"], **moment) for row, node in pairs
    )


@pytest.mark.parametrize("size", [3, 300])
def test_a_snapshot_takes_seven_queries_however_large_the_fleet(world, size, django_assert_num_queries):
    a_fleet(world, size)
    with django_assert_num_queries(7 + 2):  # and the transaction's own two
        snapshot = queries.view().snapshot
    assert (len(snapshot.nodes), len(snapshot.replicas)) == (size, size)
    assert all(replica.shards[0].node for replica in snapshot.replicas)


@pytest.mark.parametrize("size", [3, 30])
def test_lists_take_as_many_queries_for_few_as_for_many(world, size, django_assert_num_queries):
    a_fleet(world, size)
    with django_assert_num_queries(2):
        assert len([queries.describe_replica(row) for row in queries.shown()]) == size
    with django_assert_num_queries(4):
        (model,) = [queries.describe_model(row) for row in queries.models()]
    assert (model["ready"], model["wanted"], model["state"]) == (size, size, f"{size} of {size} ready")
    with django_assert_num_queries(1):
        assert len(queries.digests(world.now)) == size


def test_a_snapshot_holds_what_is_wanted_and_what_is(world):
    world.serve()
    snapshot = queries.view().snapshot
    assert isinstance(snapshot.models[0], Model)
    (replica,) = snapshot.replicas
    (shard,) = replica.shards
    assert (replica.id, replica.state, replica.attempt, replica.profile) == ("smollm2/1", State.READY, 1, "cpu")
    assert replica.fingerprint in snapshot.models[0].fingerprints()
    assert (shard.node, shard.devices, shard.state) == ("n1", ("cpu",), State.READY)


def test_launches_that_no_present_attempt_owns_are_strays(world):
    node = world.serve()
    old = world.shard()
    ReplicaRow.objects.update(attempt=2)
    node.tell("foreign", State.LOADING)
    ShardRow.objects.filter(launch_id="foreign").update(state=State.STOPPING)
    strays = queries.view().snapshot.strays
    assert {(each.launch_id, each.stopping) for each in strays} == {(old.launch_id, False), ("foreign", True)}


def test_the_digest_leaves_out_what_may_not_have_reached_its_node(world):
    node = world.node()
    world.declare(a_model(replicas=2))
    world.passes()
    assert queries.digests(world.now) == {}
    launch = world.shard("smollm2/1").launch_id
    node.tell(launch, State.LOADING)
    assert queries.digests(world.now) == {"n1": wire.digest([(launch, "loading")])}


def test_there_is_no_digest_of_what_has_just_moved(world):
    node, before = world.node(), world.now
    world.pass_by(1)
    world.declare()
    world.passes()
    assert queries.digests(before) == {"n1": None}
    node.tell(world.shard().launch_id, State.READY)
    world.pass_by(4)
    assert queries.digests(before) == {"n1": None}
    assert queries.digests(world.now) == {"n1": wire.digest([(world.shard().launch_id, "ready")])}


# --- what is shown ------------------------------------------------------------------------------------------------


def test_a_models_sentence_counts_what_does_not_serve(world):
    world.serve(None, a_model(replicas=2))
    world.declare(a_model(replicas=6))
    assert queries.describe_model(queries.models()[0])["state"] == "2 of 6 ready, 4 not looked at yet"
    world.passes()
    state = queries.describe_model(queries.models()[0])["state"]
    assert state == "2 of 6 ready, 2 starting, 2 without a place"


@pytest.mark.parametrize("name", ["smollm2/2", "smollm2/x", "smollm2", "/1", "", "smollm2/99999999999999999999"])
def test_a_name_that_is_no_replica_finds_none(world, name):
    world.serve()
    assert queries.find("smollm2/1") is not None
    assert queries.find(name) is None


def test_refusals_are_counted_by_code_and_node(world):
    text = {"text": "is cordoned", "cure": "uncordon it", "profile": "cpu", "facts": {}}
    two = [{"node": name, "code": "node.cordoned", **text} for name in ("n1", "n2", "n2")]
    (group, other) = queries.grouped([*two, {"node": None, "code": "fleet.empty", **text}])
    assert (group["code"], group["count"], group["nodes"]) == ("node.cordoned", 2, ["n1", "n2"])
    assert (other["code"], other["count"], other["nodes"]) == ("fleet.empty", 1, [])


# --- history ------------------------------------------------------------------------------------------------------


def test_a_timeline_counts_durations_by_the_nodes_clock(world):
    node = world.node()
    world.declare()
    world.passes()
    world.pass_by(100)
    node.tell(world.shard().launch_id, State.READY)
    (attempt,) = queries.timeline(world.replica()).attempts
    (launch,) = attempt.launches
    assert [step.state for step in launch.steps] == ["placed", "fetching", "launching", "loading", "ready"]
    assert [step.seconds for step in launch.steps] == [100.0, 1.0, 1.0, 1.0, None]


def test_a_node_whose_clock_is_wrong_spoils_no_duration_that_began_with_us(world):
    node = world.serve()
    world.pass_by(60)
    actions.drain(world.replica(), by=ALICE, now=world.now)
    world.pass_by(5)
    early = wire.Step(Happened.EXITED, Seconds(NOW - 10_000))
    node.tell(world.shard().launch_id, State.STOPPED, early)
    *_, ready, draining, stopped = queries.timeline(world.replica()).attempts[0].launches[0].steps
    assert (ready.seconds, draining.seconds, stopped.seconds) == (60.0, 5.0, None)


def test_the_newest_attempt_comes_first_and_the_first_failure_is_pinned(world):
    node = world.node()
    world.declare()
    world.passes()
    for text in ("first", "second", "third"):
        node.fail(world.shard().launch_id, text)
        world.pass_by(300)
        world.ask_for_pass()
    history = queries.timeline(world.replica())
    assert [attempt.number for attempt in history.attempts] == [4, 3, 2, 1]
    assert history.first_failure == history.attempts[-1]
    assert history.attempts[0].failure is None
    told = queries.describe_timeline(history)
    assert told["first_failure"]["launches"][0]["failure"]["text"] == "first"
