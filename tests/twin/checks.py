"""What must hold after every event and every pass, worked out from the tables and not by the planner's own code."""

from collections import Counter, defaultdict
from collections.abc import Mapping

from llmgw.core import plan as planned
from llmgw.core.lifecycle import AT_REST, GOING, LIVE
from llmgw.core.plan import Drain, Lose, Plan, Start, Stop
from llmgw.core.refusals import DeviceClaimed, NoNodes, WaitingForRetry, WaitingForRollout, WaitingForRoom
from llmgw.core.wanted import Model
from llmgw.core.world import ClusterSnapshot, NodeState, Replica, State
from tests.twin.control import Control, Look
from tests.twin.machines import Machine
from tests.twin.truth import Truth


class Broken(AssertionError):
    """One of the promises was not kept."""


def demand(holds: object, promise: str, *about: object) -> None:
    """Stop the history when a promise is broken."""
    if not holds:
        raise Broken(": ".join([promise, *(str(one) for one in about)]))


def check_world(control: Control, machines: Mapping[str, Machine]) -> None:
    """No device carries more than it has slots: neither on the books, nor on the machines themselves."""
    slots = {(name, device.id): device.slots for name, node in control.nodes.items() for device in node.devices}
    booked = Counter((row.node, d) for row in control.shards.values() if row.state in LIVE for d in row.devices)
    running = Counter(
        (machine.name, device)
        for machine in machines.values()
        for one in machine.engines.values()
        if one.state in LIVE
        for device in one.devices
    )
    for where, counted in (("on the books", booked), ("on the machine", running)):
        for place, count in counted.items():
            demand(count <= slots.get(place, count), f"a device is given beyond its slots {where}", place, count)


def checked_pass(control: Control) -> Plan:
    """Run one pass that nobody disturbs, and look at all that it did; then ask again what is to do."""
    before = control.look()
    for action in before.plan.actions:
        demand(control.apply(action, before), "the tables do not let an action be carried out", action.text())
    check_actions(before)
    after = control.snapshot()
    for model in after.models:
        _check_counts(model.name, model.replicas, before, after)
    again = planned.plan(after, control.now)
    demand(not again.actions, "a second pass finds more to do", _said(again), "after", _said(before.plan))
    named = [{one.replica for one in each.refusals} for each in (before.plan, again)]
    demand(named[0] == named[1], "a second pass refuses others", *named)
    check_refusals(after, again, control.now)
    return before.plan


def _said(done: Plan) -> str:
    return "; ".join(action.text() for action in done.actions)


def check_actions(look: Look) -> None:
    """Starts only where something may run; ends only what is not wanted, not current, or not needed."""
    replicas = {one.id: one for one in look.snapshot.replicas}
    truth = Truth(look.snapshot)
    for action in look.plan.actions:
        if isinstance(action, Start):
            why_not = truth.forbids(action)
            demand(not why_not, "started where it may not run", action.text(), why_not)
        elif isinstance(action, Drain | Stop):
            _check_end(action, replicas[action.replica], look.snapshot)


def _check_preemption(action: Drain | Stop, model: Model, snapshot: ClusterSnapshot) -> None:
    name = action.why.removeprefix("preempted by ").partition("/")[0]
    newcomer = next(each for each in snapshot.models if each.name == name)
    demand(newcomer.priority > model.priority, "gives way to what is not wanted more", action.text())


def _check_end(action: Drain | Stop, one: Replica, snapshot: ClusterSnapshot) -> None:
    model = next((model for model in snapshot.models if model.name == one.model), None)
    if model is None or not _is_current(one, model, snapshot):
        return
    if action.why.startswith("preempted by "):
        _check_preemption(action, model, snapshot)
        return
    running = [r for r in snapshot.replicas if r.model == one.model and r.state in LIVE - GOING]
    current = [r for r in running if _is_current(r, model, snapshot)]
    demand(len(current) > model.replicas, "what is wanted, current and healthy is ended", action.text())
    if one.state is State.READY:
        kept = [r for r in current if r.state is State.READY]
        demand(len(kept) > model.replicas, "ends what serves, and not what does not", action.text())


def _is_current(one: Replica, model: Model, snapshot: ClusterSnapshot) -> bool:
    """Tell whether nothing is to take a replica's place: of the present version, and on devices that are not sick."""
    sick = {
        (node.name, device.id)
        for node in snapshot.nodes
        for device in node.devices
        if device.unhealthy_code.startswith("device.unhealthy.")
    }
    held = {(shard.node, device) for shard in one.shards for device in shard.devices}
    return one.fingerprint in model.fingerprints() and not (one.state is State.READY and held & sick)


def _check_counts(name: str, wanted: int, look: Look, after: ClusterSnapshot) -> None:
    """Never more up than asked, and one more while an edit rolls out; never less serving than one below it."""
    model = next(model for model in after.models if model.name == name)
    up = [one for one in after.replicas if one.model == name and one.state in LIVE - GOING]
    current = [one for one in up if _is_current(one, model, after)]
    started = [one for one in look.plan.actions if isinstance(one, Start) and one.model == name]
    if started:
        surge = len(current) < len(up)
        demand(len(current) <= wanted, "more are started than asked", name, _said(look.plan))
        demand(len(up) <= wanted + surge, "more are up than asked and one", name, _said(look.plan))
    served = [one for one in look.snapshot.replicas if one.model == name and one.state is State.READY]
    serves = [one for one in up if one.state is State.READY]
    lost = sum(one.replica in {s.id for s in served} for one in look.plan.actions if isinstance(one, Lose))
    lost += sum(getattr(one, "why", "").startswith("preempted by ") for one in look.plan.actions)
    least = min(wanted, len(served) - lost) - 1
    demand(len(serves) >= least, "an edit takes more than one that serves", name, _said(look.plan))


def check_refusals(snapshot: ClusterSnapshot, done: Plan, now: float) -> None:
    """What is wanted and does not run says why for each node and profile, and all that is said is so."""
    truth = Truth(snapshot)
    truth.keep(_promised(done, snapshot))
    nodes = {node.name for node in snapshot.nodes}
    replicas = {one.id: one for one in snapshot.replicas}
    refused: dict[str, int] = defaultdict(int)
    for each in done.refusals:
        one = replicas[each.replica]
        model = next(model for model in snapshot.models if model.name == one.model)
        refused[one.model] += 1
        demand(one.state in AT_REST, "what runs is refused", each.text())
        kinds = {type(no.refusal) for no in each.refusals}
        if kinds <= {WaitingForRetry, WaitingForRollout, WaitingForRoom, NoNodes}:
            demand(len(each.refusals) == 1, "one reason is said more than once", each.text())
        else:
            said = {(no.node, no.profile) for no in each.refusals}
            all_of_them = {(node, profile.name) for node in nodes for profile in model.profiles}
            demand(said == all_of_them, "not every node is answered for", each.text())
        for no in each.refusals:
            wrong = truth.contradicts(no, one, model, now)
            demand(not wrong, "a refusal is not true", each.replica, no, wrong)
    for model in snapshot.models:
        there = [one for one in snapshot.replicas if one.model == model.name and one.state in LIVE]
        demand(len(there) + refused[model.name] >= model.replicas, "one is wanted, and nothing is said", model.name)


def _promised(done: Plan, snapshot: ClusterSnapshot) -> set[tuple[str, str, str]]:
    """Return what is kept for whom: node, device, and who is to come, which must be waiting for somebody to go."""
    waiting = {
        each.replica for each in done.refusals if any(isinstance(no.refusal, WaitingForRoom) for no in each.refusals)
    }
    found = {
        (str(no.node), no.refusal.device, holder)
        for each in done.refusals
        for no in each.refusals
        if isinstance(no.refusal, DeviceClaimed)
        for holder in no.refusal.holders
        if holder.endswith(" (to come)")
    }
    for _, _, holder in found:
        demand(holder.removesuffix(" (to come)") in waiting, "a device is kept for nobody who waits", holder)
    return found


def check_quiet(control: Control) -> None:
    """At rest each model serves what was asked, of the present version, or says why not; nothing else runs."""
    snapshot = control.snapshot()
    done = planned.plan(snapshot, control.now)
    demand(not snapshot.strays, "a stray is left", snapshot.strays)
    refused = Counter(one.replica.rpartition("/")[0] for one in done.refusals)
    models = {model.name: model for model in snapshot.models}
    for one in snapshot.replicas:
        demand(one.model in models, "a retired model still has slots", one.id)
    for name, model in models.items():
        serving = [one for one in snapshot.replicas if one.model == name and one.state is State.READY]
        current = [one for one in serving if _is_current(one, model, snapshot)]
        demand(len(serving) <= model.replicas, "more serve than asked", name)
        if len(serving) == len(current):
            demand(len(current) + refused[name] == model.replicas, "less serve than asked, and less is said", name)
        else:
            demand(refused[name], "an old version stays without a reason", name)
            demand(len(serving) + refused[name] >= model.replicas, "less serve than asked, and less is said", name)
    demand(all(node.state is NodeState.READY for node in snapshot.nodes), "a node is not back")
