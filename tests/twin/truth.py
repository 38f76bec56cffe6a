"""The fleet as an auditor counts it: whether a start was right, and whether what a refusal says is so."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from llmgw.core import refusals as no
from llmgw.core.lifecycle import GOING, LIVE
from llmgw.core.placement import Refused
from llmgw.core.plan import Start
from llmgw.core.wanted import Demand, Model, Profile
from llmgw.core.world import ClusterSnapshot, Device, Node, NodeState, Replica, State

_STATE: Final = {
    no.NodeNotJoined: NodeState.JOINING,
    no.NodeUnreachable: NodeState.UNREACHABLE,
    no.NodeLost: NodeState.LOST,
}


class Truth:
    """All that is counted, from one snapshot."""

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self.snapshot = snapshot
        self.nodes: dict[str, Node] = {node.name: node for node in snapshot.nodes}
        self.models = {model.name: model for model in snapshot.models}
        self.holders: dict[tuple[str, str], list[str]] = defaultdict(list)
        self.kept = {(shard.node, one.model) for one in snapshot.replicas for shard in one.shards}
        for one in snapshot.replicas:
            for shard in one.shards:
                for device in shard.devices if shard.state in LIVE else ():
                    self.holders[shard.node, device].append(one.id)
        for stray in snapshot.strays:
            for device in stray.devices:
                self.holders[stray.node, device].append(stray.launch_id)

    def forbids(self, start: Start) -> str:
        """Say why a start should not have been; who holds what is checked when it is carried out."""
        model = self.models[start.model]
        profile = next(one for one in model.profiles if one.name == start.profile)
        for part in start.shards:
            node = self.nodes[part.node]
            if against := list(self.against_node(node, model, profile)):
                return ", ".join(against)
            chosen = [device for device in node.devices if device.id in part.devices]
            if len(chosen) != len(part.devices) or len(chosen) * profile.nodes != profile.devices:
                return "the wrong number of devices"
            if len({device.device_class for device in chosen}) > 1:
                return "devices of several classes"
            if not all(self.fits(device, model, profile) for device in chosen):
                return "a device that is ill, too small, or of another class"
        nodes = {part.node for part in start.shards}
        if not len(start.shards) == len(nodes) == profile.nodes:
            return "the wrong number of nodes"
        shared = set.intersection(*(self.groups(self.nodes[name], profile) for name in nodes))
        return "" if shared or profile.nodes == 1 else "nodes that do not reach each other"

    def groups(self, node: Node, profile: Profile) -> set[tuple[str, ...]]:
        """Name the NVLink domains and the networks that join a node to others."""
        domains = {("nvlink", device.domain) for device in node.devices if device.domain and not profile.fabric}
        networks = {
            (fabric.name, *fabric.identities)
            for fabric in node.fabrics
            if not fabric.unusable and profile.fabric in (None, fabric.name)
        }
        return domains | networks

    def against_node(self, node: Node, model: Model, profile: Profile) -> Iterator[str]:
        """Say what speaks against a node as a whole."""
        if node.state is not NodeState.READY:
            yield node.state.value
        if node.cordoned:
            yield "cordoned"
        if profile.engine not in node.engines:
            yield "no engine"
        if not model.labels.items() <= node.labels.items():
            yield "no label"
        size = model.source.size if model.source.copied and (node.name, model.name) not in self.kept else None
        if size and node.disk_free is not None and node.disk_free < size * 1.05:
            yield "no disk"
        is_guess = profile.memory is None and model.source.size is None
        if is_guess and profile.device_classes != ("cpu",):
            yield "no size"

    def fits(self, device: Device, model: Model, profile: Profile) -> bool:
        """Tell whether a device would do if nobody were on it."""
        of_class = device.device_class in profile.device_classes
        return of_class and not device.unhealthy and device.memory >= Demand(model, profile).memory

    def free(self, node: Node, model: Model, profile: Profile) -> int:
        """Count the free devices that would do, of the class that has most of them."""
        counts = dict.fromkeys(profile.device_classes, 0)
        for device in node.devices:
            if self.fits(device, model, profile) and len(self.holders[node.name, device.id]) < device.slots:
                counts[device.device_class] += 1
        return max(counts.values())

    def keep(self, promised: Iterable[tuple[str, str, str]]) -> None:
        """Count devices as held that are kept for somebody who waits."""
        for node, device, holder in promised:
            self.holders[node, device].append(holder)

    def contradicts(self, said: Refused, one: Replica, model: Model, now: float) -> str:
        """Say what is not so of one refusal; nothing when all of it is."""
        refusal: Any = said.refusal
        if isinstance(refusal, no.NoNodes):
            return "there are nodes" if self.nodes else ""
        if isinstance(refusal, no.WaitingForRetry):
            due = (one.state, one.failures, (one.next_try_at or 0) - now)
            return "" if due == (State.FAILED, refusal.failures, refusal.wait) and refusal.wait > 0 else str(due)
        if isinstance(refusal, no.WaitingForRollout):
            old = self._old(model)
            return "" if 0 < len(old) == refusal.old else str(old)
        if isinstance(refusal, no.WaitingForRoom):
            return self._does_not_go(refusal, model)
        node = self.nodes[said.node or ""]
        profile = next(each for each in model.profiles if each.name == said.profile)
        if self._could(node, model, profile):
            return "the node could take it"
        about = _CHECKS.get(type(refusal))
        return "" if about is None or about(self, refusal, node, model, profile) else f"not so on {node}"

    def _does_not_go(self, refusal: no.WaitingForRoom, model: Model) -> str:
        """Name who is waited for and has not been asked to go, or has no lower priority."""
        priority = {each.name: each.priority for each in self.snapshot.models}
        going = {one.id: one.model for one in self.snapshot.replicas if one.state in GOING}
        lower = {name for name, of in going.items() if priority.get(of, model.priority) < model.priority}
        return ", ".join(name for name in refusal.waits_for if name not in lower)

    def _old(self, model: Model) -> list[str]:
        up = [one for one in self.snapshot.replicas if one.model == model.name and one.state in LIVE - GOING]
        return [one.id for one in up if one.fingerprint not in model.fingerprints() or self._is_sick(one)]

    def _is_sick(self, one: Replica) -> bool:
        """Tell whether a replica serves on a device that is sick itself, so that another is to take its place."""
        held = {(shard.node, device) for shard in one.shards for device in shard.devices}
        sick = (
            (node.name, device.id)
            for node in self.nodes.values()
            for device in node.devices
            if device.unhealthy_code.startswith("device.unhealthy.")
        )
        return one.state is State.READY and any(place in held for place in sick)

    def _could(self, node: Node, model: Model, profile: Profile) -> bool:
        if profile.nodes > 1:
            return self._could_with_others(node, model, profile)
        return not any(self.against_node(node, model, profile)) and self.free(node, model, profile) >= profile.devices

    def _could_with_others(self, node: Node, model: Model, profile: Profile) -> bool:
        """Tell whether enough nodes of one group have enough of one class; where rails matter, that is not all."""
        needed = profile.devices // profile.nodes
        for device_class in profile.device_classes:
            one = replace(profile, device_classes=(device_class,))
            able = [
                other
                for other in self.nodes.values()
                if not any(self.against_node(other, model, one)) and self.free(other, model, one) >= needed
            ]
            for group in self.groups(node, profile) if node in able else ():
                there = [other for other in able if group in self.groups(other, profile)]
                is_rail_only = any(fabric.rail_only for other in there for fabric in other.fabrics)
                if len(there) >= profile.nodes and not is_rail_only:
                    return True
        return False


def _device(node: Node, name: str) -> Device:
    return next(device for device in node.devices if device.id == name)


def _unheard(truth: Truth, said: Any, node: Node, model: Model, profile: Profile) -> bool:
    return node.state is _STATE[type(said)] and said.node == node.name


def _cordoned(truth: Truth, said: Any, node: Node, model: Model, profile: Profile) -> bool:
    return node.cordoned and said.node == node.name


def _unsized(truth: Truth, said: Any, node: Node, model: Model, profile: Profile) -> bool:
    return said.missing == ("weights",) and model.source.size is None and profile.memory is None


def _engine(truth: Truth, said: Any, node: Node, model: Model, profile: Profile) -> bool:
    missing = said.engine == profile.engine and said.engine not in node.engines
    return missing and set(said.installed) == node.engines


def _labels(truth: Truth, said: Any, node: Node, model: Model, profile: Profile) -> bool:
    pairs = dict(label.split("=") for label in said.missing)
    return bool(pairs) and all(model.labels[key] == value != node.labels.get(key) for key, value in pairs.items())


def _disk(truth: Truth, said: Any, node: Node, model: Model, profile: Profile) -> bool:
    there = (node.name, model.name) in truth.kept
    return not there and said.free == node.disk_free and (model.source.size or 0) <= said.needed > said.free


def _class(truth: Truth, said: Any, node: Node, model: Model, profile: Profile) -> bool:
    present = {device.device_class for device in node.devices}
    asked = set(said.wanted) == set(profile.device_classes)
    return asked and set(said.present) == present and not present & set(said.wanted)


def _unhealthy(truth: Truth, said: Any, node: Node, model: Model, profile: Profile) -> bool:
    device = _device(node, said.device)
    return bool(device.unhealthy) and said.reason == device.unhealthy and device.device_class in profile.device_classes


def _memory(truth: Truth, said: Any, node: Node, model: Model, profile: Profile) -> bool:
    has = _device(node, said.device).memory
    return said.has == has < said.needed == Demand(model, profile).memory


def _claimed(truth: Truth, said: Any, node: Node, model: Model, profile: Profile) -> bool:
    device, holders = _device(node, said.device), truth.holders[node.name, said.device]
    would_do = truth.fits(device, model, profile)
    return would_do and said.slots == device.slots <= len(holders) and list(said.holders) == sorted(holders)


def _short(truth: Truth, said: Any, node: Node, model: Model, profile: Profile) -> bool:
    free = truth.free(node, model, profile)
    return said.needed == profile.devices // profile.nodes > said.free == free > 0


def _fabric(truth: Truth, said: Any, node: Node, model: Model, profile: Profile) -> bool:
    return said.nodes == profile.nodes > 1 and not node.fabrics


def _too_few(truth: Truth, said: Any, node: Node, model: Model, profile: Profile) -> bool:
    return said.needed == profile.nodes > said.able > 0


_CHECKS: Final[Mapping[type, Callable[[Truth, Any, Node, Model, Profile], bool]]] = {
    no.NodeNotJoined: _unheard,
    no.NodeUnreachable: _unheard,
    no.NodeLost: _unheard,
    no.NodeCordoned: _cordoned,
    no.EngineMissing: _engine,
    no.MemoryUnknown: _unsized,
    no.LabelsMissing: _labels,
    no.DiskShort: _disk,
    no.ClassMismatch: _class,
    no.DeviceUnhealthy: _unhealthy,
    no.MemoryShort: _memory,
    no.DeviceClaimed: _claimed,
    no.DevicesShort: _short,
    no.FabricNone: _fabric,
    no.FabricShort: _too_few,
}
"""A reason that is not here is counted, and not looked into."""
