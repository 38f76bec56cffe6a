"""Who holds what: counted once in a pass, and kept up while the pass hands out more."""

from bisect import insort
from collections import Counter
from collections.abc import Iterator, Sequence

from llmgw.core.lifecycle import HOLDING
from llmgw.core.placement.checks import Need, device_refusals, node_refusals, usable
from llmgw.core.placement.choosing import by_class, largest_group
from llmgw.core.placement.ranking import Ranking
from llmgw.core.refusals import Refusal
from llmgw.core.units import Bytes, ModelName, NodeName
from llmgw.core.wanted import Demand, Model
from llmgw.core.world import ClusterSnapshot, Device, DeviceKind, Node


class Fleet:
    """All nodes with the claims on their devices; belongs to one pass, and to one thread."""

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self.nodes: tuple[Node, ...] = tuple(sorted(snapshot.nodes, key=lambda node: node.name))
        self.by_name = {node.name: node for node in self.nodes}
        self._holders: dict[tuple[NodeName, str], list[str]] = {}
        self._keepers: dict[ModelName, set[NodeName]] = {}
        self._hosts: dict[ModelName, Counter[NodeName]] = {}
        self._largest: dict[str, int] = {}
        self._usable: dict[tuple[str, str, str], dict[NodeName, tuple[Device, ...]]] = {}
        self._against: dict[NodeName, dict[Need, tuple[Refusal, ...]]] = {}
        self._rankings: dict[str, Ranking] = {}
        self._count_claims(snapshot)
        for node in self.nodes:
            self._rank(node)
            for device_class, devices in by_class(node.devices):
                self._largest[device_class] = max(self._largest.get(device_class, 0), largest_group(devices))

    def holders(self, node: NodeName, device: str) -> tuple[str, ...]:
        """Name who is on a device: replica ids, and launch ids of strays."""
        return tuple(self._holders.get((node, device), ()))

    def claim(self, node: NodeName, devices: Sequence[str], holder: str, model: ModelName) -> None:
        """Put a replica of a model on devices."""
        for device in devices:
            insort(self._holders.setdefault((node, device), []), holder)
        self._hosts.setdefault(model, Counter())[node] += 1
        self._rank(self.by_name[node])

    def release(self, node: NodeName, devices: Sequence[str], holder: str, model: ModelName) -> None:
        """Take a replica of a model off devices again."""
        for device in devices:
            self._holders[node, device].remove(holder)
        self._hosts[model][node] -= 1
        self._rank(self.by_name[node])

    def best_first(self, device_class: str, devices: int, model: Model) -> Iterator[Node]:
        """Yield the nodes of a class, best first, that may have enough free devices.

        Of nodes that are as good, those with the model's weights come before others, and those where a replica of it
        runs last: what takes one node down then takes fewer of them.
        """
        ranking = self._rankings.get(device_class)
        if ranking is None:
            return iter(())
        keepers, hosts = self._keepers.get(model.name), self._hosts.get(model.name)
        return (self.by_name[name] for name in ranking.best_first(devices, keepers or (), hosts or {}))

    def largest_group(self, device_class: str) -> int:
        """Return how many devices the largest NVLink group of a class has, taken ones too."""
        return self._largest.get(device_class, 0)

    def usable(self, node: Node, device_class: str, demand: Demand) -> tuple[Device, ...]:
        """Return the devices that would do if nobody were on them: none where the node itself is turned down."""
        key = (demand.model.name, demand.profile.name, device_class)
        known = self._usable.setdefault(key, {})
        if node.name not in known:
            against = node_refusals(node, demand, keeps_weights=self.keeps_weights(node, demand.model))
            known[node.name] = () if any(against) else usable(node, device_class, demand)
        return known[node.name]

    def free(self, node: Node, devices: Sequence[Device]) -> list[Device]:
        """Keep those of the node's devices that have a slot free."""
        return [device for device in devices if self._count(node, device) < device.slots]

    def refusals(self, node: Node, demand: Demand) -> Iterator[Refusal]:
        """Yield all that speaks against a node now: of the node, and of each of its devices."""
        yield from node_refusals(node, demand, keeps_weights=self.keeps_weights(node, demand.model))
        # Where every device is large enough, how large they would have to be makes no difference.
        memory = demand.memory if any(device.memory < demand.memory for device in node.devices) else Bytes(0)
        need = Need(demand.profile.device_classes, demand.profile.devices // demand.profile.nodes, memory)
        known = self._against.setdefault(node.name, {})
        if need not in known:
            known[need] = device_refusals(node, need, self.holders)
        yield from known[need]

    def keeps_weights(self, node: Node, model: Model) -> bool:
        """Tell whether the model's weights are on the node's disk already, since it was started there."""
        return node.name in self._keepers.get(model.name, ())

    def _count_claims(self, snapshot: ClusterSnapshot) -> None:
        for replica in snapshot.replicas:
            self._keepers.setdefault(replica.model, set()).update(shard.node for shard in replica.shards)
            on = Counter(shard.node for shard in replica.shards if shard.state in HOLDING)
            self._hosts.setdefault(replica.model, Counter()).update(on)
        held = [(s.node, s.devices, r.id) for r in snapshot.replicas for s in r.shards if s.state in HOLDING]
        stray = [(s.node, s.devices, s.launch_id) for s in snapshot.strays]
        for node, devices, holder in [*held, *stray]:
            for device in devices:
                insort(self._holders.setdefault((node, device), []), holder)

    def _count(self, node: Node, device: Device) -> int:
        return len(self._holders.get((node.name, device.id), ()))

    def _rank(self, node: Node) -> None:
        """Count anew where the node stands in each of its classes."""
        self._against.pop(node.name, None)
        rungs: dict[str, int] = {}
        for device in node.devices:
            counted = self._count(node, device)
            worth = counted if device.kind is DeviceKind.CPU else int(counted < device.slots and not device.unhealthy)
            rungs[device.device_class] = rungs.get(device.device_class, 0) + worth
            self._rankings.setdefault(device.device_class, Ranking(device.kind))
        for device_class, rung in rungs.items():
            self._rankings[device_class].put(node.name, rung)
