"""Moves of a node, what operators ask of it, and sweeps in which it tells otherwise than we know."""

from datetime import UTC, datetime

import pytest

from apps.audit.actions import BEAT, Actor
from apps.audit.models import AuditRow
from apps.nodes import actions, queries
from apps.nodes.models import NodeRow, NodeTransitionRow
from llmgw.core import wire
from llmgw.core.world import NodeState
from tests.apps.nodes.reports import GPU, a_beat, a_registration, an_inventory, an_inventory_change, at

pytestmark = pytest.mark.django_db

ANNA = Actor("anna", "cli")
READY, UNREACHABLE, LOST, JOINING = NodeState.READY, NodeState.UNREACHABLE, NodeState.LOST, NodeState.JOINING


def move(before, after, now=None):
    return actions.mark("gpu07", before, after, why="as it is", by=BEAT, now=now or at(60), last_tick=12)


def present():
    return NodeRow.objects.get(name="gpu07")


def test_a_move_is_made_once_and_kept(joined, told):
    joined()
    assert move(READY, UNREACHABLE)
    assert not move(READY, UNREACHABLE)
    assert (present().state, present().state_since, present().last_tick) == (UNREACHABLE, at(60), 12)
    kept = NodeTransitionRow.objects.order_by("id").values_list("before", "after", "why", "by")
    assert list(kept) == [("joining", "ready", "registered", "gpu07"), ("ready", "unreachable", "as it is", "beat")]


def test_the_epoch_rises_when_a_node_is_given_up_and_only_then(joined, told):
    joined()
    move(READY, UNREACHABLE)
    assert (present().epoch, told["node_lost"]) == (1, [])
    move(UNREACHABLE, LOST)
    assert present().epoch == 2
    assert [(each["node"].name, each["node"].epoch) for each in told["node_lost"]] == [("gpu07", 2)]


def test_a_return_is_told_with_what_it_was(joined, told):
    joined()
    move(READY, UNREACHABLE)
    move(UNREACHABLE, READY, at(70))
    move(READY, LOST)
    move(LOST, JOINING, at(90))
    assert [(each["was"], each["node"].state) for each in told["node_returned"]] == [
        (UNREACHABLE, READY),
        (LOST, JOINING),
    ]
    assert present().last_heard_at == at(90)


def test_a_node_that_nobody_knows_cannot_be_moved():
    assert not move(READY, LOST)


# --- cordon


def test_a_cordon_is_set_once_audited_and_told(joined, told):
    joined()
    told.clear()
    for _ in range(2):
        row = actions.cordon("gpu07", by=ANNA, now=at(1), reason="new fan")
        assert isinstance(row, NodeRow)
        assert row.cordoned
    (entry,) = AuditRow.objects.all()
    assert (entry.verb, entry.object_id, entry.actor, entry.reason) == ("node.cordon", "gpu07", "anna", "new fan")
    assert (entry.before, entry.after) == ({"cordoned": False}, {"cordoned": True})
    assert len(told["nodes_changed"]) == 1
    (node,) = queries.nodes()
    assert (node.cordoned, node.state) == (True, READY)
    actions.uncordon("gpu07", by=ANNA, now=at(2))
    assert AuditRow.objects.count() == 2
    assert not present().cordoned


@pytest.mark.parametrize("act", [actions.cordon, actions.uncordon, actions.forget])
def test_nobody_is_a_typed_no(act):
    no = act("nobody", by=ANNA, now=at(0))
    assert isinstance(no, actions.NotFound)
    assert (no.code, no.name) == ("node.unknown", "nobody")
    assert "nobody" in no.text()
    assert "manage.py nodes" in no.cure()


# --- forget


def test_only_a_lost_node_can_be_forgotten(joined):
    joined()
    no = actions.forget("gpu07", by=ANNA, now=at(0))
    assert isinstance(no, actions.NotLost)
    assert "ready" in no.text()
    assert "gpu07" in no.cure()
    move(READY, LOST)
    assert actions.forget("gpu07", by=ANNA, now=at(1), reason="sold") is None
    assert not NodeRow.objects.exists()
    entry = AuditRow.objects.first()
    assert entry is not None
    assert (entry.verb, entry.reason) == ("node.forget", "sold")
    assert entry.before
    assert entry.before["devices"][0]["id"] == "cpu"


# --- telling otherwise


def test_a_node_is_told_hello_after_two_sweeps_of_another_digest(joined):
    joined()
    other = {"gpu07": a_beat(digest="deadbeef")}
    assert actions.compare(other, {}) == ()
    assert [row.name for row in actions.compare(other, {})] == ["gpu07"]


def test_one_sweep_of_agreement_begins_the_count_anew(joined):
    joined()
    ours = {"gpu07": wire.digest([("launch-1", "ready")])}
    assert actions.compare({"gpu07": a_beat()}, ours) == ()
    assert actions.compare({"gpu07": a_beat(digest=ours["gpu07"])}, ours) == ()
    assert actions.compare({"gpu07": a_beat()}, ours) == ()


@pytest.mark.parametrize("beat", [a_beat(epoch=0), a_beat(boot="boot-2"), a_beat(instance="folder-2")])
def test_a_node_that_answers_as_somebody_else_is_told_hello(joined, beat):
    joined()
    actions.compare({"gpu07": beat}, {})
    assert [row.name for row in actions.compare({"gpu07": beat}, {})] == ["gpu07"]


def test_what_just_moved_is_not_held_against_a_node(joined):
    joined()
    moving: dict[str, str | None] = {"gpu07": None}
    assert [actions.compare({"gpu07": a_beat(digest="deadbeef")}, moving) for _ in range(3)] == [(), (), ()]
    actions.compare({"gpu07": a_beat(epoch=0)}, moving)
    assert actions.compare({"gpu07": a_beat(epoch=0)}, moving), "it still must be the node that we know"


def test_a_node_that_stays_joining_is_told_hello_again():
    actions.receive(a_registration(), now=at(0))
    actions.compare({"gpu07": a_beat()}, {})
    assert [row.name for row in actions.compare({"gpu07": a_beat()}, {})] == ["gpu07"]


def test_comparing_writes_nothing_while_all_agree(joined, django_assert_num_queries):
    for name in ("a", "b", "c"):
        joined(name)
    with django_assert_num_queries(1):
        assert actions.compare({name: a_beat() for name in "abc"}, {}) == ()


def test_a_node_that_answers_and_that_nobody_knows_is_written_down(told):
    assert actions.introduce("gpu07", a_beat(epoch=4), now=at(0))
    assert not actions.introduce("gpu07", a_beat(epoch=4), now=at(1))
    assert (present().state, present().epoch) == (JOINING, 5)
    assert [each["node"].name for each in told["node_returned"]] == ["gpu07"]
    assert actions.receive(a_registration(epoch=5, seq=8), now=at(2)).taken
    assert (present().state, present().epoch) == (READY, 5)


# --- reading


@pytest.mark.parametrize("count", [3, 40])
def test_two_queries_for_any_number_of_nodes(count, joined, django_assert_num_queries):
    for index in range(count):
        joined(f"gpu{index:02}")
    with django_assert_num_queries(2):
        assert len(queries.nodes()) == count


def test_a_description_holds_all_that_the_doors_show(joined):
    joined(now=datetime(2026, 12, 1, 13, tzinfo=UTC))
    actions.receive(an_inventory_change(GPU, seq=3), now=at(0))
    told = queries.describe(present())
    assert told["state"] == "ready"
    assert told["state_since"] == "2026-12-01T13:00:00+00:00"
    assert told["devices"] == [
        {
            "id": "GPU-1",
            "kind": "gpu",
            "class": "l40s-45g",
            "memory_bytes": 45 * 2**30,
            "slots": 1,
            "unhealthy": None,
            "unhealthy_code": None,
            "index": None,
            "label": None,
            "card": None,
        }
    ]
    assert told["inventory"]["cpu_count"] == an_inventory().cpu_count
    assert "devices" not in told["inventory"]
