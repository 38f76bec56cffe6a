"""The node side of the twin: machines that take orders, run engines, and report, each when it is told to."""

from dataclasses import dataclass, field
from typing import Any

from llmgw.core.lifecycle import AT_REST, GOING, LIVE, Happened, NotAllowed, after
from llmgw.core.world import State

NEXT = {
    State.PLACED: Happened.LAUNCH_BEGUN,
    State.FETCHING: Happened.LAUNCH_BEGUN,
    State.LAUNCHING: Happened.PROCESS_STARTED,
    State.LOADING: Happened.PROBE_PASSED,
    State.DRAINING: Happened.EXITED,
    State.STOPPING: Happened.EXITED,
}
"""What becomes of an engine that nothing goes wrong with."""


@dataclass
class Engine:
    """One launch on a machine; kept after its end until the control plane lets it be forgotten."""

    devices: tuple[str, ...]
    state: State = State.PLACED
    steps: list[Happened] = field(default_factory=list)

    def befall(self, happened: Happened) -> None:
        """Take a step if the table has it."""
        moved = after(self.state, happened)
        if not isinstance(moved, NotAllowed):
            self.state = moved
            self.steps.append(happened)


@dataclass(frozen=True)
class Message:
    """An order on its way, or a report: a copy of what was so when it was sent."""

    node: str
    epoch: int
    kind: str
    launch_id: str = ""
    devices: tuple[str, ...] = ()
    order: int = 0
    seq: int = 0
    shards: dict[str, tuple[State, tuple[Happened, ...], tuple[str, ...]]] = field(default_factory=dict)
    answers: tuple[int, ...] = ()
    refused: tuple[str, ...] = ()
    """Launches that the node would not start."""


@dataclass
class Machine:
    """One node as it really is, whatever the control plane believes."""

    name: str
    epoch: int = 1
    silent: bool = False
    fresh: bool = False
    """True from its start until it has registered."""
    seq: int = 0
    engines: dict[str, Engine] = field(default_factory=dict)
    answers: list[int] = field(default_factory=list)
    """Orders that it has taken; told with the next report."""
    refused: list[str] = field(default_factory=list)
    tombstones: set[str] = field(default_factory=set)
    """Launches that are over here, so that no order that comes late starts them again."""

    def take(self, order: Message) -> None:
        """Carry an order out; one of another epoch or life is let lie, one taken before is only answered again."""
        if order.epoch != self.epoch or self.fresh:
            return
        self.answers.append(order.order)
        engine = self.engines.get(order.launch_id)
        if order.kind == "launch" and engine is None and order.launch_id in self.tombstones:
            self.refused.append(order.launch_id)
        elif order.kind == "launch":
            self.engines.setdefault(order.launch_id, Engine(order.devices))
        elif order.kind == "forget":
            self.tombstones.add(order.launch_id)
            self.engines.pop(order.launch_id, None)
        elif engine is None:
            self.tombstones.add(order.launch_id)
            self.engines[order.launch_id] = Engine((), State.STOPPED, [Happened.STOP_ASKED, Happened.EXITED])
        elif engine.state in LIVE - GOING or (engine.state is State.DRAINING and order.kind == "stop"):
            engine.befall(Happened.DRAIN_ASKED if order.kind == "drain" else Happened.STOP_ASKED)

    def work(self, told: dict[str, Any]) -> None:
        """Let engines take the steps that were drawn for them."""
        for launch_id, happened in told.items():
            if launch_id in self.engines and self.engines[launch_id].state not in AT_REST:
                self.engines[launch_id].befall(Happened(happened))

    def reboot(self) -> None:
        """Lose everything that ran, and all that was known of it."""
        self.fresh = True
        self.engines.clear()
        self.tombstones.clear()
        self.answers, self.refused = [], []

    def report(self, kind: str = "report") -> Message:
        """Tell of all launches, and answer orders."""
        self.seq += 1
        shards = {name: (one.state, tuple(one.steps), one.devices) for name, one in self.engines.items()}
        answers, refused = tuple(self.answers), tuple(self.refused)
        self.answers, self.refused = [], []
        return Message(self.name, self.epoch, kind, seq=self.seq, shards=shards, answers=answers, refused=refused)
