"""A start as bars: pure geometry of what the timeline of a replica says."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from apps.console import look
from apps.replicas.queries import Attempt, Launch, TimelineStep
from llmgw.core.lifecycle import AT_REST
from llmgw.core.world import State

# What serves or has ended would make all that came before too narrow to see.
_UNDRAWN: Final = AT_REST | {State.READY}
LEAST_PERCENT: Final = 2.0


@dataclass(frozen=True, slots=True)
class Bar:
    """One state that a launch was in."""

    word: str
    tone: str
    percent: float
    """Of the whole width; at least so much that it can be seen."""
    seconds: float | None
    why: str


@dataclass(frozen=True, slots=True)
class Line:
    """One launch: a bar a state, and every step in words."""

    launch_id: str
    node: str
    word: str
    bars: tuple[Bar, ...]
    steps: tuple[TimelineStep, ...]
    failure: Mapping[str, Any] | None
    tail: tuple[str, ...]

    @property
    def took(self) -> float | None:
        """Return how long it took until it served or ended; None while it is not known."""
        known = [bar.seconds for bar in self.bars if bar.seconds is not None]
        return sum(known) if known else None


@dataclass(frozen=True, slots=True)
class Drawn:
    """One start of a replica."""

    number: int
    lines: tuple[Line, ...]


def draw(attempt: Attempt) -> Drawn:
    """Lay out one start; all its launches are drawn to one scale."""
    spans = [_way_up(launch.steps) for launch in attempt.launches]
    longest = max((_total(steps) for steps in spans), default=0.0)
    lines = (_line(launch, steps, longest) for launch, steps in zip(attempt.launches, spans, strict=True))
    return Drawn(attempt.number, tuple(lines))


def _way_up(steps: Sequence[TimelineStep]) -> list[TimelineStep]:
    return [step for step in steps if step.state not in _UNDRAWN]


def _total(steps: Sequence[TimelineStep]) -> float:
    return sum(max(step.seconds or 0.0, 0.0) for step in steps)


def _line(launch: Launch, drawn: Sequence[TimelineStep], longest: float) -> Line:
    return Line(
        launch.launch_id,
        launch.node,
        launch.state.value,
        tuple(_bar(step, longest) for step in drawn),
        launch.steps,
        launch.failure,
        launch.tail,
    )


def _bar(step: TimelineStep, longest: float) -> Bar:
    seconds = max(step.seconds, 0.0) if step.seconds is not None else None
    share = 100.0 * (seconds or 0.0) / longest if longest else 0.0
    word = step.state.value
    return Bar(word, look.tone(word), round(max(share, LEAST_PERCENT), 1), seconds, step.why)
