"""What one look at a fleet decides."""

from dataclasses import replace
from typing import Any

import pytest

from llmgw.core.hardware.fabrics import Attachment
from llmgw.core.lifecycle import LIVE
from llmgw.core.plan import Archive, Drain, Lose, Queue, Reap, Start, Stop, plan
from llmgw.core.refusals import DeviceClaimed, NoNodes, WaitingForRetry, WaitingForRollout
from llmgw.core.units import LaunchId, NodeName, Seconds
from llmgw.core.world import NodeState, State
from tests.builders import H100, NOW, a_gpu_profile, a_model, a_node, a_profile, a_replica, a_shard, a_snapshot, a_stray
from tests.core.fleet_after import carried_out, settled


def actions(**fleet) -> Any:
    return plan(a_snapshot(**fleet), NOW).actions


def lines(**fleet):
    return [one.text() for one in plan(a_snapshot(**fleet), NOW).actions]


def test_nothing_is_wanted_and_nothing_is_there():
    done = plan(a_snapshot(), NOW)
    assert done.text() == "nothing to do"
    assert done.to_json() == {"actions": [], "refusals": []}


def test_a_declared_model_is_started():
    model = a_model(replicas=2)
    first, second = actions(nodes=[a_node()], models=[model])
    assert isinstance(first, Start)
    assert (first.replica, first.attempt_before, first.profile) == ("smollm2/1", 0, "cpu")
    assert first.fingerprint == model.fingerprint(model.profiles[0])
    assert [tuple(part) for part in first.shards] == [("n1", ("cpu",), 0)]
    assert second.replica == "smollm2/2"
    assert first.text() == "start smollm2/1 by profile cpu on n1 (cpu): 2 wanted, 0 there"


def test_what_does_not_fit_is_queued_once_and_says_why():
    done = plan(a_snapshot(nodes=[a_node(slots=1)], models=[a_model(replicas=3)]), NOW)
    assert [type(one) for one in done.actions] == [Queue, Queue, Start]
    assert [one.replica for one in done.refusals] == ["smollm2/2", "smollm2/3"]
    ((node, profile, no),) = done.refusals[0].refusals
    assert (node, profile, no) == ("n1", "cpu", DeviceClaimed("cpu", 1, ("smollm2/1",)))
    again = plan(carried_out(a_snapshot(nodes=[a_node(slots=1)], models=[a_model(replicas=3)]), done), NOW)
    assert again.actions == ()
    assert again.refusals == done.refusals


def test_without_nodes_it_is_said_once():
    model = a_model(profiles=[a_gpu_profile(), a_gpu_profile("two", devices=2)])
    (refused,) = plan(a_snapshot(models=[model]), NOW).refusals
    assert refused.refusals == ((None, None, NoNodes()),)
    assert "no node has joined [fleet.empty] – start a node worker" in refused.text()


def test_a_queued_slot_starts_once_there_is_room():
    model = a_model()
    (start,) = actions(nodes=[a_node()], models=[model], replicas=[a_replica(model, state=State.QUEUED)])
    assert (start.replica, start.attempt_before, start.why) == ("smollm2/1", 0, "there is room for it now")


def test_the_second_profile_is_used_where_the_first_does_not_fit():
    model = a_model(profiles=[a_gpu_profile(), *a_model().profiles])
    (start,) = actions(nodes=[a_node()], models=[model])
    assert start.profile == "cpu"


def test_higher_priorities_are_placed_first():
    models = [a_model("a"), a_model("b", priority=5), a_model("c", priority=-1)]
    done = plan(a_snapshot(nodes=[a_node(slots=1)], models=models), NOW)
    assert [one.replica for one in done.actions if isinstance(one, Start)] == ["b/1"]
    assert [one.replica for one in done.refusals] == ["a/1", "c/1"]


def test_of_equal_priorities_what_is_harder_to_place_comes_first():
    both, four = a_profile("gpu", device_classes=(H100, "l40s-45g")), a_gpu_profile(devices=4)
    models = [a_model("a", profiles=[both]), a_model("b", profiles=[a_gpu_profile()]), a_model("c", profiles=[four])]
    done = plan(a_snapshot(nodes=[a_node(gpus=4)], models=models), NOW)
    assert [one.replica for one in done.actions if isinstance(one, Start)] == ["c/1"]
    done = plan(a_snapshot(nodes=[a_node(gpus=1)], models=models), NOW)
    assert [one.replica for one in done.actions if isinstance(one, Start)] == ["b/1"]


class TestRetry:
    def failed(self, model, **more):
        return a_replica(model, state=State.FAILED, failures=2, attempt=2, **more)

    def test_a_failed_replica_waits(self):
        model = a_model()
        done = plan(
            a_snapshot(nodes=[a_node()], models=[model], replicas=[self.failed(model, next_try_at=NOW + 3)]), NOW
        )
        assert done.actions == ()
        assert done.refusals[0].refusals == ((None, None, WaitingForRetry(2, 3.0)),)
        assert "next start in 3 s" in done.text()

    @pytest.mark.parametrize("due", [NOW, NOW - 1, None])
    def test_and_starts_when_it_is_due(self, due):
        model = a_model()
        (start,) = actions(nodes=[a_node()], models=[model], replicas=[self.failed(model, next_try_at=due)])
        assert (start.replica, start.attempt_before) == ("smollm2/1", 2)
        assert start.why == "failed 2 times in a row, and the wait is over"

    def test_an_edit_starts_it_at_once(self):
        model = a_model()
        replica = self.failed(model, next_try_at=NOW + 300, fingerprint="before")
        (start,) = actions(nodes=[a_node()], models=[model], replicas=[replica])
        assert start.fingerprint in model.fingerprints()


class TestFewer:
    def test_the_highest_ordinals_go(self):
        model = a_model(replicas=1)
        replicas = [a_replica(model, n) for n in (1, 2, 3)]
        assert lines(nodes=[a_node()], models=[model], replicas=replicas) == [
            "drain smollm2/3: 1 wanted, 3 there",
            "drain smollm2/2: 1 wanted, 3 there",
        ]

    def test_what_serves_stays_longest(self):
        model = a_model(replicas=1)
        replicas = [
            a_replica(model, 1, state=State.QUEUED),
            a_replica(model, 2, state=State.LOADING),
            a_replica(model, 3),
        ]
        found = actions(nodes=[a_node()], models=[model], replicas=replicas)
        assert [(type(one), one.replica) for one in found] == [(Archive, "smollm2/1"), (Stop, "smollm2/2")]

    def test_a_retired_model_goes_wholly(self):
        gone = a_model()
        replicas = [
            a_replica(gone, 1),
            a_replica(gone, 2, state=State.FETCHING),
            a_replica(gone, 3, state=State.FAILED),
            a_replica(gone, 4, state=State.STOPPED),
            a_replica(gone, 5, state=State.DRAINING),
        ]
        found = actions(nodes=[a_node()], replicas=replicas)
        assert {(type(one), one.replica) for one in found} == {
            (Drain, "smollm2/1"),
            (Stop, "smollm2/2"),
            (Archive, "smollm2/3"),
            (Archive, "smollm2/4"),
        }

    def test_none_wanted_is_not_retired(self):
        model = a_model(replicas=0)
        (drain,) = actions(nodes=[a_node()], models=[model], replicas=[a_replica(model)])
        assert drain.text() == "drain smollm2/1: 0 wanted, 1 there"


class TestWhatLeaves:
    def test_one_that_is_wanted_is_waited_for(self):
        model = a_model()
        done = plan(
            a_snapshot(nodes=[a_node()], models=[model], replicas=[a_replica(model, state=State.DRAINING)]), NOW
        )
        assert (done.actions, done.refusals) == ((), ())

    def test_and_comes_back_in_its_own_slot(self):
        model = a_model(replicas=2)
        replicas = [a_replica(model, 1, state=State.STOPPED, attempt=3), a_replica(model, 2)]
        (start,) = actions(nodes=[a_node()], models=[model], replicas=replicas)
        assert (start.replica, start.attempt_before) == ("smollm2/1", 3)
        assert start.why == "it has stopped, and is still wanted"

    def test_until_then_it_keeps_its_place(self):
        model = a_model(replicas=2)
        done = plan(
            a_snapshot(nodes=[a_node(slots=1)], models=[model], replicas=[a_replica(model, state=State.DRAINING)]), NOW
        )
        assert [one.text() for one in done.actions] == ["queue smollm2/2: wanted, and there is no place for it now"]
        assert done.refusals[0].refusals[0].refusal == DeviceClaimed("cpu", 1, ("smollm2/1",))

    def test_it_is_not_waited_for_where_nobody_hears(self):
        model = a_model()
        nodes = [a_node("n1", state=NodeState.UNREACHABLE), a_node("n2")]
        (start,) = actions(nodes=nodes, models=[model], replicas=[a_replica(model, state=State.STOPPING)])
        assert start.replica == "smollm2/2"

    def test_one_that_stopped_and_has_no_place_says_why(self):
        model = a_model()
        done = plan(
            a_snapshot(nodes=[a_node(cordoned=True)], models=[model], replicas=[a_replica(model, state=State.STOPPED)]),
            NOW,
        )
        assert done.actions == ()
        assert [one.replica for one in done.refusals] == ["smollm2/1"]

    def test_one_that_is_too_many_is_archived(self):
        model = a_model()
        replicas = [a_replica(model, 1, state=State.STOPPED), a_replica(model, 2)]
        assert lines(nodes=[a_node()], models=[model], replicas=replicas) == ["archive smollm2/1: it has stopped"]

    def test_one_that_was_never_started_goes_before_it(self):
        model = a_model()
        replicas = [a_replica(model, 1, state=State.STOPPED), a_replica(model, 2, state=State.QUEUED)]
        archive, start = actions(nodes=[a_node()], models=[model], replicas=replicas)
        assert (archive.replica, start.replica) == ("smollm2/2", "smollm2/1")

    def test_one_that_was_leaving_a_lost_node_starts_elsewhere(self):
        model = a_model()
        nodes = [a_node("n1", state=NodeState.LOST), a_node("n2")]
        lose, start = actions(nodes=nodes, models=[model], replicas=[a_replica(model, state=State.DRAINING)])
        assert (lose.replica, start.replica, start.attempt_before) == ("smollm2/1", "smollm2/1", 1)


class TestNodes:
    def test_a_lost_node_s_replica_starts_elsewhere(self):
        model = a_model()
        nodes = [a_node("n1", state=NodeState.LOST), a_node("n2")]
        lose, start = actions(nodes=nodes, models=[model], replicas=[a_replica(model)])
        assert lose.text() == "lose smollm2/1: its node n1 is lost"
        assert (start.replica, start.attempt_before, start.shards[0].node) == ("smollm2/1", 1, "n2")

    def test_without_another_node_it_stays_lost_with_the_reasons(self):
        model = a_model()
        fleet = a_snapshot(nodes=[a_node(state=NodeState.LOST)], models=[model], replicas=[a_replica(model)])
        done = plan(fleet, NOW)
        assert [type(one) for one in done.actions] == [Lose]
        assert [no.refusal.code for no in done.refusals[0].refusals] == ["node.lost"]
        assert plan(carried_out(fleet, done), NOW).actions == ()

    def test_a_node_that_nobody_knows_any_more_counts_as_lost(self):
        model = a_model()
        lose, start = actions(nodes=[a_node("n2")], models=[model], replicas=[a_replica(model)])
        assert lose.text() == "lose smollm2/1: its node n1 is gone"
        assert start.shards[0].node == "n2"

    def test_what_other_nodes_have_of_a_lost_replica_holds_its_place_until_it_has_ended(self):
        model = a_model(profiles=[a_gpu_profile(devices=2, nodes=2, tensor_parallel=1)])
        other = a_model("other", profiles=[a_gpu_profile()])
        shards = (a_shard("n1", ("GPU-0",), State.READY, "a"), a_shard("n2", ("GPU-0",), State.READY, "b"))
        done = plan(
            a_snapshot(
                nodes=[a_node("n1", gpus=1, state=NodeState.LOST), a_node("n2", gpus=1)],
                models=[model, other],
                replicas=[replace(a_replica(model), shards=shards)],
            ),
            NOW,
        )
        assert [one.text() for one in done.actions] == [
            "lose smollm2/1: its node n1 is lost",
            "queue other/1: wanted, and there is no place for it now",
        ]
        said = {no.refusal for no in done.refusals[0].refusals if no.node == "n2"}
        assert said == {DeviceClaimed("GPU-0", 1, ("smollm2/1",))}

    def test_what_was_leaving_a_lost_node_is_put_away(self):
        model = a_model(replicas=0)
        replica = a_replica(model, state=State.DRAINING)
        found = actions(nodes=[a_node(state=NodeState.LOST)], models=[model], replicas=[replica])
        assert [type(one) for one in found] == [Lose, Archive]

    @pytest.mark.parametrize("state", [State.READY, State.LOADING, State.PLACED])
    @pytest.mark.parametrize("wanted", [0, 1])
    def test_an_unreachable_node_s_replica_is_left_alone(self, state, wanted):
        model = a_model(replicas=wanted)
        nodes = [a_node("n1", state=NodeState.UNREACHABLE), a_node("n2")]
        assert actions(nodes=nodes, models=[model], replicas=[a_replica(model, state=state)]) == ()

    def test_of_two_the_unreachable_one_is_the_one_too_many(self):
        model = a_model(replicas=1)
        nodes = [a_node("n1", state=NodeState.UNREACHABLE), a_node("n2")]
        replicas = [a_replica(model, 1), a_replica(model, 2, node="n2")]
        assert actions(nodes=nodes, models=[model], replicas=replicas) == ()

    def test_one_that_failed_goes_before_the_unreachable_one_and_is_not_started_beside_it(self):
        model = a_model(replicas=1)
        nodes = [a_node("n1", state=NodeState.UNREACHABLE), a_node("n2")]
        replicas = [a_replica(model, 1, state=State.FAILED, node="n2"), a_replica(model, 2)]
        assert lines(nodes=nodes, models=[model], replicas=replicas) == ["archive smollm2/1: 1 wanted, 2 there"]

    def test_strays_are_reaped_where_the_node_is_heard(self):
        nodes = [a_node("n1"), a_node("n2", state=NodeState.UNREACHABLE), a_node("n3", state=NodeState.JOINING)]
        strays = [a_stray("n1", "a"), a_stray("n2", "b"), a_stray("n3", "c"), a_stray("n4", "d")]
        assert lines(nodes=nodes, strays=strays) == ["reap a on n1: no replica owns it"]

    @pytest.mark.parametrize("wait", [3, -1])
    def test_what_is_left_of_a_replica_whose_other_part_failed_is_reaped(self, wait):
        profile = a_gpu_profile(devices=2, nodes=2, tensor_parallel=1)
        model = a_model(profiles=[profile])
        shards = (a_shard("n1", ("GPU-0",), State.FAILED, "a"), a_shard("n2", ("GPU-0",), State.READY, "b"))
        failed = a_replica(model, state=State.FAILED, failures=1, next_try_at=Seconds(NOW + wait))
        fleet = a_snapshot(
            nodes=[a_node(name, gpus=2, fabrics=(Attachment(name="compute"),)) for name in ("n1", "n2")],
            models=[model],
            replicas=[replace(failed, shards=shards)],
        )
        done = plan(fleet, NOW)
        assert done.actions[0] == Reap(NodeName("n2"), LaunchId("b"), "smollm2/1 is failed, and this is a part of it")
        assert [type(one) for one in done.actions[1:]] == ([] if wait > 0 else [Start])

    def test_a_part_that_came_back_with_its_node_is_reaped_when_the_others_have_stopped(self):
        model = a_model(profiles=[a_gpu_profile(devices=2, nodes=2, tensor_parallel=1)])
        shards = (a_shard("n1", ("GPU-0",), State.READY, "a"), a_shard("n2", ("GPU-0",), State.STOPPED, "b"))
        stopping = replace(a_replica(model, state=State.STOPPING), shards=shards)
        done = plan(a_snapshot(nodes=[a_node("n1"), a_node("n2")], models=[model], replicas=[stopping]), NOW)
        assert [one.text() for one in done.actions] == ["reap a on n1: smollm2/1 is stopping, and this is a part of it"]

    def test_a_stray_is_reaped_once_and_holds_its_place_until_it_is_gone(self):
        done = plan(a_snapshot(nodes=[a_node(slots=1)], models=[a_model()], strays=[a_stray(stopping=True)]), NOW)
        assert [one.text() for one in done.actions] == ["queue smollm2/1: wanted, and there is no place for it now"]
        assert done.refusals[0].refusals[0].refusal == DeviceClaimed("cpu", 1, ("launch-x",))


class TestEdited:
    def edited(self, replicas=1):
        before = a_model(replicas=replicas)
        return before, replace(before, profiles=(replace(before.profiles[0], context_length=4096),))

    def test_with_room_the_new_version_comes_up_first(self):
        before, model = self.edited()
        fleet = a_snapshot(nodes=[a_node(slots=2)], models=[model], replicas=[a_replica(before)])
        steps = story(fleet)
        assert steps == [["start smollm2/2"], ["drain smollm2/1"], ["archive smollm2/1"], []]

    def test_without_room_the_old_one_makes_way(self):
        before, model = self.edited()
        fleet = a_snapshot(nodes=[a_node(slots=1)], models=[model], replicas=[a_replica(before)])
        steps = story(fleet)
        assert steps == [["drain smollm2/1", "queue smollm2/2"], ["archive smollm2/2", "start smollm2/1"], []]

    def test_several_are_replaced_one_by_one_and_never_fewer_serve_than_wanted(self):
        before, model = self.edited(replicas=3)
        fleet = a_snapshot(nodes=[a_node(slots=9)], models=[model], replicas=[a_replica(before, n) for n in (1, 2, 3)])
        for _ in range(20):
            done = plan(fleet, NOW)
            if not done.actions:
                break
            fleet = carried_out(fleet, done)
            assert sum(one.state is State.READY for one in fleet.replicas) >= 3
            assert sum(one.state in LIVE - {State.DRAINING} for one in fleet.replicas) <= 4
            fleet = settled(fleet)
        assert {one.fingerprint for one in fleet.replicas} == model.fingerprints()
        assert len(fleet.replicas) == 3

    def test_without_room_one_at_a_time_makes_way(self):
        before, model = self.edited(replicas=3)
        fleet = a_snapshot(nodes=[a_node(slots=3)], models=[model], replicas=[a_replica(before, n) for n in (1, 2, 3)])
        for _ in range(20):
            done = plan(fleet, NOW)
            if not done.actions:
                break
            fleet = carried_out(fleet, done)
            assert sum(one.state is State.READY for one in fleet.replicas) >= 2
            fleet = settled(fleet)
        assert {one.fingerprint for one in fleet.replicas} == model.fingerprints()

    def test_what_had_failed_before_the_edit_comes_back_one_by_one(self):
        before, model = self.edited(replicas=2)
        replicas = [
            *(a_replica(before, n) for n in (1, 2)),
            *(a_replica(before, n, state=State.FAILED) for n in (3, 4)),
        ]
        done = plan(a_snapshot(nodes=[a_node(slots=9)], models=[model], replicas=replicas), NOW)
        assert [one.text()[:15] for one in done.actions] == ["start smollm2/3"]
        assert [(one.replica, one.refusals) for one in done.refusals] == [
            ("smollm2/4", ((None, None, WaitingForRollout(2)),))
        ]

    def test_what_has_stopped_says_that_it_waits_for_its_turn(self):
        before, model = self.edited(replicas=2)
        replicas = [
            *(a_replica(before, n) for n in (1, 2)),
            a_replica(before, 3, state=State.STOPPED),
            a_replica(model, 4, state=State.LOADING),
        ]
        done = plan(a_snapshot(nodes=[a_node(slots=9)], models=[model], replicas=replicas), NOW)
        assert done.actions == ()
        assert [(one.replica, one.refusals) for one in done.refusals] == [
            ("smollm2/3", ((None, None, WaitingForRollout(2)),))
        ]

    def test_while_one_makes_way_no_other_does(self):
        before, model = self.edited(replicas=2)
        replicas = [a_replica(before, 1), a_replica(before, 2, state=State.DRAINING)]
        assert lines(nodes=[a_node(slots=2)], models=[model], replicas=replicas) == [
            "queue smollm2/3: wanted, and there is no place for it now"
        ]

    def test_what_could_never_fit_does_not_cost_the_old_version(self):
        before = a_model()
        model = replace(before, profiles=(a_gpu_profile(),))
        fleet = a_snapshot(nodes=[a_node(slots=1)], models=[model], replicas=[a_replica(before)])
        done = plan(fleet, NOW)
        assert [one.text() for one in done.actions] == ["queue smollm2/2: wanted, and there is no place for it now"]
        assert done.refusals[0].refusals[0].refusal.code == "class.mismatch"

    def test_a_new_version_that_fails_stops_the_roll_out(self):
        before, model = self.edited(replicas=2)
        replicas = [
            a_replica(before, 1),
            a_replica(model, 3, state=State.FAILED, failures=1, next_try_at=NOW + 1),
        ]
        fleet = a_snapshot(nodes=[a_node(slots=1)], models=[model], replicas=replicas)
        assert not [one for one in plan(fleet, NOW).actions if isinstance(one, Drain)]
        assert not [one for one in plan(fleet, Seconds(NOW + 2)).actions if isinstance(one, Drain)]

    def test_an_old_version_that_serves_nobody_yet_is_stopped_and_comes_back_as_the_new_one(self):
        before, model = self.edited()
        fleet = a_snapshot(nodes=[a_node()], models=[model], replicas=[a_replica(before, state=State.LOADING)])
        assert story(fleet) == [["stop smollm2/1"], ["start smollm2/1"], []]

    def test_what_was_stopped_comes_back_no_faster_than_one_at_a_time(self):
        before, model = self.edited(replicas=2)
        replicas = [
            *(a_replica(before, n) for n in (1, 2)),
            *(a_replica(before, n, state=State.STOPPED) for n in (3, 4)),
        ]
        found = lines(nodes=[a_node()], models=[model], replicas=replicas)
        assert [line.partition(" by")[0] for line in found] == ["start smollm2/3"]

    def test_two_old_ones_go_where_the_new_version_needs_the_place_of_both(self):
        before = a_model(replicas=2, profiles=[a_gpu_profile()])
        model = replace(before, replicas=1, profiles=(a_gpu_profile(devices=2),))
        replicas = [a_replica(before, n, devices=(f"GPU-{n - 1}",)) for n in (1, 2)]
        fleet = a_snapshot(nodes=[a_node(gpus=2)], models=[model], replicas=replicas)
        steps = story(fleet)
        assert steps[-2:] == [["archive smollm2/2", "start smollm2/1"], []]

    def test_another_profile_of_the_same_declaration_is_not_outdated(self):
        model = a_model(profiles=[a_gpu_profile(), *a_model().profiles])
        replica = a_replica(model, profile=model.profiles[1])
        assert actions(nodes=[a_node(gpus=1)], models=[model], replicas=[replica]) == ()

    def test_an_edit_taken_back_leaves_what_serves(self):
        before, model = self.edited()
        waiting = a_replica(model, 2, state=State.QUEUED)
        found = lines(nodes=[a_node(slots=1)], models=[before], replicas=[a_replica(before), waiting])
        assert found == ["archive smollm2/2: 1 wanted, 2 there"]


def story(fleet):
    """What each pass does, when every node does what it is told in between, until there is nothing left to do."""
    told: list[list[str]] = []
    while not told or told[-1]:
        done = plan(fleet, NOW)
        told.append(sorted(one.text().partition(":")[0].partition(" by ")[0] for one in done.actions))
        fleet = settled(carried_out(fleet, done))
        assert len(told) < 20
    return told


def test_actions_are_printed_and_stored_in_the_same_words():
    model = a_model()
    fleet = a_snapshot(
        nodes=[a_node("n1"), a_node("n2", state=NodeState.LOST)],
        models=[model, a_model("other", profiles=[a_gpu_profile()])],
        replicas=[
            a_replica(model, 1, node="n2"),
            a_replica(model, 2, state=State.QUEUED),
            *(a_replica(a_model("gone"), n, state=s) for n, s in ((1, State.READY), (2, State.LOADING))),
        ],
        strays=[a_stray()],
    )
    done = plan(fleet, NOW)
    assert {type(one) for one in done.actions} == {Lose, Archive, Drain, Stop, Reap, Queue, Start}
    stored = done.to_json()
    for one, raw in zip(done.actions, stored["actions"], strict=True):
        assert raw["code"] == one.code
        assert raw["text"] == one.text()
        assert raw["text"].startswith(one.code)
    (start,) = [raw for raw in stored["actions"] if raw["code"] == "start"]
    assert start["shards"] == [["n1", ["cpu"], 0]]
    assert stored["refusals"][0]["refusals"][0]["facts"]["wanted"] == ["h100-80g"]
