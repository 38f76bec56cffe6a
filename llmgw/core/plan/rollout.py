"""One model in one pass: which of its slots stay, which go, and which are to start."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count, islice

from llmgw.core.lifecycle import AT_REST, GOING, HOLDING, LIVE
from llmgw.core.placement import Fleet, Placement, Refused, fitting, refusals
from llmgw.core.plan.actions import Action, Archive, Drain, Queue, RefusedReplica, Start, Stop
from llmgw.core.plan.exchange import Exchange
from llmgw.core.plan.preemption import Preemption
from llmgw.core.refusals import Refusal, WaitingForRetry, WaitingForRollout, WaitingForRoom
from llmgw.core.units import ReplicaId, Seconds, in_a_row, replica_id
from llmgw.core.wanted import Demand, Model
from llmgw.core.world import Replica, State


@dataclass(slots=True)
class Worked:
    """What was found for one model."""

    actions: list[Action] = field(default_factory=list)
    refusals: list[RefusedReplica] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Slot:
    """A slot that could be started now, and why it should be."""

    id: ReplicaId
    ordinal: int
    attempt: int
    why: str
    failures: int = 0
    new: bool = False


class Rollout:
    """The slots of one model, sorted by what is to be done with them.

    What drains or stops counts for nothing, but keeps its devices and its ordinal. Once it has stopped it starts again
    in its own slot if it is still wanted, and is archived if it is not.
    """

    def __init__(
        self, model: Model, replicas: Sequence[Replica], fleet: Fleet, room: tuple[Exchange, Preemption], now: Seconds
    ) -> None:
        self.model = model
        self.replicas = replicas
        self.fleet = fleet
        self.exchange, self.preemption = room
        self.now = now
        self.done = Worked()
        self.current = model.fingerprints()
        self.going = [one for one in replicas if one.state in GOING]
        counted = [one for one in replicas if one.state not in GOING]
        self.outdated = [one for one in counted if self._is_outdated(one)]
        up_to_date = [one for one in counted if not self._is_outdated(one)] if self.outdated else counted
        surplus = max(len(up_to_date) - model.replicas, 0)
        first_to_go = sorted(up_to_date, key=lambda one: _missed(one, fleet)) if surplus else up_to_date
        self.surplus = first_to_go[:surplus]
        self.stay = sorted(first_to_go[surplus:], key=lambda one: one.ordinal)

    def _is_outdated(self, one: Replica) -> bool:
        """Tell whether another replica is to take its place: it is of an old version, or serves on a sick device.

        One that is still starting on a sick device is left to show whether it can.
        """
        is_old = one.fingerprint not in self.current
        return one.state in LIVE and (is_old or (one.state is State.READY and self.fleet.sick(one) is not None))

    def _why_outdated(self, old: Sequence[Replica]) -> str:
        sick = next((why for one in old if one.fingerprint in self.current and (why := self.fleet.sick(one))), None)
        return sick or "the model was edited"

    def work(self) -> Worked:
        """Decide for the whole model."""
        self._put_away()
        leaving = self._leaving()
        for one in leaving:
            self._remove([one], self._why_outdated([one]))
        old = [one for one in self.outdated if one not in leaving]
        slots = self._startable(old, [*self.going, *leaving])
        waiting = self._start(slots)
        if slots and len(waiting) == len(slots) and not leaving:
            self._make_room(old)
        return self.done

    def _put_away(self) -> None:
        stopped = [one for one in self.surplus if one.state is State.STOPPED]
        others = [one for one in self.surplus if one not in stopped]
        self.done.actions += [Archive(one.id, "it has stopped") for one in stopped]
        self._remove(others, f"{self.model.replicas} wanted, {len(self.stay) + len(others)} there")

    def _leaving(self) -> list[Replica]:
        """Choose the outdated replicas to go now: those that serve nobody, and as many as are more than enough."""
        reachable = [one for one in self.outdated if not is_unreachable(one, self.fleet)]
        serving = sorted((one for one in reachable if one.state is State.READY), key=lambda one: -one.ordinal)
        fresh = sum(one.state is State.READY and not is_unreachable(one, self.fleet) for one in self.stay)
        spare = max(fresh + len(serving) - self.model.replicas, 0)
        return [*(one for one in reachable if one.state is not State.READY), *serving[:spare]]

    def _startable(self, old: Sequence[Replica], leaving: Sequence[Replica]) -> list[_Slot]:
        """List the slots to start now; while `old` ones still serve, at most one more than wanted is up at a time.

        A slot that is just leaving is waited for rather than replaced by a new one, as long as its node is heard.
        """
        stopped = [one for one in self.stay if one.state is State.STOPPED]
        there = len(self.stay) - len(stopped)
        missing = max(min(self.model.replicas, self.model.replicas + 1 - len(old)) - there, 0)
        again = [one for one in self.stay if one.state in AT_REST and one not in stopped[missing:]]
        due = [one for one in again if self._is_due(one)]
        up = len(old) + sum(one.state in LIVE for one in self.stay)
        room = max(self.model.replicas + 1 - up, 0) if old else len(due)
        self._hold_back([*due[room:], *stopped[missing:]], len(old))
        coming = [one for one in leaving if not is_unreachable(one, self.fleet)]
        new = max(missing - len(stopped) - len(coming), 0)
        why = self._why_outdated(old) if old else f"{self.model.replicas} wanted, {there} there"
        slots = [_Slot(one.id, one.ordinal, one.attempt, _why_again(one), one.failures) for one in due[:room]]
        return [*slots, *self._new_slots(new, why)]

    def _new_slots(self, many: int, why: str) -> Iterator[_Slot]:
        taken = {one.ordinal for one in self.replicas}
        free = (ordinal for ordinal in count(1) if ordinal not in taken)
        return (_Slot(replica_id(self.model.name, n), n, 0, why, new=True) for n in islice(free, many))

    def _is_due(self, one: Replica) -> bool:
        wait = (one.next_try_at or 0.0) - self.now
        if one.state is State.FAILED and wait > 0 and one.fingerprint in self.current:
            self._refuse(one, WaitingForRetry(one.failures, wait))
            return False
        return True

    def _hold_back(self, waiting: Sequence[Replica], old: int) -> None:
        for one in waiting:
            self._refuse(one, WaitingForRollout(old))

    def _refuse(self, one: Replica, no: Refusal) -> None:
        self.done.refusals.append(RefusedReplica(one.id, (Refused(None, None, no),)))

    def _start(self, slots: Sequence[_Slot]) -> list[_Slot]:
        """Start what fits, and return what does not; once one is refused, the others have the same reasons.

        One that waits for others to go has a place of its own to come, and says nothing of the next.
        """
        refused: tuple[Refused, ...] = ()
        waiting: list[_Slot] = []
        for slot in slots:
            has_a_place = len(refused) == 1 and isinstance(refused[0].refusal, WaitingForRoom)
            refused = self._start_one(slot) if has_a_place or not refused else refused
            if refused:
                waiting.append(slot)
                self.done.refusals.append(RefusedReplica(slot.id, refused))
                self.done.actions += [Queue(self.model.name, slot.ordinal)] if slot.new else []
        return waiting

    def _start_one(self, slot: _Slot) -> tuple[Refused, ...]:
        """Start a slot by the first profile that fits; otherwise return the reasons against all of them."""
        demands = self._demands()
        for demand in demands:
            if found := fitting(self.fleet, demand):
                self._place(slot, demand, found)
                return ()
        if room := self.exchange.make_room(self.model, demands):
            self._place(slot, *room)
            return ()
        if waits_for := self._preempt(slot, demands):
            return (Refused(None, None, WaitingForRoom(waits_for)),)
        return tuple(no for demand in demands for no in refusals(self.fleet, demand))

    def _preempt(self, slot: _Slot, demands: Sequence[Demand]) -> tuple[ReplicaId, ...]:
        """Ask what is less wanted to go, and return whom the slot waits for; nobody where that is no way."""
        if slot.failures or self.outdated:
            return ()  # what fails would take the place for nothing, and an edit has places of its own
        found = self.preemption.room(slot.id, self.model, demands)
        for victim in found.victims if found else ():
            why = f"preempted by {slot.id}, whose priority is {self.model.priority}"
            end = Drain if victim.state is State.READY else Stop
            self.done.actions.append(end(victim.id, why))
        return found.waits_for if found else ()

    def _place(self, slot: _Slot, demand: Demand, found: Placement) -> None:
        self.exchange.begin(self.model, self.done.actions, self._placed(slot, demand, found))

    def _placed(self, slot: _Slot, demand: Demand, found: Placement) -> Start:
        for part in found.parts:
            self.fleet.claim(part.node, part.devices, slot.id, self.model.name)
        return Start(
            model=self.model.name,
            ordinal=slot.ordinal,
            replica=slot.id,
            attempt_before=slot.attempt,
            profile=demand.profile.name,
            fingerprint=self.model.fingerprint(demand.profile),
            shards=found.parts,
            why=slot.why,
            fabric=found.fabric,
        )

    def _demands(self) -> list[Demand]:
        # Where there is no node, that is said once and not for each profile.
        return [Demand(self.model, profile) for profile in self.model.profiles[: None if self.fleet.nodes else 1]]

    def _make_room(self, old: Sequence[Replica]) -> None:
        """Drain one outdated replica for the new version, if that helps and nothing speaks against the new version."""
        serving = sorted((one for one in old if not is_unreachable(one, self.fleet)), key=lambda one: -one.ordinal)
        if self.going or not serving or any(self._unproven(one) for one in self.stay):
            return
        chosen = next((one for one in serving if self._fits_without([one])), None)
        if chosen is None and self._fits_without(serving):
            chosen = serving[0]
        if chosen:
            why = f"{self._why_outdated([chosen])}, and what follows needs its place"
            self.done.actions.append(Drain(chosen.id, why))

    def _unproven(self, one: Replica) -> bool:
        """Tell whether the new version is still starting here, or has failed: then the old one is not to be risked."""
        starting = one.state in LIVE and one.state is not State.READY
        return starting or (one.state is State.FAILED and one.fingerprint in self.current)

    def _fits_without(self, leaving: Sequence[Replica]) -> bool:
        held = [(s.node, s.devices, one.id) for one in leaving for s in one.shards if s.state in HOLDING]
        for node, devices, holder in held:
            self.fleet.release(node, devices, holder, self.model.name)
        fits = any(fitting(self.fleet, demand) for demand in self._demands())
        for node, devices, holder in held:
            self.fleet.claim(node, devices, holder, self.model.name)
        return fits

    def _remove(self, leaving: Sequence[Replica], why: str) -> None:
        asked = self.preemption.asked
        self.done.actions += removal([one for one in leaving if one.id not in asked], self.fleet, why)


def removal(leaving: Sequence[Replica], fleet: Fleet, why: str) -> Iterator[Action]:
    """Take replicas away, each as its state allows; what cannot be reached waits until it can be, or is lost."""
    for one in leaving:
        if one.state in AT_REST:
            yield Archive(one.id, why)
        elif one.state in GOING or is_unreachable(one, fleet):
            continue
        elif one.state is State.READY:
            yield Drain(one.id, why)
        else:
            yield Stop(one.id, why)


def is_unreachable(one: Replica, fleet: Fleet) -> bool:
    """Tell whether a replica runs on a node that is not heard at present."""
    return bool(fleet.unheard) and one.state in LIVE and any(shard.node in fleet.unheard for shard in one.shards)


def _missed(one: Replica, fleet: Fleet) -> tuple[int, int]:
    """Tell how much a replica would be missed, least first.

    Never started, stopped, failed or lost, out of reach, starting, serving. What is out of reach counts as running:
    were it the first to go, it could not, and another would be started in its place.
    """
    order = {State.QUEUED: 0, State.STOPPED: 1, State.FAILED: 2, State.LOST: 2, State.READY: 5}
    return (3 if is_unreachable(one, fleet) else order.get(one.state, 4), -one.ordinal)


def _why_again(one: Replica) -> str:
    if one.state is State.FAILED:
        return f"failed {in_a_row(one.failures)}, and the wait is over"
    if one.state is State.LOST:
        return "its node is lost"
    if one.state is State.STOPPED:
        return "it has stopped, and is still wanted"
    return "there is room for it now"
