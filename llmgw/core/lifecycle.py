"""The table of moves that a shard and its replica may make, and how long a failed one waits."""

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import ClassVar, Final

from llmgw.core.units import Seconds
from llmgw.core.world import State


class Happened(StrEnum):
    """What can befall a shard; the node reports these, or the control plane decides them."""

    PLACED = "placed"
    FETCH_BEGUN = "fetch-begun"
    LAUNCH_BEGUN = "launch-begun"
    PROCESS_STARTED = "process-started"
    PROBE_PASSED = "probe-passed"
    PROBE_FAILED = "probe-failed"
    DRAIN_ASKED = "drain-asked"
    STOP_ASKED = "stop-asked"
    EXITED = "exited"
    FAILED = "failed"
    NODE_LOST = "node-lost"
    FOUND_SERVING = "found-serving"
    FOUND_LOADING = "found-loading"


# Alive: there may be a process, a fetch, or an order on its way.
LIVE: Final = frozenset(
    {State.PLACED, State.FETCHING, State.LAUNCHING, State.LOADING, State.READY, State.DRAINING, State.STOPPING}
)
# At rest: nothing runs and nothing is on its way.
AT_REST: Final = frozenset({State.QUEUED, State.STOPPED, State.FAILED, State.LOST})
# Asked to end: counts for nothing any more, and holds its devices until it has.
GOING: Final = frozenset({State.DRAINING, State.STOPPING})
# Holds its devices, so that nobody else is placed there. A lost shard holds none: its node is out of placement anyway.
HOLDING: Final = LIVE

_S, _H = State, Happened

_TABLE: Final = {
    (_S.QUEUED, _H.PLACED): _S.PLACED,
    (_S.FAILED, _H.PLACED): _S.PLACED,
    (_S.LOST, _H.PLACED): _S.PLACED,
    (_S.STOPPED, _H.PLACED): _S.PLACED,
    (_S.PLACED, _H.FETCH_BEGUN): _S.FETCHING,
    (_S.PLACED, _H.LAUNCH_BEGUN): _S.LAUNCHING,
    (_S.FETCHING, _H.LAUNCH_BEGUN): _S.LAUNCHING,
    (_S.LAUNCHING, _H.PROCESS_STARTED): _S.LOADING,
    (_S.LOADING, _H.PROBE_PASSED): _S.READY,
    (_S.READY, _H.PROBE_FAILED): _S.LOADING,
    (_S.READY, _H.DRAIN_ASKED): _S.DRAINING,
    # What is asked to drain before it serves has nobody to wait for.
    **{(s, _H.DRAIN_ASKED): _S.STOPPING for s in (_S.PLACED, _S.FETCHING, _S.LAUNCHING, _S.LOADING)},
    **{(s, _H.STOP_ASKED): _S.STOPPING for s in LIVE - {_S.STOPPING}},
    **{(s, _H.STOP_ASKED): _S.STOPPED for s in (_S.QUEUED, _S.FAILED, _S.LOST)},
    (_S.DRAINING, _H.EXITED): _S.STOPPED,
    (_S.STOPPING, _H.EXITED): _S.STOPPED,
    # Nobody asked for these ends.
    **{(s, _H.EXITED): _S.FAILED for s in LIVE - GOING},
    **{(s, _H.FAILED): _S.FAILED for s in LIVE - GOING},
    (_S.DRAINING, _H.FAILED): _S.STOPPED,
    (_S.STOPPING, _H.FAILED): _S.STOPPED,
    **{(s, _H.NODE_LOST): _S.LOST for s in LIVE - GOING},
    # What was to go away anyway is as good as gone; its launch is a stray if the node returns.
    (_S.DRAINING, _H.NODE_LOST): _S.STOPPED,
    (_S.STOPPING, _H.NODE_LOST): _S.STOPPED,
    # The node came back and the engine had never stopped.
    (_S.LOST, _H.FOUND_SERVING): _S.READY,
    (_S.LOST, _H.FOUND_LOADING): _S.LOADING,
    # It was closed here and runs there all the same: it is to end.
    **{(s, found): _S.STOPPING for s in (_S.STOPPED, _S.FAILED) for found in (_H.FOUND_SERVING, _H.FOUND_LOADING)},
}

TRANSITIONS: Final = MappingProxyType(_TABLE)


@dataclass(frozen=True, slots=True)
class NotAllowed:
    """This cannot happen to a shard in that state."""

    code: ClassVar[str] = "lifecycle.not-allowed"
    state: State
    happened: Happened

    def text(self) -> str:
        """Say it in one line."""
        return f"{self.happened.value} cannot happen to what is {self.state.value}"


def after(state: State, happened: Happened) -> State | NotAllowed:
    """Look the move up; missing means forbidden."""
    return TRANSITIONS.get((state, happened)) or NotAllowed(state, happened)


# How far each is on its way up; a replica is where its slowest shard is.
_UPWARD: Final = (State.PLACED, State.FETCHING, State.LAUNCHING, State.LOADING, State.READY)


def of_replica(shards: Collection[State]) -> State:
    """Tell a replica's state from those of its present attempt's shards: one failed or lost shard fails the whole."""
    states = set(shards)
    for decides in (State.FAILED, State.LOST, State.STOPPING):
        if decides in states:
            return decides
    if State.STOPPED in states:
        return State.STOPPED if states == {State.STOPPED} else State.STOPPING
    if State.DRAINING in states:
        return State.DRAINING
    return next((state for state in _UPWARD if state in states), State.QUEUED)


FIRST_WAIT: Final = Seconds(1.0)
LONGEST_WAIT: Final = Seconds(300.0)
SERVED_LONG_ENOUGH: Final = Seconds(600.0)
CRASH_LOOPING_FROM: Final = 3


def backoff(failures: int) -> Seconds:
    """Return how long to wait before the next start after `failures` failures in a row: 1 s, 2 s, 4 s … 300 s."""
    if failures < 1:
        return Seconds(0.0)
    doublings = min(failures - 1, 20)  # 2**20 s is far beyond the cap; keeps the power small
    return Seconds(min(FIRST_WAIT * 2**doublings, LONGEST_WAIT))


def state_word(state: State, failures: int) -> str:
    """Return the word operators read: a failed slot that keeps failing is `crash-looping`."""
    if state is State.FAILED and failures >= CRASH_LOOPING_FROM:
        return "crash-looping"
    return state.value
