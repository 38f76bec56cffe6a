"""Who holds what: counted once in a pass, where somebody asks, and kept up while the pass hands out more."""

from bisect import insort
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Final

from llmgw.core.lifecycle import HOLDING
from llmgw.core.placement.checks import (
    Against,
    Need,
    NodeNeed,
    classes_refused,
    device_refusals,
    disk_refusals,
    node_refusals,
    usable,
)
from llmgw.core.placement.choosing import largest_group
from llmgw.core.placement.ranking import Ranking
from llmgw.core.refusals import DevicesShort, Refusal
from llmgw.core.units import Bytes, ModelName, NodeName
from llmgw.core.wanted import Demand, Model
from llmgw.core.world import ClusterSnapshot, Device, DeviceKind, Node, NodeState, Replica

_SICK: Final = "device.unhealthy."
"""How the codes of findings begin that speak of the device itself."""


class Fleet:
    """All nodes with the claims on their devices; belongs to one pass, and to one thread.

    Most passes place nothing, or one replica: what is counted is counted for the classes and nodes that are looked at.
    """

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self.nodes: tuple[Node, ...] = tuple(sorted(snapshot.nodes, key=lambda node: node.name))
        self.by_name = {node.name: node for node in self.nodes}
        self.unheard = frozenset(node.name for node in self.nodes if node.state is NodeState.UNREACHABLE)
        self._snapshot = snapshot
        self._held: dict[NodeName, dict[str, list[str]]] = {}
        self._usable: dict[tuple[str, str, str], dict[NodeName, tuple[Device, ...]]] = {}
        self._of_nodes: dict[NodeNeed, dict[NodeName, tuple[Refusal, ...]]] = {}
        self._of_devices: dict[NodeName, dict[Need, Against]] = {}
        self._of_class: dict[str, dict[NodeName, tuple[Device, ...]]] = {}
        self._mismatches: dict[tuple[tuple[str, ...], tuple[str, ...]], Against | None] = {}
        self._rankings: dict[str, Ranking] = {}
        self._largest: dict[str, int] = {}

    def holders(self, node: NodeName, device: str) -> tuple[str, ...]:
        """Name who is on a device: replica ids, and launch ids of strays."""
        return tuple(self._held_on(node).get(device, ()))

    def claim(self, node: NodeName, devices: Sequence[str], holder: str, model: ModelName) -> None:
        """Put a replica of a model on devices."""
        held = self._held_on(node)
        for device in devices:
            insort(held.setdefault(device, []), holder)
        self._hosts[model][node] += 1
        self._moved(node)

    def release(self, node: NodeName, devices: Sequence[str], holder: str, model: ModelName) -> None:
        """Take a replica of a model off devices again."""
        held = self._held_on(node)
        for device in devices:
            held[device].remove(holder)
        self._hosts[model][node] -= 1
        self._moved(node)

    def best_first(self, device_class: str, devices: int, model: Model) -> Iterator[Node]:
        """Yield the nodes of a class, best first, that may have enough free devices.

        Of nodes that are as good, those with the model's weights come before others, and those where a replica of it
        runs last: what takes one node down then takes fewer of them.
        """
        self._rank(device_class)
        keepers, hosts = self._keepers.get(model.name), self._hosts.get(model.name)
        ranking = self._rankings[device_class]
        return (self.by_name[name] for name in ranking.best_first(devices, keepers or (), hosts or {}))

    def largest_group(self, device_class: str) -> int:
        """Return how many devices the largest NVLink group of a class has, taken ones too."""
        self._rank(device_class)
        return self._largest[device_class]

    def usable(self, node: Node, device_class: str, demand: Demand) -> tuple[Device, ...]:
        """Return the devices that would do if nobody were on them: none where the node itself is turned down."""
        key = (demand.model.name, demand.profile.name, device_class)
        known = self._usable.setdefault(key, {})
        if node.name not in known:
            against = self._of_node(node, demand, NodeNeed.of(demand))
            known[node.name] = () if against else usable(node, device_class, demand)
        return known[node.name]

    def free(self, node: Node, devices: Sequence[Device]) -> list[Device]:
        """Keep those of the node's devices that have a slot free."""
        held = self._held_on(node.name)
        return [device for device in devices if device.id not in held or len(held[device.id]) < device.slots]

    def refusals(self, demand: Demand) -> Iterator[tuple[Node, tuple[Refusal, ...]]]:
        """Yield with each node all that speaks against it now: of the node, and of each of its devices."""
        of_node, large = NodeNeed.of(demand), Need.of(demand)
        needed = demand.profile.devices // demand.profile.nodes
        # Where every device is large enough, how large they would have to be makes no difference.
        any_size = large._replace(memory=Bytes(0))
        for node in self.nodes:
            against = self._of_its_devices(node, large if large.memory > self._smallest[node.name] else any_size)
            refusals = self._of_node(node, demand, of_node) + against.refusals
            yield node, (*refusals, DevicesShort(needed, against.free)) if 0 < against.free < needed else refusals

    def sick(self, replica: Replica) -> str | None:
        """Say which device of a replica is unhealthy; None while all are well, or only not told of.

        A device that a driver has fallen silent about, or that others hold memory of, may serve on.
        """
        for shard in replica.shards:
            node = self.by_name.get(shard.node)
            for device in node.devices if node and node.name in self._with_sick else ():
                if device.id in shard.devices and device.unhealthy_code.startswith(_SICK):
                    return f"device {device.label or device.id} on {shard.node} is unhealthy: {device.unhealthy}"
        return None

    def keeps_weights(self, node: Node, model: Model) -> bool:
        """Tell whether the model's weights are on the node's disk already, since it was started there."""
        return node.name in self._keepers.get(model.name, ())

    # --- counted once

    @cached_property
    def _with_sick(self) -> frozenset[NodeName]:
        """The nodes that have a sick device."""
        return frozenset(
            node.name for node in self.nodes if any(d.unhealthy_code.startswith(_SICK) for d in node.devices)
        )

    @cached_property
    def _claims(self) -> dict[NodeName, list[tuple[tuple[str, ...], str]]]:
        """Who is on which devices of each node."""
        claims = defaultdict(list)
        for replica in self._snapshot.replicas:
            for shard in replica.shards:
                if shard.state in HOLDING:
                    claims[shard.node].append((shard.devices, str(replica.id)))
        for stray in self._snapshot.strays:
            claims[stray.node].append((stray.devices, str(stray.launch_id)))
        return claims

    @cached_property
    def _keepers(self) -> dict[ModelName, set[NodeName]]:
        """The nodes that each model was started on."""
        keepers = defaultdict(set)
        for replica in self._snapshot.replicas:
            for shard in replica.shards:
                keepers[replica.model].add(shard.node)
        return keepers

    @cached_property
    def _hosts(self) -> dict[ModelName, Counter[NodeName]]:
        """How many shards of each model are on each node."""
        hosts: dict[ModelName, Counter[NodeName]] = defaultdict(Counter)
        for replica in self._snapshot.replicas:
            for shard in replica.shards:
                if shard.state in HOLDING:
                    hosts[replica.model][shard.node] += 1
        return hosts

    @cached_property
    def _smallest(self) -> dict[NodeName, Bytes]:
        """The memory of each node's smallest device."""
        return {node.name: min((device.memory for device in node.devices), default=Bytes(0)) for node in self.nodes}

    @cached_property
    def _classes(self) -> dict[NodeName, tuple[str, ...]]:
        """The classes of each node's devices."""
        return {node.name: tuple(sorted({device.device_class for device in node.devices})) for node in self.nodes}

    def _held_on(self, node: NodeName) -> dict[str, list[str]]:
        held = self._held.get(node)
        if held is None:
            held = self._held[node] = {}
            for devices, holder in self._claims.get(node, ()):
                for device in devices:
                    insort(held.setdefault(device, []), holder)
        return held

    def _of_node(self, node: Node, demand: Demand, need: NodeNeed) -> tuple[Refusal, ...]:
        known = self._of_nodes.setdefault(need, {})
        if node.name not in known:
            known[node.name] = tuple(node_refusals(node, need))
        if not demand.model.source.copied or self.keeps_weights(node, demand.model):
            return known[node.name]
        return known[node.name] + disk_refusals(node, demand)

    def _of_its_devices(self, node: Node, need: Need) -> Against:
        known = self._of_devices.setdefault(node.name, {})
        if need not in known:
            mismatch = self._mismatch(need.classes, self._classes[node.name])
            known[need] = mismatch or device_refusals(node, need, self._held_on(node.name))
        return known[need]

    def _mismatch(self, wanted: tuple[str, ...], present: tuple[str, ...]) -> Against | None:
        """Tell nodes without a wanted class; one answer does for all nodes that are alike."""
        if (wanted, present) not in self._mismatches:
            self._mismatches[wanted, present] = classes_refused(wanted, present)
        return self._mismatches[wanted, present]

    def _rank(self, device_class: str) -> None:
        """Count once where the nodes of a class stand."""
        if device_class in self._rankings:
            return
        found = {node.name: tuple(d for d in node.devices if d.device_class == device_class) for node in self.nodes}
        of_class = self._of_class[device_class] = {name: devices for name, devices in found.items() if devices}
        kind = next((devices[0].kind for devices in of_class.values()), DeviceKind.GPU)
        ranking = self._rankings[device_class] = Ranking(kind)
        for name, devices in of_class.items():
            ranking.put(name, self._rung(ranking, name, devices))
        self._largest[device_class] = max((largest_group(devices) for devices in of_class.values()), default=0)

    def _rung(self, ranking: Ranking, node: NodeName, devices: Sequence[Device]) -> int:
        held = self._held_on(node)
        if ranking.kind is DeviceKind.CPU:
            return sum(len(held.get(device.id, ())) for device in devices)
        return sum(not d.unhealthy and (d.id not in held or len(held[d.id]) < d.slots) for d in devices)

    def _moved(self, node: NodeName) -> None:
        """Count anew what depends on who is on a node's devices."""
        self._of_devices.pop(node, None)
        for device_class, of_class in self._of_class.items():
            if node in of_class:
                ranking = self._rankings[device_class]
                ranking.put(node, self._rung(ranking, node, of_class[node]))
