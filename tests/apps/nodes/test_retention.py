"""What is kept of a node's past, and of senders that no node is."""

from datetime import timedelta

import pytest

from apps.audit.actions import BEAT
from apps.nodes import actions
from apps.nodes.models import NodeTransitionRow, ReportCountRow
from llmgw.core.world import NodeState
from tests.apps.nodes.reports import at

pytestmark = pytest.mark.django_db
LATER = at(60) + timedelta(days=31)


def test_moves_go_after_a_month(joined):
    joined()
    before = NodeTransitionRow.objects.count()
    actions.mark("gpu07", NodeState.READY, NodeState.UNREACHABLE, why="silent", by=BEAT, now=LATER)
    assert actions.tidy(LATER)["node_moves"] == before > 0
    assert list(NodeTransitionRow.objects.values_list("after", flat=True)) == [NodeState.UNREACHABLE]


def test_counts_of_strangers_go_after_a_day_and_those_of_nodes_stay(joined):
    joined()
    actions.count_report("nobody", actions.UNREADABLE, now=at(60))
    assert actions.tidy(at(60))["report_counts"] == 0
    assert actions.tidy(LATER)["report_counts"] == 1
    assert set(ReportCountRow.objects.values_list("node_name", flat=True)) == {"gpu07"}
