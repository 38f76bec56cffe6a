"""The control plane of the twin: its tables in memory, and the verbs of `apps/replicas` on them, with their races."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from llmgw.core import plan as planned
from llmgw.core.lifecycle import (
    AT_REST,
    GOING,
    LIVE,
    SERVED_LONG_ENOUGH,
    Happened,
    NotAllowed,
    after,
    backoff,
    of_replica,
)
from llmgw.core.plan import Action, Archive, Drain, Lose, Plan, Queue, Reap, Start, Stop
from llmgw.core.units import LaunchId, ModelName, NodeName, ReplicaId, Seconds, replica_id
from llmgw.core.wanted import Model
from llmgw.core.world import ClusterSnapshot, Node, NodeState, Replica, Shard, State, Stray
from tests.twin.machines import Message

_FORWARD = (
    Happened.FETCH_BEGUN,
    Happened.LAUNCH_BEGUN,
    Happened.PROCESS_STARTED,
    Happened.PROBE_PASSED,
    Happened.PROBE_FAILED,
)


class Raced(Exception):
    """The row is not any more what the decision was made on."""


@dataclass
class ShardRow:
    """One launch; one that nobody ordered has no slot."""

    launch_id: str
    node: str
    devices: tuple[str, ...]
    state: State
    slot: str | None = None
    attempt: int = 0
    rank: int = 0
    seq: int = 0
    steps_seen: int = 0


@dataclass
class Slot:
    """One replica that is not archived."""

    id: ReplicaId
    model: ModelName
    ordinal: int
    state: State = State.QUEUED
    generation: int = 0
    profile: str | None = None
    fingerprint: str | None = None
    attempt: int = 0
    failures: int = 0
    next_try_at: Seconds | None = None
    ready_at: Seconds | None = None
    life: int = 0
    """Tells a slot from an archived one of the same name."""


@dataclass
class Order:
    """One row of the outbox, open until it is answered or taken back."""

    number: int
    kind: str
    node: str
    launch_id: str
    devices: tuple[str, ...] = ()


@dataclass
class Look:
    """A snapshot with the plan made on it, and what is needed to see that rows have moved since."""

    snapshot: ClusterSnapshot
    plan: Plan
    generations: dict[str, tuple[int, int]]
    wrote: dict[str, tuple[int, int]] = field(default_factory=dict)


class Control:
    """All tables. Whoever changes one comes through a verb."""

    def __init__(self) -> None:
        self.now = Seconds(1_800_000_000.0)
        self.nodes: dict[str, Node] = {}
        self.models: dict[str, Model] = {}
        self.slots: dict[str, Slot] = {}
        self.shards: dict[str, ShardRow] = {}
        self.orders: dict[int, Order] = {}
        self._numbers = 0
        self._lives = 0

    # --- looking

    def snapshot(self) -> ClusterSnapshot:
        present = {slot.id: self.present(slot) for slot in self.slots.values()}
        owned = {shard.launch_id for shards in present.values() for shard in shards}
        alive = [one for one in self.shards.values() if one.state in LIVE and one.launch_id not in owned]
        return ClusterSnapshot(
            tuple(self.nodes.values()),
            tuple(self.models.values()),
            tuple(_replica(slot, present[slot.id]) for slot in self.slots.values()),
            tuple(
                Stray(NodeName(one.node), LaunchId(one.launch_id), one.devices, stopping=one.state in GOING)
                for one in alive
            ),
        )

    def look(self) -> Look:
        snapshot = self.snapshot()
        seen = {name: (slot.life, slot.generation) for name, slot in self.slots.items()}
        return Look(snapshot, planned.plan(snapshot, self.now), seen)

    def present(self, slot: Slot) -> list[ShardRow]:
        return [one for one in self.shards.values() if one.slot == _key(slot) and one.attempt == slot.attempt]

    # --- carrying out

    def apply(self, action: Action, under: Look) -> bool:
        """Carry one action out; False when its rows have moved since."""
        try:
            slot = self._apply(action, under)
        except Raced:
            return False
        if slot is not None:
            slot.generation += 1
            under.wrote[slot.id] = (slot.life, slot.generation)
        return True

    def _apply(self, action: Action, under: Look) -> Slot | None:
        if isinstance(action, Reap):
            self._reap(action)
            return None
        if isinstance(action, Queue):
            return self._new_slot(action.model, action.ordinal)
        if isinstance(action, Start):
            return self._start(action, under)
        slot = self._seen(action.replica, under)
        if isinstance(action, Archive):
            if slot.state not in AT_REST:
                raise Raced
            del self.slots[slot.id]
        elif isinstance(action, Lose):
            self._lose(slot)
        elif self.end(slot, Happened.DRAIN_ASKED if isinstance(action, Drain) else Happened.STOP_ASKED):
            raise Raced
        assert isinstance(action, Archive | Lose | Drain | Stop)
        return slot

    def _seen(self, name: str, under: Look) -> Slot:
        slot = self.slots.get(name)
        if slot is None or (slot.life, slot.generation) != under.wrote.get(name, under.generations[name]):
            raise Raced
        return slot

    def _new_slot(self, model: ModelName, ordinal: int) -> Slot:
        name = replica_id(model, ordinal)
        if name in self.slots:
            raise Raced
        self._lives += 1
        self.slots[name] = Slot(name, model, ordinal, life=self._lives)
        return self.slots[name]

    def _start(self, action: Start, under: Look) -> Slot:
        known = action.replica in under.generations
        if any(self.nodes.get(part.node, _NOWHERE).state is not NodeState.READY for part in action.shards):
            raise Raced
        slot = self._seen(action.replica, under) if known else self._new_slot(action.model, action.ordinal)
        if slot.attempt != action.attempt_before:
            raise Raced
        if slot.fingerprint != action.fingerprint or slot.state is State.STOPPED:
            slot.failures = 0
        slot.state, slot.attempt = _moved(slot.state, Happened.PLACED), slot.attempt + 1
        slot.profile, slot.fingerprint = action.profile, action.fingerprint
        slot.next_try_at = slot.ready_at = None
        for node, devices, rank in action.shards:
            launch_id = f"{_key(slot)}#{slot.attempt}.{rank}"
            row = ShardRow(launch_id, node, devices, State.PLACED, _key(slot), slot.attempt, rank)
            self.shards[launch_id] = row
            self._order("launch", row)
        return slot

    def end(self, slot: Slot, happened: Happened) -> NotAllowed | None:
        """Ask a replica's engines to end, or let a slot without any rest."""
        to = after(slot.state, happened)
        if isinstance(to, NotAllowed):
            return to
        shards = self.present(slot)
        ending = [one for one in shards if one.state in LIVE | {State.LOST} and self._move(one, happened)]
        self._become(slot, of_replica([one.state for one in shards]) if ending else to)
        for one in ending:
            if one.state in LIVE:
                self._end_order(one, "drain" if one.state is State.DRAINING else "stop")
        return None

    def _lose(self, slot: Slot) -> None:
        shards = self.present(slot)
        lost = [one for one in shards if self.nodes[one.node].state is NodeState.LOST]
        gone = [one for one in lost if self._move(one, Happened.NODE_LOST)]
        rest = [one for one in shards if one not in lost and self._move(one, Happened.STOP_ASKED)]
        if shards and not gone:
            raise Raced
        self._become(
            slot, of_replica([one.state for one in shards]) if shards else _moved(slot.state, Happened.NODE_LOST)
        )
        for one in gone:
            self._take_back(one.launch_id)
        for one in rest:
            self._end_order(one, "stop")

    def _reap(self, action: Reap) -> None:
        row = self.shards.get(action.launch_id)
        if row is None or not self._move(row, Happened.STOP_ASKED):
            raise Raced
        self._end_order(row, "stop")

    # --- reports

    def record(self, report: Message) -> None:
        """Take a report in; one of another epoch, or older than what is known, tells nothing."""
        node = self.nodes.get(report.node)
        if node is None or node.epoch != report.epoch or node.state is NodeState.LOST:
            return
        if node.state is NodeState.JOINING and report.kind != "registration":
            return
        for number in report.answers:
            self.orders.pop(number, None)
        moved: set[str] = set()
        for launch_id, told in report.shards.items():
            self._record_status(report, launch_id, told, moved)
        for row in [self.shards[launch_id] for launch_id in report.refused if launch_id in self.shards]:
            moved |= {row.slot} if self._move(row, Happened.FAILED) and row.slot else set()
        if report.kind == "registration":
            self._fail_untraced(report, moved)
            self.nodes[node.name] = replace(node, state=NodeState.READY)
        for slot in [slot for slot in self.slots.values() if _key(slot) in moved]:
            self._become(slot, of_replica([one.state for one in self.present(slot)]))
            slot.generation += 1

    def _record_status(
        self,
        report: Message,
        launch_id: str,
        told: tuple[State, tuple[Happened, ...], tuple[str, ...]],
        moved: set[str],
    ) -> None:
        there, steps, devices = told
        row = self.shards.get(launch_id)
        if row is None:
            if there in LIVE:
                self.shards[launch_id] = ShardRow(
                    launch_id, report.node, devices, there, seq=report.seq, steps_seen=len(steps)
                )
            else:
                self._let_forget(report.node, launch_id)
        elif report.seq > row.seq:
            row.seq, before = report.seq, row.state
            for happened in steps[row.steps_seen :]:
                self._move(row, happened)
            row.steps_seen = max(len(steps), row.steps_seen)
            self._settle(row, there)
            if row.state is not before and row.slot:
                moved.add(row.slot)
            if there in AT_REST:
                self._let_forget(report.node, launch_id)

    def _settle(self, row: ShardRow, there: State) -> None:
        if row.state in AT_REST:
            if there in LIVE - GOING and not (row.state is State.LOST and there in AT_REST):
                found = Happened.FOUND_SERVING if there is State.READY else Happened.FOUND_LOADING
                if self._move(row, found) and row.state is State.STOPPING:
                    self._end_order(row, "stop")
        elif there in AT_REST:
            self._move(row, Happened.FAILED if there is State.FAILED else Happened.EXITED)
        elif row.state not in GOING and there not in GOING:
            for happened in _FORWARD:
                if row.state is not there:
                    self._move(row, happened)
        if row.state in AT_REST:
            self._take_back(row.launch_id)

    def _fail_untraced(self, report: Message, moved: set[str]) -> None:
        waiting = {one.launch_id for one in self.orders.values()}
        for row in self.shards.values():
            untold = row.node == report.node and row.launch_id not in report.shards and row.seq < report.seq
            if untold and row.state in LIVE and row.launch_id not in waiting and self._move(row, Happened.FAILED):
                moved |= {row.slot} if row.slot else set()

    def _let_forget(self, node: str, launch_id: str) -> None:
        if not any(one.launch_id == launch_id and one.kind == "forget" for one in self.orders.values()):
            self._numbers += 1
            self.orders[self._numbers] = Order(self._numbers, "forget", node, launch_id)

    # --- rows

    def forget(self, node: str) -> None:
        """Take a lost node off the books, and its launches with it."""
        del self.nodes[node]
        self.shards = {name: row for name, row in self.shards.items() if row.node != node}
        self.orders = {number: one for number, one in self.orders.items() if one.node != node}

    def outbox(self, node: str) -> Iterator[Message]:
        """Send what is open, under the node's present epoch."""
        for one in [one for one in self.orders.values() if one.node == node]:
            epoch = self.nodes[node].epoch
            yield Message(node, epoch, one.kind, one.launch_id, one.devices, one.number)

    def _move(self, row: ShardRow, happened: Happened) -> bool:
        to = after(row.state, happened)
        if isinstance(to, NotAllowed):
            return False
        row.state = to
        return True

    def _become(self, slot: Slot, state: State) -> None:
        if state is slot.state:
            return
        slot.state = state
        if state is State.READY and slot.ready_at is None:
            slot.ready_at = self.now
        if state is State.FAILED:
            served = slot.ready_at is not None and self.now - slot.ready_at >= SERVED_LONG_ENOUGH
            slot.failures = 1 if served else slot.failures + 1
            slot.next_try_at = Seconds(self.now + backoff(slot.failures))

    def _order(self, kind: str, row: ShardRow) -> None:
        self._numbers += 1
        self.orders[self._numbers] = Order(self._numbers, kind, row.node, row.launch_id, row.devices)

    def _end_order(self, row: ShardRow, kind: str) -> None:
        self._take_back(row.launch_id)
        self._order(kind, row)

    def _take_back(self, launch_id: str) -> None:
        about = [n for n, one in self.orders.items() if one.launch_id == launch_id and one.kind != "forget"]
        for number in about:
            del self.orders[number]


_NOWHERE = Node(NodeName(""), NodeState.LOST, "", 0)


def _key(slot: Slot) -> str:
    return f"{slot.id}@{slot.life}"


def _moved(state: State, happened: Happened) -> State:
    to = after(state, happened)
    if isinstance(to, NotAllowed):
        raise Raced
    return to


def _replica(slot: Slot, shards: list[ShardRow]) -> Replica:
    return Replica(
        slot.id,
        slot.model,
        slot.ordinal,
        slot.state,
        slot.profile,
        slot.fingerprint,
        slot.attempt,
        slot.failures,
        slot.next_try_at,
        tuple(Shard(LaunchId(s.launch_id), NodeName(s.node), s.devices, s.state, s.rank) for s in shards),
    )
