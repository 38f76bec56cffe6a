"""What nodes tell of launches and orders: in order, twice, late, from another life, or not at all."""

import msgspec
import pytest

from apps.nodes import actions as nodes
from apps.nodes.models import NodeRow, ReportCountRow
from apps.replicas import queries
from apps.replicas.models import OrderRow, ReplicaRow, ShardRow, TransitionRow
from apps.replicas.signals import routes_changed
from llmgw.core import wire
from llmgw.core.engines import failures
from llmgw.core.lifecycle import Happened
from llmgw.core.units import Bytes, Seconds
from llmgw.core.world import NodeState, State
from tests.apps.replicas.world import ALICE, Teller
from tests.builders import a_model


@pytest.fixture
def placed(world):
    """A node with one launch that it was ordered to start."""
    node = world.node()
    world.declare()
    world.passes()
    return node


@pytest.fixture
def routed():
    """How often the routing table had to be looked at."""
    heard = []

    def listen(**_):
        heard.append(1)

    routes_changed.connect(listen)
    yield heard
    routes_changed.disconnect(listen)


def orders(kind):
    return OrderRow.objects.filter(kind=kind)


def counted(outcome):
    row = ReportCountRow.objects.filter(outcome=outcome).first()
    return row.count if row else 0


# --- the straight line --------------------------------------------------------------------------------------------


def test_a_status_carries_all_steps_and_leaves_a_row_for_each(world, placed, routed):
    launch = world.shard().launch_id
    assert placed.tell(launch, State.READY) == "taken"
    shard = world.shard()
    assert (shard.state, shard.host, shard.port, shard.steps_seen) == (State.READY, "127.0.0.1", 40001, 4)
    moves = TransitionRow.objects.filter(shard=shard)
    assert [move.after for move in moves] == ["placed", "fetching", "launching", "loading", "ready"]
    assert [move.node_at is not None for move in moves] == [False, True, True, True, True]
    assert (world.replica().state, world.replica().ready_at) == (State.READY, world.now)
    assert len(routed) == 1


def test_the_answer_closes_the_order(world, placed):
    placed.tell(world.shard().launch_id, State.FETCHING)
    order = orders("launch").get()
    assert (order.state, order.answered_at, order.next_send_at) == ("acknowledged", world.now, None)
    assert world.replica().state == State.FETCHING


def test_an_engine_that_stops_answering_leaves_the_routes_and_comes_back(world, placed, routed):
    launch = world.shard().launch_id
    placed.tell(launch, State.READY)
    placed.tell(launch, State.LOADING, Happened.PROBE_PASSED, Happened.PROBE_FAILED)
    assert world.replica().state == State.LOADING
    placed.tell(launch, State.READY, Happened.PROBE_PASSED, Happened.PROBE_FAILED, Happened.PROBE_PASSED)
    assert world.replica().state == State.READY
    assert len(routed) == 3


def test_a_failure_is_kept_with_its_lines_and_sets_the_wait(world, placed):
    placed.fail(world.shard().launch_id, "no memory left")
    shard, replica = world.shard(), world.replica()
    assert (shard.state, shard.ended_at) == (State.FAILED, world.now)
    assert shard.failure["tail"] == ["loading", "failed to allocate"]
    assert (replica.state, replica.failures, replica.why) == (State.FAILED, 1, "no memory left")
    assert orders("forget").get().launch_id == shard.launch_id


def test_progress_of_a_fetch_is_kept_and_asks_for_no_pass(world, placed):
    launch = world.shard().launch_id
    placed.tell(launch, State.FETCHING)
    world.passes()
    placed.tell(launch, State.FETCHING, progress=wire.Progress(Bytes(5), Bytes(10)))
    assert world.shard().progress == {"done": 5, "total": 10}
    assert world.passes() == ()


def test_a_report_takes_few_queries(world, placed, django_assert_max_num_queries):
    launch = world.shard().launch_id
    placed.tell(launch, State.LOADING)
    answer = wire.Answer(orders("launch").get().order_id, wire.AnswerKind.REPEATED)
    report = placed.shard_report(placed.status(launch, State.READY), answers=[answer])
    with django_assert_max_num_queries(14):
        world.report(report)
    assert world.replica().why == "serves"


# --- twice, late, out of order ------------------------------------------------------------------------------------


def test_the_same_report_twice_is_taken_once(world, placed):
    report = placed.shard_report(placed.status(world.shard().launch_id, State.READY))
    assert world.report(report) == "taken"
    before = TransitionRow.objects.count(), world.replica().generation
    assert world.report(report) == "repeated"
    assert (TransitionRow.objects.count(), world.replica().generation) == before


def test_an_older_report_that_comes_later_changes_nothing(world, placed):
    launch = world.shard().launch_id
    older = placed.shard_report(placed.status(launch, State.FETCHING))
    placed.tell(launch, State.READY)
    assert world.report(older) == "stale-seq"
    assert world.shard().state == State.READY
    assert counted("stale-seq") == 1


def test_an_end_that_was_told_before_the_last_news_lets_nothing_be_forgotten(world, placed):
    launch = world.shard().launch_id
    older = placed.shard_report(placed.status(launch, State.FAILED, Happened.FAILED))
    placed.tell(launch, State.READY)
    world.report(older)
    assert not orders("forget").exists()


def test_an_older_report_about_another_launch_still_counts(world):
    node = world.node()
    world.declare(a_model(replicas=2))
    world.passes()
    older = node.shard_report(node.status(world.shard("smollm2/1").launch_id, State.READY))
    node.tell(world.shard("smollm2/2").launch_id, State.READY)
    assert world.report(older) == "taken"
    assert world.replica("smollm2/1").state == State.READY


def test_a_report_of_an_older_epoch_is_ignored_counted_and_answered_with_hello(world, placed):
    launch = world.shard().launch_id
    late = placed.shard_report(placed.status(launch, State.READY), epoch=placed.epoch - 1)
    hellos = len(placed.hellos())
    assert world.report(late) == "stale-epoch"
    assert world.shard().state == State.PLACED
    assert len(placed.hellos()) == hellos + 1
    world.report(placed.shard_report(epoch=placed.epoch - 1))
    assert len(placed.hellos()) == hellos + 1, "it was asked already"


def test_a_hello_of_an_epoch_that_has_passed_is_replaced(world, placed):
    world.report(placed.shard_report(epoch=placed.epoch - 1))
    stale = placed.hellos()[-1]
    NodeRow.objects.update(epoch=placed.epoch + 5)
    world.report(placed.shard_report(epoch=placed.epoch - 1))
    stale.refresh_from_db()
    assert stale.state == "expired"
    assert placed.hellos()[-1].payload["epoch"] == placed.epoch + 5


def test_another_machine_under_the_same_name_is_not_believed(world, placed):
    impostor = Teller(world, "n1", instance="another-folder")
    impostor.epoch = placed.epoch
    assert world.report(impostor.shard_report(impostor.status(world.shard().launch_id))) == "other-instance"
    assert world.shard().state == State.PLACED


def test_a_report_that_only_completes_the_steps_moves_on_from_where_we_are(world, placed):
    launch = world.shard().launch_id
    placed.tell(launch, State.LAUNCHING)
    placed.tell(launch, State.READY)
    afters = TransitionRow.objects.filter(shard=world.shard()).values_list("after", flat=True)
    assert list(afters) == ["placed", "fetching", "launching", "loading", "ready"]


def test_a_state_that_its_steps_do_not_lead_to_is_believed(world, placed):
    launch = world.shard().launch_id
    status = placed.status(launch, State.READY)
    bare = wire.ShardStatus(launch_id=status.launch_id, replica=status.replica, attempt=1, state=State.READY, steps=())
    world.report(placed.shard_report(bare))
    assert world.shard().state == State.READY


def test_what_we_have_asked_to_end_is_not_called_back_by_a_late_step(world, placed):
    launch = world.shard().launch_id
    from apps.replicas import actions

    actions.stop(world.replica(), by=ALICE, now=world.now)
    placed.tell(launch, State.READY)
    assert world.shard().state == State.STOPPING
    placed.stop(launch)
    assert world.shard().state == State.STOPPED
    assert orders("stop").get().state == "expired", "it has happened: nobody sends it any more"


def test_a_clock_that_says_nonsense_costs_only_the_moment(world, placed):
    status = placed.status(world.shard().launch_id, State.PLACED, wire.Step(Happened.FETCH_BEGUN, Seconds(1e30)))
    world.report(placed.shard_report(msgspec.structs.replace(status, state=State.FETCHING, steps=status.steps[-1:])))
    assert world.shard().state == State.FETCHING
    assert TransitionRow.objects.get(shard=world.shard(), after="fetching").node_at is None


# --- answers ------------------------------------------------------------------------------------------------------


def refuse(node, order, code, text="because"):
    answer = wire.Answer(order.order_id, wire.AnswerKind.REFUSED, code, text)
    return node.world.report(node.shard_report(answers=[answer]))


def test_a_refused_launch_fails_with_the_nodes_reason(world, placed):
    refuse(placed, orders("launch").get(), "order.invalid", "no engine of that name")
    assert world.shard().failure["failure_class"] == failures.ORDER_REFUSED.code
    assert "order to start: n1 says no engine of that name – mend what" in world.replica().why
    assert orders("launch").get().state == "refused"


@pytest.mark.parametrize("code", ["order.stale-epoch", "order.other-instance"])
def test_an_order_that_met_a_newer_epoch_or_worker_is_sent_again(world, placed, code):
    order = orders("launch").get()
    refuse(placed, order, code)
    order.refresh_from_db()
    assert (order.state, order.next_send_at) == ("pending", world.now)
    assert world.replica().state == State.PLACED


def test_answers_to_orders_of_other_nodes_count_for_nothing(world, placed):
    other = world.node("n2")
    refuse(other, orders("launch").get(), "order.invalid")
    assert orders("launch").get().state == "pending"


# --- registrations: complete lists --------------------------------------------------------------------------------


def test_a_restarted_worker_that_adopted_its_engine_goes_on(world, placed):
    launch = world.shard().launch_id
    placed.tell(launch, State.READY)
    placed.session, placed.told = 2, 0
    placed.join(placed.status(launch, State.READY, adopted=True))
    assert world.shard().adopted
    assert world.replica().state == State.READY
    assert NodeRow.objects.get().epoch == placed.epoch


def test_what_a_complete_list_does_not_name_has_failed(world, placed):
    placed.tell(world.shard().launch_id, State.READY)
    placed.join()
    shard = world.shard()
    assert (shard.state, shard.failure["failure_class"]) == (State.FAILED, "vanished")
    assert "n1 has no trace of it" in world.replica().why


def test_an_order_that_may_still_be_on_its_way_is_left_to_the_outbox(world, placed):
    placed.join()
    assert world.shard().state == State.PLACED
    assert orders("launch").get().state == "pending"


def test_a_list_made_before_the_last_report_ends_nothing(world, placed):
    older = placed.registration()
    placed.tell(world.shard().launch_id, State.LOADING)
    world.report(older)
    assert world.shard().state == State.LOADING


def test_a_reboot_fences_what_was_said_before_and_fails_what_ran(world, placed):
    launch = world.shard().launch_id
    placed.tell(launch, State.READY)
    late = placed.shard_report(placed.status(launch, State.READY))
    epoch = placed.epoch
    placed.boot_id, placed.session, placed.told = "boot-2", 2, 0
    placed.join()
    assert placed.epoch > epoch
    assert world.replica().state == State.FAILED
    assert world.report(late) == "other-instance"


def test_a_new_state_folder_counts_its_reports_anew(world, placed):
    launch = world.shard().launch_id
    placed.session = 9
    placed.tell(launch, State.LOADING)
    fresh = Teller(world, "n1", instance="new-folder")
    fresh.join(fresh.status(launch, State.READY))
    assert fresh.seq < placed.seq
    assert world.shard().state == State.READY


def test_an_unknown_launch_is_written_down_as_a_stray(world, placed):
    assert placed.tell("unknown", State.LOADING) == "taken"
    stray = ShardRow.objects.get(launch_id="unknown")
    assert (stray.replica, stray.node.name, stray.state) == (None, "n1", State.LOADING)
    assert [(each.launch_id, each.stopping) for each in queries.view().snapshot.strays] == [("unknown", False)]


def test_an_unknown_launch_that_has_ended_is_to_be_forgotten_there(world, placed):
    placed.tell("unknown", State.STOPPED, Happened.EXITED)
    assert not ShardRow.objects.filter(launch_id="unknown").exists()
    assert orders("forget").get().launch_id == "unknown"


# --- lost and found -----------------------------------------------------------------------------------------------


@pytest.fixture
def lost(world):
    """A node that served and was given up; its epoch has risen."""
    node = world.serve()
    nodes.mark("n1", NodeState.READY, NodeState.LOST, why="silent", by=ALICE, now=world.now)
    world.passes()
    assert world.replica().state == State.LOST
    return node


@pytest.mark.parametrize(("there", "here"), [(State.READY, State.READY), (State.LOADING, State.LOADING)])
def test_what_never_stopped_is_taken_back(world, lost, there, here):
    launch = world.shard().launch_id
    lost.session = 2
    lost.join(lost.status(launch, there))
    assert (world.shard().state, world.replica().state, world.replica().attempt) == (here, here, 1)


def test_what_ended_while_its_node_was_away_stays_lost(world, lost):
    launch = world.shard().launch_id
    lost.session = 2
    lost.join(lost.status(launch, State.FAILED, Happened.FAILED))
    shard = world.shard()
    assert (shard.state, shard.ended_at) == (State.LOST, world.now)
    assert orders("forget").get().launch_id == launch


def test_what_was_replaced_meanwhile_is_stopped_on_return(world, lost):
    old = world.shard().launch_id
    world.node("n2")
    world.passes()
    assert world.shard().node.name == "n2"
    lost.session = 2
    lost.join(lost.status(old, State.READY))
    world.passes()
    assert ShardRow.objects.get(launch_id=old).state == State.STOPPING
    assert orders("stop").get().launch_id == old
    assert world.replica().state == State.PLACED


def test_what_was_retired_meanwhile_is_stopped_on_return(world, lost):
    launch = world.shard().launch_id
    world.declare(a_model(replicas=0))
    world.passes()
    assert not ReplicaRow.objects.filter(gone_at__isnull=True).exists()
    lost.session = 2
    lost.join(lost.status(launch, State.READY))
    world.passes()
    assert orders("stop").get().launch_id == launch


def test_what_was_closed_here_and_still_runs_is_stopped(world, placed):
    launch = world.shard().launch_id
    placed.tell(launch, State.READY)
    placed.join()
    assert world.shard().state == State.FAILED
    placed.tell(launch, State.READY)
    assert ShardRow.objects.get(launch_id=launch).state == State.STOPPING
    assert orders("stop").get().launch_id == launch
    placed.stop(launch)
    assert world.replica().state == State.STOPPED
