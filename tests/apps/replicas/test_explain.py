"""Why is it not running? The sentence holds the numbers, the nearest place, and what to do."""

import json

from apps.nodes import actions as nodes
from apps.replicas import actions
from apps.replicas import explain as explaining
from apps.replicas.explain import NotFound, explain
from llmgw.core.world import State
from tests.apps.replicas.world import ALICE
from tests.builders import a_cpu, a_gpu_profile, a_model


def told(world, model="smollm2"):
    return explain(model, world.now)


def test_what_runs_is_fine(world):
    world.serve()
    found = told(world)
    assert found.summary == "smollm2: 1 of 1 replica ready."
    assert not found.is_refused
    assert found.text().splitlines() == ["smollm2: 1 of 1 replica ready.", "  smollm2/1 has been ready for 0 s."]


def test_what_has_no_place_says_which_nodes_why_and_what_comes_nearest(world):
    world.node("n1", devices=(a_cpu(slots=1),))
    world.node("n2")
    nodes.cordon("n2", by=ALICE, now=world.now)
    world.declare(a_model(replicas=2))
    world.passes()
    world.pass_by(840)
    found = told(world)
    assert found.is_refused
    assert found.summary == "smollm2: 0 of 2 replicas ready. smollm2/2 has had no place for 14 min."
    text = found.text()
    assert "0 of 2 nodes: 1 device.claimed, 1 node.cordoned" in text
    assert "nearest    n1 by profile cpu: device cpu is taken (1 of 1) by smollm2/1" in text
    assert "would do   wait for one of them to stop, ask for fewer replicas, or add a node" in text
    assert "    n2  cpu  node.cordoned  is cordoned" in text


def test_what_nobody_has_looked_at_says_so(world):
    world.declare()
    assert told(world).summary == "smollm2: 0 of 1 replica ready. No pass has looked at the others yet."


def test_one_reason_is_said_once(world):
    world.node()
    world.declare(a_model("big", profiles=[a_gpu_profile()]))
    world.passes()
    world.pass_by(2)
    assert told(world, "big").text().splitlines() == [
        "big: 0 of 1 replica ready.",
        "  big/1 has had no place for 2 s.",
        "    fits on    0 of 1 node: 1 class.mismatch",
        "    nearest    n1 by profile gpu: wants class h100-80g, the node has cpu",
        "    would do   add a profile for a class this node has",
    ]


def test_one_that_failed_once_and_serves_again_does_serve(world):
    node = world.node()
    world.declare()
    world.passes()
    node.fail(world.shard().launch_id)
    world.passes()
    told_first = told(world).text()
    assert "  smollm2/1 failed once, next start in 1 s." in told_first
    assert told_first.count("next start") == 1
    world.pass_by(1)
    world.ask_for_pass()
    node.tell(world.shard().launch_id, State.READY)
    text = told(world).text()
    assert "  smollm2/1 has been ready for 0 s, after it failed once." in text
    assert "failure    attempt 1 on n1, out-of-memory" in text


def test_what_an_operator_asked_stands_with_its_state(world):
    world.serve()
    actions.drain(world.replica(), by=ALICE, now=world.now, reason="new kernel")
    assert "  smollm2/1 has been draining for 0 s: asked by alice: new kernel." in told(world).text()


def test_without_any_node_the_fleet_is_to_blame(world):
    world.declare()
    world.passes()
    text = told(world).text()
    assert "no node has joined [fleet.empty] – start a node worker: `llmgw-node run`" in text


def test_what_keeps_failing_shows_its_last_lines_and_where_it_began(world):
    node = world.node()
    world.declare()
    world.passes()
    for text in ("the first cause", "an echo", "another echo"):
        node.fail(world.shard().launch_id, text)
        world.passes()
        if text != "another echo":
            world.pass_by(300)
            world.ask_for_pass()
    found = told(world)
    (why,) = found.replicas
    assert (why.state, why.failures) == ("crash-looping", 3)
    assert "smollm2/1 is crash-looping: it failed 3 times in a row, next start in 4 s." in found.summary
    text = found.text()
    assert "failure    attempt 3 on n1, out-of-memory: another echo" in text
    assert "| failed to allocate" in text
    assert "began with attempt 1 on n1, out-of-memory: the first cause" in text
    assert found.is_refused


def test_a_model_is_found_by_its_alias(world):
    world.declare(a_model(aliases=("small",)))
    assert told(world, "small").model == "smollm2"


def test_what_is_not_declared_is_a_typed_no(world):
    no = told(world, "ghost")
    assert isinstance(no, NotFound)
    assert (no.code, no.text()) == ("model.unknown", "there is no model ghost")


def test_the_document_is_plain_json_with_the_same_facts(world):
    world.node()
    world.declare(a_model(profiles=[a_gpu_profile()]))
    world.passes()
    document = json.loads(json.dumps(told(world).to_json()))
    (why,) = document["replicas"]
    assert (document["model"], document["ready"], document["wanted"]) == ("smollm2", 0, 1)
    assert why["groups"][0]["code"] == "class.mismatch"
    assert why["since"] == world.now.isoformat()


def test_it_takes_as_many_queries_for_many_replicas_as_for_one(world, django_assert_num_queries):
    world.node()
    world.declare(a_model(replicas=1))
    world.passes()
    with django_assert_num_queries(6):
        told(world).to_json()
    world.declare(a_model(replicas=20))
    world.passes()
    with django_assert_num_queries(6):
        told(world).to_json()


def test_the_nearest_place_is_the_one_with_the_fewest_and_easiest_reasons():
    def no(node, code):
        return explaining.Against(node, "cpu", code, "", "")

    against = [no("a", "class.mismatch"), no("b", "device.claimed"), no("b", "node.disk"), no("c", "node.cordoned")]
    assert [each.node for each in explaining._nearest(against)] == ["c"]
    assert explaining._nearest([explaining.Against(None, None, "fleet.empty", "", "")]) == ()


def test_a_starting_replica_is_not_refused(world):
    world.node()
    world.declare()
    world.passes()
    found = told(world)
    assert not found.is_refused
    assert found.replicas[0].state == State.PLACED
