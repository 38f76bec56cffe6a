"""What may happen in a history, each event a plain list that can be stored and played again, and how it is drawn."""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from llmgw.core.lifecycle import AT_REST, GOING, Happened
from llmgw.core.units import Bytes, Seconds
from llmgw.core.wanted import Model
from llmgw.core.world import Node, NodeState, State
from tests.twin.checks import check_quiet, check_world, checked_pass
from tests.twin.control import Control, Look
from tests.twin.fleets import Scene, with_illness
from tests.twin.machines import NEXT, Machine, Message

Event = list[Any]
"""`[verb, argument, …]`."""

LATE, LOST, TWICE, WELL = "late", "lost", "twice", "well"


class Twin:
    """The control plane, the machines, and what is on its way between them."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.control = Control()
        self.machines: dict[str, Machine] = {node.name: Machine(node.name) for node in scene.nodes}
        self.late: list[Message] = []
        self.pending: tuple[Look, list[Any]] | None = None
        """A pass of another worker that has looked, and has not carried all of it out."""
        self.passes = 0
        for node in scene.nodes:
            if node.name not in scene.absent:
                self.control.nodes[node.name] = node
        for model in scene.models:
            if model.name not in scene.absent:
                self.control.models[model.name] = model

    def happen(self, event: Event) -> None:
        """Let one event happen; one whose object is not there (any more) changes nothing."""
        verb, *arguments = event
        getattr(self, f"on_{verb}")(*arguments)
        check_world(self.control, self.machines)

    # --- passes

    def on_pass(self) -> None:
        self.pending = None
        self.passes += 1
        checked_pass(self.control)

    def on_look(self) -> None:
        look = self.control.look()
        self.pending = (look, list(look.plan.actions))

    def on_carry(self, many: int) -> None:
        if self.pending is None:
            return
        look, actions = self.pending
        for action in actions[:many]:
            self.control.apply(action, look)
        self.pending = (look, actions[many:])

    def on_wait(self, seconds: float) -> None:
        self.control.now = Seconds(self.control.now + seconds)

    # --- machines, orders and reports

    def on_orders(self, name: str, fates: list[str]) -> None:
        """Send what is open to a node that is heard, so far as is known."""
        node = self.control.nodes.get(name)
        if node is None or node.state not in (NodeState.READY, NodeState.JOINING):
            return
        for number, order in enumerate(list(self.control.outbox(name))):
            fate = fates[number % len(fates)]
            if self.machines[name].fresh:
                fate = LATE  # there is no worker yet that could take it
            if fate == LATE or (fate != LOST and self.machines[name].silent):
                self.late.append(order)
            elif fate != LOST:
                for _ in range(2 if fate == TWICE else 1):
                    self.machines[name].take(order)

    def on_round(self, steps: int, faults: dict[str, str]) -> None:
        """Let every node do what it was told, take some steps, and report; but for a few faults all goes well."""
        for name, machine in self.machines.items():
            self.on_orders(name, [WELL])
            for launch_id, engine in machine.engines.items():
                for _ in range(steps):
                    if engine.state not in NEXT:
                        break
                    fault = faults.get(launch_id)
                    engine.befall(Happened(fault) if fault else NEXT[engine.state])
            machine.work({launch_id: happened for launch_id, happened in faults.items() if happened})
            if name in self.control.nodes:
                self.on_report(name, WELL)

    def on_work(self, name: str, steps: dict[str, str]) -> None:
        self.machines[name].work(steps)

    def on_report(self, name: str, fate: str) -> None:
        if self.machines[name].fresh:
            self._register(name)
        report = self.machines[name].report()
        if fate == LATE:
            self.late.append(report)
        elif fate != LOST and not self.machines[name].silent:
            for _ in range(2 if fate == TWICE else 1):
                self.control.record(report)

    def on_mail(self) -> None:
        """What was late arrives, and what was last sent first."""
        mail, self.late = self.late, []
        for message in reversed(mail):
            if message.kind in ("report", "registration"):
                self.control.record(message)
            else:
                self.machines[message.node].take(message)

    # --- nodes

    def on_silent(self, name: str) -> None:
        self.machines[name].silent = True

    def on_heard(self, name: str) -> None:
        self.machines[name].silent = False

    def on_judge(self, name: str) -> None:
        """See whether a node is heard; one that was given up must register anew, under another epoch."""
        node, machine = self.control.nodes.get(name), self.machines[name]
        if node is None:
            return
        if machine.silent:
            lost = node.state is not NodeState.READY
            epoch = node.epoch + (lost and node.state is not NodeState.LOST)
            state = NodeState.LOST if lost else NodeState.UNREACHABLE
            self.control.nodes[name] = replace(node, state=state, epoch=epoch)
        elif machine.fresh:
            self._register(name)
        elif node.state is NodeState.UNREACHABLE:
            self.control.nodes[name] = replace(node, state=NodeState.READY)
        elif node.state in (NodeState.LOST, NodeState.JOINING):
            self._register(name)

    def _register(self, name: str) -> None:
        """A machine takes the epoch that it is told and says all that it has, if it is heard."""
        node, machine = self.control.nodes.get(name), self.machines[name]
        if node is None or machine.silent:
            return
        self.control.nodes[name] = replace(node, state=NodeState.JOINING, epoch=node.epoch + machine.fresh)
        machine.epoch, machine.fresh = node.epoch + machine.fresh, False
        self.control.record(machine.report("registration"))

    def on_reboot(self, name: str) -> None:
        """Everything on a machine ends, and it registers when it is next heard."""
        self.machines[name].reboot()

    def on_join(self, name: str) -> None:
        if name not in self.control.nodes:
            self.machines[name] = Machine(name, epoch=self.machines[name].epoch + 1)
            node = next(node for node in self.scene.nodes if node.name == name)
            self.control.nodes[name] = replace(node, epoch=self.machines[name].epoch, state=NodeState.JOINING)

    def on_forget(self, name: str) -> None:
        node = self.control.nodes.get(name)
        if node is not None and node.state is NodeState.LOST:
            self.machines[name].reboot()
            self.control.forget(name)

    def on_ill(self, name: str, device_id: str, why: str | None) -> None:
        def struck(node: Node) -> Node:
            return replace(
                node,
                devices=tuple(with_illness(one, why) if one.id == device_id else one for one in node.devices),
            )

        self._change_node(name, struck)

    def on_cordon(self, name: str) -> None:
        self._change_node(name, lambda node: replace(node, cordoned=True))

    def on_uncordon(self, name: str) -> None:
        self._change_node(name, lambda node: replace(node, cordoned=False))

    def on_label(self, name: str, zone: str) -> None:
        self._change_node(name, lambda node: replace(node, labels={"zone": zone}))

    def on_disk(self, name: str, free: int) -> None:
        self._change_node(name, lambda node: replace(node, disk_free=Bytes(free)))

    def _change_node(self, name: str, change: Callable[[Node], Node]) -> None:
        if name in self.control.nodes:
            self.control.nodes[name] = change(self.control.nodes[name])

    # --- models

    def on_edit(self, name: str, context_length: int) -> None:
        self._change_model(
            name,
            lambda model: replace(
                model, profiles=tuple(replace(one, context_length=context_length) for one in model.profiles)
            ),
        )

    def on_turn(self, name: str) -> None:
        """Another order of profiles: what runs stays what it was."""
        self._change_model(name, lambda model: replace(model, profiles=model.profiles[::-1]))

    def on_scale(self, name: str, replicas: int) -> None:
        self._change_model(name, lambda model: replace(model, replicas=replicas))

    def on_rank(self, name: str, priority: int) -> None:
        self._change_model(name, lambda model: replace(model, priority=priority))

    def on_delete(self, name: str) -> None:
        self.control.models.pop(name, None)

    def on_declare(self, name: str) -> None:
        model = next(model for model in self.scene.models if model.name == name)
        self.control.models.setdefault(name, model)

    def _change_model(self, name: str, change: Callable[[Model], Model]) -> None:
        if name in self.control.models:
            self.control.models[name] = change(self.control.models[name])

    def on_asked(self, replica: str, verb: str) -> None:
        """An operator drains or stops a replica, or sets the wait of a failed one aside."""
        slot = self.control.slots.get(replica)
        if slot is None:
            return
        if verb == "restart" and slot.state is State.FAILED:
            slot.failures, slot.next_try_at = 0, None
        else:
            self.control.end(slot, Happened.STOP_ASKED if verb == "stop" else Happened.DRAIN_ASKED)
        slot.generation += 1

    # --- the end of all faults

    def settle(self) -> int:
        """Let all go well from now on, and return after how many passes nothing is left to do."""
        self.on_mail()
        for machine in self.machines.values():
            machine.silent = False
        bound = 30 + 8 * sum(model.replicas for model in self.control.models.values()) + 2 * len(self.control.slots)
        for count in range(bound):
            for name in sorted(self.control.nodes):
                self._go_well(name)
            self.on_wait(301.0)
            busy = bool(checked_pass(self.control).actions)
            check_world(self.control, self.machines)
            if not busy and not self.control.orders and not self._on_the_way():
                check_quiet(self.control)
                return count
        raise AssertionError(f"not at rest after {bound} passes without a fault")

    def _go_well(self, name: str) -> None:
        machine = self.machines[name]
        while self.control.nodes[name].state is not NodeState.READY:
            self.on_judge(name)
        self.on_orders(name, [WELL])
        for engine in machine.engines.values():
            while engine.state in NEXT:
                engine.befall(NEXT[engine.state])
        self.on_report(name, WELL)
        self.on_orders(name, [WELL])

    def _on_the_way(self) -> bool:
        return any(slot.state in GOING or slot.state in NEXT for slot in self.control.slots.values())


class Dice:
    """Draws the next event from what there is."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice

    def draw(self, twin: Twin) -> Event:
        """Draw one event; passes and the ordinary working of nodes are the most of them."""
        verb = self.dice.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
        return [verb, *getattr(self, f"_{verb}", lambda twin: [])(twin)]

    def _node(self, twin: Twin) -> str:
        return self.dice.choice(list(twin.machines))

    def _model(self, twin: Twin) -> str:
        return self.dice.choice(twin.scene.models).name

    def _fate(self) -> str:
        return self.dice.choice([WELL] * 8 + [LATE, LOST, TWICE])

    def _carry(self, twin: Twin) -> list[Any]:
        return [self.dice.choice([1, 1, 2, 5, 99])]

    def _wait(self, twin: Twin) -> list[Any]:
        return [self.dice.choice([0.5, 1.0, 3.0, 30.0, 400.0, 700.0])]

    def _orders(self, twin: Twin) -> list[Any]:
        return [self._node(twin), [self._fate() for _ in range(self.dice.randint(1, 4))]]

    def _round(self, twin: Twin) -> list[Any]:
        alive = [
            n for machine in twin.machines.values() for n, one in machine.engines.items() if one.state not in AT_REST
        ]
        struck = self.dice.sample(alive, min(len(alive), self.dice.choice([0, 0, 0, 0, 1, 1, 2])))
        return [
            self.dice.choice([1, 2, 4, 4]),
            {launch_id: self._step(State.READY, faulty=0.8) for launch_id in struck},
        ]

    def _work(self, twin: Twin) -> list[Any]:
        name = self._node(twin)
        alive = {n: one for n, one in twin.machines[name].engines.items() if one.state not in AT_REST}
        return [name, {launch_id: self._step(one.state) for launch_id, one in alive.items()}]

    def _step(self, state: State, faulty: float = 0.15) -> str:
        fault = self.dice.choice([Happened.FAILED, Happened.EXITED, Happened.PROBE_FAILED, Happened.FETCH_BEGUN])
        return (fault if self.dice.random() < faulty else NEXT.get(state, Happened.PROBE_PASSED)).value

    def _report(self, twin: Twin) -> list[Any]:
        return [self._node(twin), self._fate()]

    def _judge(self, twin: Twin) -> list[Any]:
        return [self._node(twin)]

    _silent = _heard = _cordon = _uncordon = _reboot = _join = _forget = _judge

    def _ill(self, twin: Twin) -> list[Any]:
        node = self.dice.choice(twin.scene.nodes)
        return [
            node.name,
            self.dice.choice(node.devices).id,
            self.dice.choice([None, "double-bit error", "its driver is silent"]),
        ]

    def _label(self, twin: Twin) -> list[Any]:
        return [self._node(twin), self.dice.choice("ab")]

    def _disk(self, twin: Twin) -> list[Any]:
        return [self._node(twin), self.dice.choice([10, 200, 1000]) * 1024**3]

    def _edit(self, twin: Twin) -> list[Any]:
        return [self._model(twin), self.dice.choice([1024, 2048, 4096])]

    def _scale(self, twin: Twin) -> list[Any]:
        return [self._model(twin), self.dice.choice([0, 1, 2, 3, 5])]

    def _rank(self, twin: Twin) -> list[Any]:
        return [self._model(twin), self.dice.choice([-1, 0, 2])]

    def _delete(self, twin: Twin) -> list[Any]:
        return [self._model(twin)]

    _declare = _turn = _delete

    def _asked(self, twin: Twin) -> list[Any]:
        slots = list(twin.control.slots) or [f"{self._model(twin)}/1"]
        return [self.dice.choice(slots), self.dice.choice(["drain", "stop", "restart"])]


_WEIGHTS = {
    "pass": 14,
    "look": 3,
    "carry": 4,
    "wait": 4,
    "round": 14,
    "orders": 6,
    "work": 7,
    "report": 6,
    "mail": 2,
    "silent": 2,
    "heard": 1.5,
    "judge": 5,
    "reboot": 1,
    "join": 1,
    "forget": 1,
    "ill": 2,
    "cordon": 0.5,
    "uncordon": 0.7,
    "label": 0.5,
    "disk": 0.5,
    "edit": 3,
    "turn": 0.5,
    "scale": 3,
    "rank": 0.5,
    "delete": 0.7,
    "declare": 1.5,
    "asked": 1.5,
}
