"""The control worker's tasks: names that all sides agree on, and messages that no node should send."""

import pytest
from structlog.testing import capture_logs

from apps.nodes.models import ReportCountRow
from apps.replicas import dispatch, tasks
from apps.replicas.models import ReplicaRow
from llmgw import schedule
from llmgw.core import wire
from llmgw.core.lifecycle import Happened
from llmgw.core.world import State
from tests.apps.replicas.world import Teller


def counts():
    return dict(ReportCountRow.objects.values_list("outcome", "count"))


def test_the_schedule_names_tasks_that_exist():
    assert (dispatch.RECONCILE_TASK, dispatch.TIDY_TASK) == (schedule.RECONCILE, schedule.TIDY)
    assert tasks.reconcile.name == schedule.RECONCILE
    assert tasks.tidy.name == schedule.TIDY
    assert tasks.report.name == wire.REPORT_TASK


def test_a_report_is_read_and_applied(world):
    node = world.node()
    world.declare()
    world.passes()
    tasks.report(wire.to_wire(node.shard_report(node.status(world.shard().launch_id, State.READY))))
    assert world.replica().state == State.READY


@pytest.mark.parametrize(
    "raw",
    [
        None,
        [],
        "text",
        {},
        {"v": 99, "node": "n1"},
        {"v": 1, "kind": "gossip", "node": "n1"},
        {"v": 1, "kind": "shards", "node": 7},
        {"v": "1\x00", "node": "n1\x00\ud800"},
    ],
)
def test_what_cannot_be_read_is_counted_and_raises_nothing(world, raw):
    tasks.report(raw)
    assert counts() == {"unreadable": 1}


def test_what_is_part_of_every_start_is_not_logged_as_a_fault(world):
    node = Teller(world)
    first = wire.to_wire(node.registration())
    with capture_logs() as said:
        tasks.report(first)
        tasks.report(first)
    assert [(line["event"], line["log_level"]) for line in said] == [
        ("a node has registered, and is told the epoch that it has here", "info"),
        ("a report said nothing new", "debug"),
    ]


def test_a_report_of_a_node_that_nobody_knows_is_counted(world):
    node = world.node()
    raw = wire.to_wire(node.shard_report()) | {"node": "n9"}
    tasks.report(raw)
    assert counts()["unknown-node"] == 1


def test_whatever_an_engine_prints_can_be_kept(world):
    node = world.node()
    world.declare()
    world.passes()
    failure = wire.Failure("crashed", "it said \x00", tail=("binary \x00\x01 and half a pair \ud83d",))
    status = node.status(world.shard().launch_id, State.FAILED, Happened.FAILED, failure=failure)
    tasks.report(wire.to_wire(node.shard_report(status)))
    assert world.replica().state == State.FAILED
    assert "\x00" not in world.shard().failure["tail"][0]


def test_beats_look_runs_a_pass_only_when_one_is_due(world):
    world.declare()
    tasks.reconcile()
    assert ReplicaRow.objects.count() == 1
    before = world.replica().generation
    tasks.reconcile("request")
    assert world.replica().generation == before


def test_tidying_an_empty_database_is_fine(world):
    tasks.tidy()
