"""Whose reports are taken, and under which epoch."""

import msgspec
import pytest

from apps.audit.actions import BEAT
from apps.nodes import actions, queries
from apps.nodes.models import NodeRow, NodeTransitionRow, ReportCountRow
from llmgw.core.hardware.fabrics import Attachment
from llmgw.core.units import Bytes
from llmgw.core.world import NodeState
from tests.apps.nodes.reports import (
    CPU,
    GPU,
    a_registration,
    a_report,
    an_examination,
    an_inventory,
    an_inventory_change,
    at,
)
from tests.builders import EXAMINATION

pytestmark = pytest.mark.django_db


def receive(report, now=None):
    return actions.receive(report, now=now or at(60))


def present(name="gpu07"):
    return NodeRow.objects.get(name=name)


def counts():
    return dict(ReportCountRow.objects.values_list("outcome", "count"))


# --- joining


def test_a_new_node_gets_an_epoch_and_is_ready_once_it_has_registered_under_it(told):
    first = receive(a_registration(seq=1))
    assert (first.taken, first.hello) == (False, True)
    assert (present().state, present().epoch) == (NodeState.JOINING, 1)
    second = receive(a_registration(epoch=1, seq=2))
    assert (second.taken, second.hello) == (True, False)
    assert present().state == NodeState.READY
    assert counts() == {"new-epoch": 1, "taken": 1}
    assert not told["node_returned"]
    assert all(each["names"] == ("gpu07",) for each in told["nodes_changed"])


def test_who_it_is_and_what_it_has_is_taken_at_once():
    receive(a_registration(address="127.0.0.7", labels={"rack": "a"}, inventory=an_inventory(CPU, GPU, disk_free=7)))
    (node,) = queries.nodes()
    assert (node.address, node.labels, node.devices) == ("127.0.0.7", {"rack": "a"}, (CPU, GPU))
    assert (set(node.engines), node.disk_free) == ({"llamacpp"}, Bytes(7))


def test_a_node_of_another_database_is_fenced_from_that_ones_orders():
    receive(a_registration(epoch=5))
    assert present().epoch == 6


def test_a_restarted_worker_is_taken_at_once(joined):
    joined()
    again = receive(a_registration(epoch=1, seq=2**32 + 1))
    assert (again.taken, present().epoch, present().state) == (True, 1, NodeState.READY)


@pytest.mark.parametrize("name", ["", "x" * 64, "a\0b"])
def test_what_cannot_be_a_name_is_counted_and_makes_no_node(name):
    assert receive(a_registration(name)).node is None
    assert counts() == {"unreadable": 1}
    assert not NodeRow.objects.exists()


# --- coming back as somebody else


@pytest.mark.parametrize(
    ("change", "why"),
    [({"boot": "boot-2"}, "has rebooted"), ({"instance": "folder-2"}, "registered from another state folder")],
)
def test_another_boot_or_folder_is_another_epoch(joined, change, why):
    joined()
    back = receive(a_registration(epoch=1, seq=3, **change))
    assert (back.taken, back.hello) == (False, True)
    assert (present().state, present().epoch) == (NodeState.JOINING, 2)
    move = NodeTransitionRow.objects.last()
    assert move is not None
    assert (move.before, move.after, move.why, move.by) == ("ready", "joining", why, "gpu07")
    assert receive(a_registration(epoch=2, seq=4, **change)).taken
    assert present().state == NodeState.READY


def test_another_folder_counts_its_reports_anew(joined):
    joined()
    receive(a_registration(epoch=1, seq=100))
    receive(a_registration(epoch=0, seq=1, instance="folder-2"))
    assert receive(a_registration(epoch=2, seq=2, instance="folder-2")).taken


def test_two_workers_with_one_name_are_told_and_do_not_spur_each_other_on(joined):
    joined()
    first = receive(a_registration(epoch=1, seq=1, instance="folder-2"))
    assert (first.hello, present().findings) == (True, [])
    second = receive(a_registration(epoch=2, seq=3))
    assert (second.taken, second.hello, present().epoch) == (False, False, 3)
    (found,) = present().findings
    assert found["code"] == "node.two-workers"
    assert receive(a_registration(epoch=3, seq=4)).taken
    assert present().findings == []


def test_a_database_that_was_restored_gives_way_to_what_the_node_has_seen(joined):
    joined()
    reception = receive(a_registration(epoch=9, seq=3))
    assert (reception.taken, reception.hello, present().epoch) == (False, True, 10)
    late = receive(a_report(epoch=12, seq=4))
    assert (late.taken, late.hello, present().epoch) == (False, True, 13)


def test_a_lost_node_that_registers_is_joining_until_it_knows_its_epoch(joined, told):
    joined()
    actions.mark("gpu07", NodeState.READY, NodeState.LOST, why="silent", by=BEAT, now=at(30))
    assert present().epoch == 2
    back = receive(a_registration(epoch=1, seq=3))
    assert (back.taken, back.hello, present().state) == (False, True, NodeState.JOINING)
    assert [each["was"] for each in told["node_returned"]] == [NodeState.LOST]
    assert receive(a_registration(epoch=2, seq=4)).taken
    assert present().state == NodeState.READY


def test_an_unreachable_node_that_registers_is_ready_at_once(joined, told):
    joined()
    actions.mark("gpu07", NodeState.READY, NodeState.UNREACHABLE, why="", by=BEAT, now=at(30))
    assert receive(a_registration(epoch=1, seq=3)).taken
    assert present().state == NodeState.READY
    assert [(each["was"], each["node"].state) for each in told["node_returned"]] == [("unreachable", "ready")]


# --- late, twice, and from elsewhere


def test_a_report_is_taken_once(joined):
    joined()
    assert receive(a_report(seq=3)).taken
    assert receive(a_report(seq=3)).outcome == "repeated"
    assert present().last_seq == 3


def test_an_older_report_that_comes_late_is_taken_each_status_tells_for_itself_what_is_older(joined):
    joined()
    receive(a_report(seq=5))
    assert receive(a_report(seq=4)).taken
    assert present().last_seq == 5


def test_a_registration_is_taken_once_and_an_older_one_never(joined):
    joined()
    receive(a_registration(epoch=1, seq=5, address="127.0.0.5"))
    assert receive(a_registration(epoch=1, seq=5)).outcome == "repeated"
    assert receive(a_registration(epoch=1, seq=4, address="127.0.0.4")).outcome == "stale-seq"
    assert present().address == "127.0.0.5"


def test_a_registration_that_a_status_has_overtaken_is_taken(joined):
    """Two control workers may take a node's reports in either order; the complete list is needed."""
    joined()
    receive(a_report(seq=2**32 + 2))
    assert receive(a_registration(epoch=1, seq=2**32 + 1)).taken


@pytest.mark.parametrize(
    ("report", "outcome", "hello"),
    [
        (a_report(epoch=0, seq=9), "stale-epoch", True),
        (a_report(instance="folder-2", seq=9), "other-instance", False),
        (a_report(boot="boot-2", seq=9), "other-instance", False),
        (a_report("nobody", seq=9), "unknown-node", False),
    ],
)
def test_what_is_ignored_is_counted_and_changes_nothing(joined, report, outcome, hello):
    before = joined()
    reception = receive(report)
    assert (reception.outcome, reception.taken, reception.hello) == (outcome, False, hello)
    assert counts()[outcome] == 1
    assert (present().last_seq, present().state, present().epoch) == (before.last_seq, before.state, before.epoch)
    detail = ReportCountRow.objects.get(outcome=outcome).last_detail
    assert detail.startswith("ShardReport 9")


def test_counting_goes_on():
    for _ in range(3):
        receive(a_report("nobody"))
    assert counts() == {"unknown-node": 3}


# --- inventory


def test_devices_change_in_place(joined):
    node = joined()
    receive(an_inventory_change(CPU, GPU, seq=3))
    rows = {device.device_id: device.pk for device in node.devices.all()}
    sick = msgspec.structs.replace(
        GPU, unhealthy="fell off the bus", unhealthy_code="device.unhealthy.lost", index=1003, label="0/mig3", card="G"
    )
    receive(an_inventory_change(CPU, sick, seq=4))
    assert {device.device_id: device.pk for device in node.devices.all()} == rows
    (told,) = queries.nodes()
    assert told.devices == (CPU, sick)


def last_examination():
    return queries.examination_of(NodeRow.objects.get(name="gpu07"))


def test_the_doctor_s_last_run_is_kept(joined):
    assert queries.examination_of(joined()) is None
    receive(an_examination(seq=4, at=2.0))
    receive(an_examination(seq=3, at=1.0))
    assert last_examination() == msgspec.structs.replace(EXAMINATION, at=2.0)
    assert counts()["stale-seq"] == 1
    receive(an_examination(seq=9, instance="of somebody else", at=3.0))
    assert last_examination().at == 2.0


def test_fabrics_are_told_to_placement(joined):
    joined()
    dark = Attachment(name="compute", unusable="no light", unusable_code="fabric.no-port")
    change = msgspec.structs.replace(an_inventory_change(CPU, seq=3), inventory=an_inventory(CPU, fabrics=(dark,)))
    receive(change)
    assert queries.nodes()[0].fabrics == (dark,)


def test_a_device_that_vanished_is_removed(joined, told):
    joined()
    receive(an_inventory_change(CPU, GPU, seq=3))
    told.clear()
    receive(an_inventory_change(CPU, seq=4))
    (node,) = queries.nodes()
    assert node.devices == (CPU,)
    assert len(told["nodes_changed"]) == 1


def test_an_older_inventory_does_not_undo_a_newer(joined):
    joined()
    receive(an_inventory_change(CPU, GPU, seq=5))
    assert receive(an_inventory_change(CPU, seq=4)).outcome == "stale-seq"
    receive(a_registration(epoch=1, seq=3, inventory=an_inventory(CPU)))
    (node,) = queries.nodes()
    assert node.devices == (CPU, GPU)


# --- what it costs


def test_a_status_costs_a_handful_of_queries(joined, django_assert_max_num_queries):
    joined()
    receive(a_report(seq=3))
    with django_assert_max_num_queries(5):  # two of them the test's own savepoint
        receive(a_report(seq=4))
