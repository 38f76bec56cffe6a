"""Which nodes are still heard: counted in ticks that were really sent, never in time that has passed.

If the control side sleeps it sends no ticks, so nobody misses any; if Redis comes back empty there is no tick to have
missed. What counts is only a tick that went out, while the node was known, and that it has not answered since.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from llmgw.core.units import NodeName, Seconds
from llmgw.core.world import NodeState

# One that was given up has had its orders fenced: it must register anew before it is ready.
_HEARD_AGAIN: Final = {NodeState.UNREACHABLE: NodeState.READY, NodeState.LOST: NodeState.JOINING}


@dataclass(frozen=True, slots=True)
class Tick:
    """One tick that was sent, and that there was time to answer."""

    number: int
    sent_at: Seconds


@dataclass(frozen=True, slots=True)
class Watched:
    """What is known of a node's being heard."""

    name: NodeName
    state: NodeState
    answered: int | None = None
    """The last tick that it answered; None when there is no trace of an answer."""
    reported_at: Seconds | None = None
    """When it last registered or reported, by the control plane's clock: it was alive then, whatever it missed."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A node that is to change its state."""

    name: NodeName
    before: NodeState
    after: NodeState
    missed: int
    """Ticks in a row that it has not answered."""

    @property
    def why(self) -> str:
        """Say it in one line."""
        if self.after in (NodeState.READY, NodeState.JOINING):
            return "answers ticks again"
        return f"has missed {self.missed} ticks in a row"


def judge(
    nodes: Iterable[Watched], ticks: Sequence[Tick], *, unreachable_after: int, lost_after: int
) -> tuple[Verdict, ...]:
    """Return the nodes whose state is not what the ticks say; `ticks` are the last ones sent, in any order."""
    verdicts = (_verdict(node, ticks, unreachable_after, lost_after) for node in nodes)
    return tuple(verdict for verdict in verdicts if verdict.after is not verdict.before)


def missed(node: Watched, ticks: Iterable[Tick]) -> int:
    """Count the ticks that went out after the node's last sign of life."""
    # An answer to a tick that was never sent is left over from before Redis lost its counter: it says nothing now.
    ticks = tuple(ticks)
    answered = node.answered if answers(node, ticks) else None
    return sum(
        (answered is None or tick.number > answered) and (node.reported_at is None or tick.sent_at > node.reported_at)
        for tick in ticks
    )


def answers(node: Watched, ticks: Iterable[Tick]) -> bool:
    """Tell whether the node has answered one of these ticks."""
    return any(tick.number == node.answered for tick in ticks)


def _verdict(node: Watched, ticks: Sequence[Tick], unreachable_after: int, lost_after: int) -> Verdict:
    count = missed(node, ticks)
    after = node.state
    if count >= lost_after:
        after = NodeState.LOST
    elif count >= unreachable_after and node.state is NodeState.READY:
        after = NodeState.UNREACHABLE
    elif count < unreachable_after and answers(node, ticks):
        after = _HEARD_AGAIN.get(node.state, node.state)
    return Verdict(node.name, node.state, after, count)
