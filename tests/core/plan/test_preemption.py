"""What is less wanted gives way, if that really makes room, and not more of it than is needed."""

import pytest

from llmgw.core.plan import plan
from llmgw.core.plan.actions import Drain, Start, Stop
from llmgw.core.refusals import DeviceClaimed, WaitingForRoom
from llmgw.core.world import State
from tests.builders import NOW, a_gpu_profile, a_model, a_node, a_replica, a_snapshot

HIGH = a_model("high", priority=5, profiles=[a_gpu_profile(devices=2)])
LOW = a_model("low", profiles=[a_gpu_profile()], replicas=2)


def low(ordinal, device, *, model=LOW, node="n1", **more):
    return a_replica(model, ordinal, node=node, devices=(f"GPU-{device}",), **more)


def planned(*models, replicas=(), gpus=2, nodes=None):
    snapshot = a_snapshot(nodes=nodes or [a_node(gpus=gpus)], models=models, replicas=replicas)
    found = plan(snapshot, NOW)
    refused = {each.replica: [no.refusal for no in each.refusals] for each in found.refusals}
    return [one for one in found.actions if one.code != "queue"], refused


def test_each_names_the_other():
    actions, refused = planned(HIGH, LOW, replicas=(low(1, 0), low(2, 1)))
    assert actions == [
        Drain(low(1, 0).id, "preempted by high/1, whose priority is 5"),
        Drain(low(2, 1).id, "preempted by high/1, whose priority is 5"),
    ]
    assert refused == {"high/1": [WaitingForRoom(("low/1", "low/2"))]}


def test_no_more_than_is_needed_and_rather_what_does_not_serve():
    one = a_model("high", priority=5, profiles=[a_gpu_profile()])
    actions, _ = planned(one, LOW, replicas=(low(1, 0), low(2, 1, state=State.LOADING)))
    assert actions == [Stop(low(2, 1).id, "preempted by high/1, whose priority is 5")]


def test_never_from_an_equal_priority():
    equal = a_model("high", profiles=[a_gpu_profile(devices=2)])
    actions, refused = planned(equal, LOW, replicas=(low(1, 0), low(2, 1)))
    assert actions == []
    assert {type(no) for no in refused["high/1"]} == {DeviceClaimed}


def test_not_where_it_makes_no_room():
    three = a_model("high", priority=5, profiles=[a_gpu_profile(devices=3)])
    actions, refused = planned(three, LOW, replicas=(low(1, 0), low(2, 1)))
    assert actions == []
    assert refused["high/1"]


def test_what_goes_already_is_waited_for_and_nobody_else_is_asked():
    going = low(1, 0, state=State.DRAINING)
    one = a_model("high", priority=5, profiles=[a_gpu_profile()])
    actions, refused = planned(one, LOW, replicas=(going, low(2, 1)))
    assert actions == []
    assert refused["high/1"] == [WaitingForRoom(("low/1",))]


def test_what_is_free_of_its_place_is_kept_for_it():
    waiting = a_model("low", profiles=[a_gpu_profile()], replicas=2)
    actions, refused = planned(HIGH, waiting, replicas=(low(1, 0, model=waiting),))
    assert actions == [Drain(low(1, 0).id, "preempted by high/1, whose priority is 5")]
    assert DeviceClaimed("GPU-1", 1, ("high/1 (to come)",)) in refused["low/2"]


def test_two_newcomers_do_not_count_on_one_place():
    two = a_model("high", priority=5, replicas=2, profiles=[a_gpu_profile()])
    actions, refused = planned(two, LOW, replicas=(low(1, 0), low(2, 1)))
    assert [one.replica for one in actions] == ["low/1", "low/2"]
    assert refused == {"high/1": [WaitingForRoom(("low/1",))], "high/2": [WaitingForRoom(("low/2",))]}


def test_once_they_have_gone_it_starts_and_they_wait():
    stopped = [low(n, n - 1, state=State.STOPPED) for n in (1, 2)]
    actions, refused = planned(HIGH, LOW, replicas=stopped)
    assert [(one.replica, type(one)) for one in actions] == [("high/1", Start)]
    assert DeviceClaimed("GPU-0", 1, ("high/1",)) in refused["low/1"]


@pytest.mark.parametrize("failures", [1, 5])
def test_what_has_failed_before_takes_nobody_s_place(failures):
    failed = a_replica(HIGH, state=State.FAILED, failures=failures, next_try_at=NOW, devices=("GPU-0", "GPU-1"))
    actions, refused = planned(HIGH, LOW, replicas=(failed, low(1, 0), low(2, 1)))
    assert actions == []
    assert refused["high/1"]


def test_what_is_retired_goes_and_nobody_is_asked_besides():
    one = a_model("high", priority=5, profiles=[a_gpu_profile()])
    old = a_replica(a_model("old"), devices=("GPU-0",))
    single = a_model("low", profiles=[a_gpu_profile()])
    actions, _ = planned(one, single, replicas=(old, low(1, 1, model=single)))
    assert [(action.code, action.replica) for action in actions] == [("drain", "old/1")]


def test_what_has_to_be_together_is_taken_together():
    """Of replicas that lie scattered, any eight would not do."""
    many = a_model("low", profiles=[a_gpu_profile()], replicas=200)
    nodes = [a_node(f"n{n:03}", gpus=2) for n in range(100)]
    replicas = [low(n + 1, n // 100, model=many, node=f"n{n % 100:03}") for n in range(200)]
    actions, refused = planned(HIGH, many, nodes=nodes, replicas=replicas)
    assert {one.replica for one in actions} == {"low/1", "low/101"}
    assert refused["high/1"] == [WaitingForRoom(("low/1", "low/101"))]
