"""Asks one source of facts in a thread of its own, so that one that hangs holds up nothing but itself."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import structlog

from llmgw.core.hardware.findings import Problem, cut
from llmgw.core.units import Seconds, moment
from workers.ports import Machine

log = structlog.get_logger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Source(Generic[T]):
    """One source of facts."""

    name: str
    """`gpus`, `ports`; also the first word of its problems' codes."""
    ask: Callable[[], T]
    """May take long, and may hang."""
    every_s: float = 0.0
    """An answer younger than this is taken for the present state; 0 asks at each look."""


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """What a source has told, now or earlier."""

    value: T | None = None
    """What it told last; None before it has told anything."""
    at: Seconds | None = None
    """When it told that."""
    problem: Problem | None = None
    """Why `value` is not of now."""


class Inquiry(Generic[T]):
    """A source and what it told last. It is never asked a second time before it has answered."""

    def __init__(self, source: Source[T], machine: Machine) -> None:
        self.source = source
        self._machine = machine
        self._lock = threading.Lock()
        self._idle = threading.Event()
        self._idle.set()
        self._last: Answer[T] = Answer()
        self._asked_at = Seconds(0.0)
        self._begun: float | None = None

    def begin(self) -> None:
        """Ask in a new thread, unless an answer is still awaited or the last one is young enough."""
        with self._lock:
            here = self._machine.monotonic()
            is_young = self._begun is not None and here - self._begun < self.source.every_s
            if not self._idle.is_set() or (is_young and self._last.problem is None):
                return
            self._begun, self._asked_at = here, self._machine.now()
            self._idle.clear()
        try:
            threading.Thread(target=self._ask, name=f"ask {self.source.name}", daemon=True).start()
        except RuntimeError as error:  # no thread is to be had now: it is asked again at the next look
            self._take(self._broken(error))

    def wait(self, seconds: float) -> Answer[T]:
        """Return the answer, or the last one with a problem when there is no new one within that time."""
        answered = self._idle.wait(max(0.0, seconds))
        with self._lock:
            return self._last if answered else Answer(self._last.value, self._last.at, self._held_up())

    def _ask(self) -> None:
        try:
            answer = Answer(self.source.ask(), self._machine.now())
        except Exception as error:
            # A tool or file of a kind that nobody has seen must not cost the facts of all other sources.
            log.exception("source failed", source=self.source.name)
            answer = self._broken(error)
        self._take(answer)

    def _take(self, answer: Answer[T]) -> None:
        with self._lock:
            self._last = answer
            self._idle.set()

    def _held_up(self) -> Problem:
        rest = "what is said of it is what it told before" if self._last.at else "nothing is known of it yet"
        text = f"{self.source.name}: still being asked since {moment(self._asked_at)}; {rest}"
        return Problem(code=f"{self.source.name}.held-up", fact=self.source.name, text=text)

    def _broken(self, error: Exception) -> Answer[T]:
        text = f"{self.source.name} could not be read ({type(error).__name__}); please send a recording of this machine"
        code = f"{self.source.name}.garbage"
        problem = Problem(code=code, fact=self.source.name, text=text, literal=cut(str(error)))
        return Answer(self._last.value, self._last.at, problem)
