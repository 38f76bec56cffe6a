"""Only ticks that were sent can be missed, and a node is judged by nothing else."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.core.liveness import Tick, Verdict, Watched, judge, missed
from llmgw.core.units import NodeName, Seconds
from llmgw.core.world import NodeState

JOINING, READY, UNREACHABLE, LOST = NodeState.JOINING, NodeState.READY, NodeState.UNREACHABLE, NodeState.LOST
NODE = NodeName("gpu07")


def ticks(first, last):
    return tuple(Tick(number, Seconds(number * 2.0)) for number in range(first, last + 1))


def after(node, sent):
    """The state that the node is in once it was judged; 3 ticks to unreachable, 9 to lost."""
    verdicts = judge((node,), sent, unreachable_after=3, lost_after=9)
    assert all(verdict.before is node.state for verdict in verdicts)
    return verdicts[0].after if verdicts else node.state


def a_node(state=READY, answered=None, reported_at=None):
    return Watched(NODE, state, answered, reported_at)


@pytest.mark.parametrize(
    ("silent_for", "state"),
    [(0, READY), (1, READY), (2, READY), (3, UNREACHABLE), (8, UNREACHABLE), (9, LOST), (12, LOST)],
)
def test_a_silent_node_is_first_unreachable_then_lost(silent_for, state):
    assert after(a_node(answered=100), ticks(95, 100 + silent_for)) is state


def test_an_unreachable_node_that_stays_silent_is_lost():
    assert after(a_node(UNREACHABLE, answered=100), ticks(95, 109)) is LOST


@pytest.mark.parametrize(("before", "returned"), [(UNREACHABLE, READY), (LOST, JOINING)])
def test_a_node_that_is_heard_again_returns(before, returned):
    assert after(a_node(before, answered=120), ticks(103, 120)) is returned


def test_a_node_that_answered_too_long_ago_does_not_return():
    assert after(a_node(UNREACHABLE, answered=115), ticks(103, 120)) is UNREACHABLE


@pytest.mark.parametrize("state", [JOINING, READY])
def test_a_node_that_answers_stays_what_it_is(state):
    assert after(a_node(state, answered=100), ticks(90, 100)) is state


def test_a_joining_node_that_falls_silent_is_lost_without_having_been_unreachable():
    assert after(a_node(JOINING, answered=100), ticks(95, 108)) is JOINING
    assert after(a_node(JOINING, answered=100), ticks(95, 109)) is LOST


def test_without_ticks_nobody_misses_any():
    """The control side slept, or Redis came back empty: whatever was answered before, and however long ago."""
    for state in NodeState:
        assert after(a_node(state, answered=100), ()) is state
        assert after(a_node(state), ()) is state


def test_what_was_sent_before_a_node_registered_it_has_not_missed():
    just_registered = a_node(reported_at=Seconds(2.0 * 100))
    assert missed(just_registered, ticks(80, 100)) == 0
    assert after(just_registered, ticks(80, 102)) is READY
    assert after(just_registered, ticks(85, 103)) is UNREACHABLE


def test_an_answer_from_before_redis_lost_its_counter_counts_for_nothing():
    """Else a node that died with the old Redis would be heard for ever."""
    assert after(a_node(answered=5000), ticks(1, 3)) is UNREACHABLE
    assert after(a_node(answered=5000), ticks(1, 9)) is LOST
    assert after(a_node(UNREACHABLE, answered=5000), ticks(1, 2)) is UNREACHABLE


def test_an_empty_redis_is_no_sign_of_life():
    assert after(a_node(UNREACHABLE), ticks(1, 1)) is UNREACHABLE
    assert after(a_node(LOST), ticks(1, 1)) is LOST


def test_only_changes_are_verdicts_and_each_says_why():
    quiet = Watched(NodeName("quiet"), READY, 90)
    heard = Watched(NodeName("heard"), READY, 100)
    back = Watched(NodeName("back"), UNREACHABLE, 100)
    verdicts = judge((quiet, heard, back), ticks(85, 100), unreachable_after=3, lost_after=9)
    assert verdicts == (
        Verdict(NodeName("quiet"), READY, LOST, 10),
        Verdict(NodeName("back"), UNREACHABLE, READY, 0),
    )
    assert [verdict.why for verdict in verdicts] == ["has missed 10 ticks in a row", "answers ticks again"]


NODES = st.builds(
    a_node,
    st.sampled_from(NodeState),
    st.none() | st.integers(0, 60),
    st.none() | st.floats(0, 100).map(Seconds),
)
SENT = st.integers(0, 40).flatmap(lambda first: st.integers(first - 1, first + 20).map(lambda last: ticks(first, last)))


@given(NODES, SENT)
def test_judging_twice_changes_nothing_more(node, sent):
    once = after(node, sent)
    again = after(replace(node, state=once), sent)
    # Given up and heard in one breath cannot be: what is lost has missed nine, what returns fewer than three.
    assert again is once


@given(NODES, SENT)
def test_nobody_is_given_up_for_fewer_ticks_than_that(node, sent):
    if node.state is not LOST and after(node, sent) is LOST:
        assert missed(node, sent) >= 9
        assert len(sent) >= 9


@given(NODES, SENT)
def test_a_node_that_answered_the_last_tick_is_never_worse_off(node, sent):
    if sent:
        heard = replace(node, answered=sent[-1].number)
        assert after(heard, sent) in {READY, JOINING}


@given(NODES, SENT)
def test_the_order_of_the_ticks_does_not_matter(node, sent):
    assert after(node, sent) is after(node, sent[::-1])
