"""Passes: what is wanted is started, kept, and taken away; one at a time, and no more often than needed."""

from datetime import datetime, timedelta

import pytest
from django.db import transaction

from apps.nodes import actions as nodes
from apps.replicas import actions, queries, reconcile
from apps.replicas.actions import passes as turns
from apps.replicas.models import OrderRow, PassRow, ReconcileRow, ReplicaRow, ShardRow, TransitionRow
from llmgw.core.lifecycle import Happened, NotAllowed
from llmgw.core.plan import RefusedReplica
from llmgw.core.units import replica_id
from llmgw.core.world import NodeState, State
from tests.apps.replicas.world import ALICE
from tests.builders import a_cpu, a_model, a_profile


def states(model="smollm2"):
    rows = ReplicaRow.objects.filter(model__name=model, gone_at__isnull=True)
    return [row.state for row in rows.order_by("ordinal")]


def test_a_declared_model_is_started_where_it_fits(world):
    world.node()
    world.declare()
    (done,) = world.passes()
    shard = world.shard()
    assert (shard.state, shard.node.name, shard.devices) == (State.PLACED, "n1", ["cpu"])
    order = OrderRow.objects.get(kind="launch").payload
    assert (order["launch_id"], order["replica"], order["model"]) == (shard.launch_id, "smollm2/1", "smollm2")
    assert [action.code for action in done.done] == ["start"]


def test_a_second_look_finds_nothing_to_do_and_is_not_kept_but_counts(world):
    world.node()
    world.declare()
    world.passes()
    token, kept = queries.passes().token, PassRow.objects.count()
    (again,) = world.ask_for_pass()
    assert (again.plan.actions, again.plan.refusals) == ((), ())
    assert (queries.passes().token, PassRow.objects.count()) == (token + 1, kept)


def test_nothing_is_run_when_nothing_is_wanted(world):
    world.node()
    world.passes()
    assert world.passes() == ()


def test_what_has_no_place_is_queued_with_every_reason(world):
    world.node(devices=(a_cpu(slots=1),))
    world.declare(a_model(replicas=2))
    world.passes()
    assert states() == [State.PLACED, State.QUEUED]
    waiting = world.replica("smollm2/2")
    (no,) = waiting.refusals
    assert (no["node"], no["profile"], no["code"]) == ("n1", "cpu", "device.claimed")
    assert waiting.why == "no place: 1 × device.claimed"
    kept = PassRow.objects.get()
    assert [action["code"] for action in kept.actions] == ["queue", "start"]
    assert kept.refusals == [{"replica": "smollm2/2", "refusals": queries.grouped([no])}]


def test_the_same_refusals_again_are_no_news(world):
    world.declare()
    world.passes()
    assert world.replica().refusals[0]["code"] == "fleet.empty"
    before = PassRow.objects.count()
    (again,) = world.ask_for_pass()
    assert again.plan.refusals
    assert (again.news, PassRow.objects.count()) == ([], before)


def test_a_queued_replica_starts_when_a_node_joins(world):
    world.declare()
    world.passes()
    world.node()
    world.passes()
    replica = world.replica()
    assert (replica.state, replica.refusals, replica.attempt) == (State.PLACED, [], 1)


def test_one_failure_waits_a_second_and_starts_again_by_a_new_launch(world):
    node = world.node()
    world.declare()
    world.passes()
    first = world.shard()
    node.fail(first.launch_id)
    (waiting,) = world.passes()
    assert 0 < waiting.shortest_wait <= 1.0
    assert world.replica().refusals[0]["code"] == "replica.back-off"
    world.pass_by(1.0)
    assert actions.request_if_due(world.now)
    world.passes()
    replica = world.replica()
    assert (replica.state, replica.attempt, replica.failures, replica.restarts) == (State.PLACED, 2, 1, 1)
    assert world.shard().launch_id != first.launch_id
    assert world.shard().failure is None


def test_a_pass_is_due_only_when_a_wait_has_ended_since_the_last_look(world, settings):
    settings.LLMGW_RECONCILE_S = 1000.0
    node = world.node()
    world.declare()
    world.passes()
    node.fail(world.shard().launch_id)
    world.passes()
    world.pass_by(0.5)
    assert not actions.request_if_due(world.now)
    world.pass_by(0.5)
    nodes.cordon("n1", by=ALICE, now=world.now)
    assert actions.request_if_due(world.now)
    world.passes()
    world.pass_by(1.0)
    assert states() == [State.FAILED]
    assert not actions.request_if_due(world.now), "it has no place: time alone does not help"


def test_somebody_looks_now_and_then_even_if_nothing_was_told(world, settings):
    world.passes()
    world.ask_for_pass()
    assert not actions.request_if_due(world.now)
    world.pass_by(settings.LLMGW_RECONCILE_S)
    assert actions.request_if_due(world.now)


def test_failures_in_a_row_count_until_a_start_has_served_long_enough(world):
    node = world.node()
    world.declare()
    world.passes()
    for failures in (1, 2, 3):
        node.fail(world.shard().launch_id)
        assert world.replica().failures == failures
        world.pass_by(300)
        world.ask_for_pass()
    node.tell(world.shard().launch_id, State.READY)
    assert world.replica().failures == 3
    world.pass_by(600)
    node.fail(world.shard().launch_id)
    assert world.replica().failures == 1
    assert world.replica().next_try_at == world.now + timedelta(seconds=1)


def test_fewer_wanted_drains_the_highest_ordinal(world, settings):
    node = world.serve(None, a_model(replicas=2))
    assert states() == [State.READY, State.READY]
    world.declare(a_model(replicas=1))
    world.passes()
    assert states() == [State.READY, State.DRAINING]
    stop = OrderRow.objects.get(kind="stop")
    assert (stop.payload["launch_id"], stop.payload["drain_s"]) == (
        world.shard("smollm2/2").launch_id,
        settings.LLMGW_DRAIN_S,
    )
    node.stop(world.shard("smollm2/2").launch_id)
    world.passes()
    assert states() == [State.READY]
    assert ReplicaRow.objects.get(ordinal=2).gone_at == world.now


def test_a_retired_model_drains_and_is_archived(world):
    from apps.catalog import actions as catalog

    node = world.serve()
    launch = world.shard().launch_id
    catalog.retire("smollm2", by=ALICE, now=world.now)
    world.passes()
    assert states() == [State.DRAINING]
    node.stop(launch)
    world.passes()
    assert states() == []
    assert world.ask_for_pass()[0].plan.actions == ()


def test_an_edited_model_is_replaced_by_a_start_beside_it(world):
    node = world.serve()
    world.declare(a_model(profiles=[a_profile(context_length=2048)]))
    world.passes()
    assert states() == [State.READY, State.PLACED]
    node.tell(world.shard("smollm2/2").launch_id, State.READY)
    world.passes()
    assert states() == [State.DRAINING, State.READY]


def test_what_ran_on_a_lost_node_starts_elsewhere(world):
    world.serve()
    lost = world.shard()
    world.node("n2")
    nodes.mark("n1", NodeState.READY, NodeState.LOST, why="silent", by=ALICE, now=world.now)
    (done, *_) = world.passes()
    assert [action.code for action in done.done] == ["lose", "start"]
    assert done.lost_races == 0
    assert world.shard().node.name == "n2"
    lost.refresh_from_db()
    assert (lost.state, lost.ended_at) == (State.LOST, None)


def test_a_replica_whose_node_was_forgotten_is_lost(world):
    world.serve()
    nodes.mark("n1", NodeState.READY, NodeState.LOST, why="silent", by=ALICE, now=world.now)
    nodes.forget("n1", by=ALICE, now=world.now)
    world.passes()
    assert states() == [State.LOST]


def test_an_engine_that_nobody_owns_is_stopped_once(world):
    node = world.node()
    world.report(node.shard_report(node.status("foreign", State.READY)))
    world.passes()
    assert OrderRow.objects.get(kind="stop").launch_id == "foreign"
    assert ShardRow.objects.get(launch_id="foreign").state == State.STOPPING
    assert world.ask_for_pass()[0].plan.actions == ()


def test_a_dry_run_writes_nothing(world):
    world.node()
    world.declare()
    plan = reconcile.look(world.now)
    assert [action.code for action in plan.actions] == ["start"]
    assert not ReplicaRow.objects.exists()
    assert not OrderRow.objects.filter(kind="launch").exists()


# --- one at a time ------------------------------------------------------------------------------------------------


def test_nobody_runs_a_pass_while_somebody_else_does(world):
    world.declare()
    assert turns.take("other", world.now)
    assert world.passes() == ()
    assert not ReplicaRow.objects.exists()


def test_who_died_in_a_pass_is_followed_by_another_with_a_higher_token(world):
    world.declare()
    dead = world.begin_pass("dead").under.turn
    world.pass_by(9)
    assert world.passes() == ()
    world.pass_by(2)
    (done,) = world.passes()
    assert done.token == dead.token + 1
    assert states() == [State.QUEUED]


def test_who_was_taken_for_dead_writes_nothing_more(world):
    world.node()
    world.declare(a_model(), a_model("other"))
    slow = world.begin_pass("slow")
    first, second = slow.plan.actions
    assert actions.apply(first, slow.under)
    world.pass_by(31)
    quick = world.begin_pass("quick")
    with pytest.raises(actions.Overtaken):
        actions.apply(second, slow.under)
    assert ShardRow.objects.count() == 1, "what it did in that transaction is undone"
    assert actions.apply(second, quick.under)
    with pytest.raises(actions.Overtaken):
        actions.finish(slow.under.turn, kept=None, looked_at=world.now, now=world.now)
    assert ShardRow.objects.count() == OrderRow.objects.filter(kind="launch").count() == 2
    assert not PassRow.objects.exists()


def test_a_run_that_was_overtaken_says_so_and_ends(world):
    world.declare()
    times = iter((world.now, world.now, world.now + timedelta(seconds=31)))
    stolen: list[datetime] = []

    def clock():
        now = next(times, world.now + timedelta(seconds=31))
        if len(stolen) == 1:  # the second time it is asked: the pass has begun
            assert turns.take("thief", now + timedelta(seconds=31))
        stolen.append(now)
        return now

    (done,) = reconcile.run(by=ALICE, clock=clock, ids=world.new_id)
    assert done.overtaken
    assert queries.passes().holder == "thief"
    assert not ReplicaRow.objects.exists()


def test_what_was_asked_for_during_a_pass_is_looked_at_by_its_holder(world):
    world.declare()
    asked = []

    def clock():
        asked.append(1)
        if len(asked) == 2:
            actions.request_pass()
        return world.now

    assert len(reconcile.run(by=ALICE, clock=clock, ids=world.new_id)) == 2
    row = ReconcileRow.objects.get()
    assert (row.done, row.holder) == (row.requested, "")


def test_many_requests_make_one_pass(world):
    world.node()
    for _ in range(500):
        actions.request_pass()
    assert len(world.passes()) == 1
    assert world.passes() == ()


def test_a_pass_that_breaks_lets_the_next_one_in(world):
    world.declare()
    times = iter((world.now,))
    with pytest.raises(StopIteration):
        reconcile.run(by=ALICE, clock=lambda: next(times), ids=world.new_id)
    assert len(world.passes()) == 1


def test_an_action_on_a_row_that_moved_meanwhile_is_not_carried_out(world):
    node = world.serve()
    world.declare(a_model(replicas=0))
    late = world.begin_pass()
    (drain,) = late.plan.actions
    node.fail(world.shard().launch_id)
    assert not actions.apply(drain, late.under)
    assert states() == [State.FAILED]
    assert not OrderRow.objects.filter(kind="stop").exists()


def test_a_slot_that_somebody_else_opened_is_not_opened_twice(world):
    world.node()
    world.declare()
    late = world.begin_pass("late")
    actions.release("late")
    world.passes()
    turn = turns.take("late", world.now) or late.under.turn
    assert turn is late.under.turn, "nothing more is wanted"
    with pytest.raises(actions.Overtaken):
        actions.keep_refusals((RefusedReplica(replica_id("smollm2", 1), ()),), late.under)
    assert ShardRow.objects.count() == 1


def test_a_request_counts_only_if_its_change_is_kept(world):
    world.passes()
    with transaction.atomic():
        world.declare()
        transaction.set_rollback(True)
    assert world.passes() == ()


# --- what operators ask -------------------------------------------------------------------------------------------


def test_a_drained_replica_ends_and_its_slot_starts_again(world):
    node = world.serve()
    assert actions.drain(world.replica(), by=ALICE, now=world.now, reason="new kernel") is None
    world.passes()
    assert states() == [State.DRAINING]
    assert world.replica().why == "asked by alice: new kernel"
    node.stop(world.shard().launch_id)
    world.passes()
    assert states() == [State.PLACED]


def test_a_restarted_replica_keeps_its_name_and_its_history(world):
    node = world.serve()
    row, first = world.replica(), world.shard().launch_id
    ReplicaRow.objects.filter(pk=row.pk).update(failures=2)
    assert actions.restart(world.replica(), by=ALICE, now=world.now) is None
    world.passes()
    node.stop(first)
    world.passes()
    again = world.replica()
    assert (again.pk, again.state, again.attempt) == (row.pk, State.PLACED, 2)
    assert (again.failures, again.restarts) == (0, 0), "somebody ended it on purpose"
    assert [attempt.number for attempt in queries.timeline(again).attempts] == [2, 1]
    assert world.ask_for_pass()[0].plan.actions == ()


def test_a_drained_replica_without_another_place_says_so(world):
    node = world.serve()
    nodes.cordon("n1", by=ALICE, now=world.now)
    actions.drain(world.replica(), by=ALICE, now=world.now)
    node.stop(world.shard().launch_id)
    world.passes()
    assert (world.replica().state, world.replica().why) == (State.STOPPED, "no place: 1 × node.cordoned")
    assert queries.describe_model(queries.models()[0])["state"] == "0 of 1 ready, 1 without a place"
    nodes.uncordon("n1", by=ALICE, now=world.now)
    world.passes()
    assert (world.replica().state, world.replica().attempt) == (State.PLACED, 2)


def test_what_has_failed_cannot_drain_but_is_restarted_at_once(world):
    node = world.node()
    world.declare()
    world.passes()
    node.fail(world.shard().launch_id)
    no = actions.drain(world.replica(), by=ALICE, now=world.now)
    assert no == NotAllowed(State.FAILED, Happened.DRAIN_ASKED)
    assert actions.restart(world.replica(), by=ALICE, now=world.now) is None
    world.passes()
    assert (world.replica().state, world.replica().attempt) == (State.PLACED, 2)


def test_a_stop_overtakes_a_launch_that_was_not_answered(world):
    world.node()
    world.declare()
    world.passes()
    assert actions.stop(world.replica(), by=ALICE, now=world.now) is None
    assert [(order.kind, order.state) for order in OrderRow.objects.exclude(kind="hello")] == [
        ("launch", "expired"),
        ("stop", "pending"),
    ]
    assert world.replica().state == State.STOPPING


def test_what_is_archived_takes_no_orders(world):
    node = world.serve()
    row = world.replica()
    world.declare(a_model(replicas=0))
    world.passes()
    node.stop(world.shard().launch_id)
    world.passes()
    for verb in (actions.drain, actions.stop, actions.restart):
        assert verb(row, by=ALICE, now=world.now) is not None


def test_each_move_leaves_a_row_that_names_who_and_why(world):
    world.serve()
    name = replica_id("smollm2", 1)
    moves = TransitionRow.objects.filter(replica=world.replica(name), shard__isnull=True)
    assert [(move.before, move.after) for move in moves] == [("queued", "placed"), ("placed", "ready")]
    assert moves[0].by == "pass 1" or moves[0].by.startswith("pass ")
    assert moves[1].by == "n1"
