"""The table of moves, and how long a failed start waits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.core.lifecycle import (
    AT_REST,
    HOLDING,
    LIVE,
    LONGEST_WAIT,
    TRANSITIONS,
    Happened,
    NotAllowed,
    after,
    backoff,
    of_replica,
    state_word,
)
from llmgw.core.world import State

LEAVING = {State.DRAINING, State.STOPPING}


def test_every_state_is_either_live_or_at_rest():
    assert set(State) == LIVE | AT_REST
    assert not LIVE & AT_REST
    assert HOLDING == LIVE


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("happened", Happened)
def test_what_the_table_does_not_hold_is_refused_in_words(state, happened):
    moved = after(state, happened)
    if (state, happened) in TRANSITIONS:
        assert moved is TRANSITIONS[state, happened]
    else:
        assert moved == NotAllowed(state, happened)
        assert moved.text() == f"{happened.value} cannot happen to what is {state.value}"


@given(st.lists(st.sampled_from(Happened)))
def test_whatever_happens_no_move_leaves_the_table(story):
    state = State.QUEUED
    for happened in story:
        moved = after(state, happened)
        if not isinstance(moved, NotAllowed):
            assert TRANSITIONS[state, happened] is moved
            state = moved
    assert state in State


def reachable(start):
    seen, todo = {start}, [start]
    while todo:
        here = todo.pop()
        for (was, _), becomes in TRANSITIONS.items():
            if was is here and becomes not in seen:
                seen.add(becomes)
                todo.append(becomes)
    return seen


def test_every_state_can_be_reached_and_every_one_can_end():
    assert reachable(State.QUEUED) == set(State)
    assert all(State.STOPPED in reachable(state) for state in State)


def test_what_was_closed_and_runs_all_the_same_is_ended():
    leads_on = {becomes for (was, _), becomes in TRANSITIONS.items() if was is State.STOPPED}
    assert leads_on == {State.STOPPING, State.PLACED}
    assert after(State.FAILED, Happened.FOUND_SERVING) is State.STOPPING


@pytest.mark.parametrize("state", sorted(LIVE))
def test_what_lives_can_be_stopped_can_end_and_can_be_lost(state):
    assert state is State.STOPPING or after(state, Happened.STOP_ASKED) is State.STOPPING
    for end in (Happened.EXITED, Happened.FAILED):
        assert after(state, end) is (State.STOPPED if state in LEAVING else State.FAILED)
    assert after(state, Happened.NODE_LOST) is (State.STOPPED if state in LEAVING else State.LOST)


def test_only_what_serves_drains():
    assert after(State.READY, Happened.DRAIN_ASKED) is State.DRAINING
    assert after(State.LOADING, Happened.DRAIN_ASKED) is State.STOPPING


def test_what_was_lost_and_still_serves_is_taken_back():
    assert after(State.LOST, Happened.FOUND_SERVING) is State.READY
    assert after(State.LOST, Happened.FOUND_LOADING) is State.LOADING


@pytest.mark.parametrize(
    ("shards", "replica"),
    [
        ([], State.QUEUED),
        ([State.READY], State.READY),
        ([State.READY, State.LOADING], State.LOADING),
        ([State.FETCHING, State.LAUNCHING, State.PLACED], State.PLACED),
        ([State.READY, State.FAILED], State.FAILED),
        ([State.LOST, State.STOPPING], State.LOST),
        ([State.DRAINING, State.READY], State.DRAINING),
        ([State.STOPPED, State.DRAINING], State.STOPPING),
        ([State.STOPPED, State.STOPPED], State.STOPPED),
    ],
)
def test_a_replica_is_where_its_shards_are(shards, replica):
    assert of_replica(shards) is replica


@pytest.mark.parametrize("state", sorted(set(State) - {State.QUEUED}))
def test_a_replica_of_one_shard_is_in_that_shard_s_state(state):
    assert of_replica([state]) is state


@pytest.mark.parametrize(
    ("failures", "seconds"), [(0, 0), (1, 1), (2, 2), (3, 4), (4, 8), (9, 256), (10, 300), (11, 300), (10**6, 300)]
)
def test_waiting_doubles_up_to_five_minutes(failures, seconds):
    assert backoff(failures) == seconds <= LONGEST_WAIT


def test_what_keeps_failing_is_called_so():
    assert state_word(State.FAILED, 2) == "failed"
    assert state_word(State.FAILED, 3) == "crash-looping"
    assert state_word(State.LOADING, 3) == "loading"
