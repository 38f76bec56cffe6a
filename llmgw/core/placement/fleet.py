"""Who holds what: counted once in a pass, and kept up while the pass hands out more."""

from bisect import insort
from collections.abc import Iterator, Sequence

from llmgw.core.lifecycle import HOLDING
from llmgw.core.placement.checks import Need, device_refusals, node_refusals, usable
from llmgw.core.placement.ranking import Ranking
from llmgw.core.refusals import Refusal
from llmgw.core.units import Bytes, NodeName
from llmgw.core.wanted import Demand, Model
from llmgw.core.world import ClusterSnapshot, Device, DeviceKind, Node


class Fleet:
    """All nodes with the claims on their devices; belongs to one pass, and to one thread."""

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self.nodes: tuple[Node, ...] = tuple(sorted(snapshot.nodes, key=lambda node: node.name))
        self.by_name = {node.name: node for node in self.nodes}
        self._holders: dict[tuple[NodeName, str], list[str]] = {}
        self._weights = {(shard.node, replica.model) for replica in snapshot.replicas for shard in replica.shards}
        self._usable: dict[tuple[str, str, str], dict[NodeName, tuple[Device, ...]]] = {}
        self._against: dict[NodeName, dict[Need, tuple[Refusal, ...]]] = {}
        self._rankings: dict[str, Ranking] = {}
        self._count_claims(snapshot)
        for node in self.nodes:
            self._rank(node)

    def holders(self, node: NodeName, device: str) -> tuple[str, ...]:
        """Name who is on a device: replica ids, and launch ids of strays."""
        return tuple(self._holders.get((node, device), ()))

    def claim(self, node: NodeName, devices: Sequence[str], holder: str) -> None:
        """Put somebody on devices."""
        for device in devices:
            insort(self._holders.setdefault((node, device), []), holder)
        self._rank(self.by_name[node])

    def release(self, node: NodeName, devices: Sequence[str], holder: str) -> None:
        """Take somebody off devices again."""
        for device in devices:
            self._holders[node, device].remove(holder)
        self._rank(self.by_name[node])

    def best_first(self, device_class: str, devices: int) -> Iterator[Node]:
        """Yield the nodes of a class, best first, that may have enough free devices."""
        ranking = self._rankings.get(device_class)
        return (self.by_name[name] for name in ranking.best_first(devices)) if ranking else iter(())

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
        need = Need(demand.profile.device_classes, demand.profile.devices, memory)
        known = self._against.setdefault(node.name, {})
        if need not in known:
            known[need] = device_refusals(node, need, self.holders)
        yield from known[need]

    def keeps_weights(self, node: Node, model: Model) -> bool:
        """Tell whether the model's weights are on the node's disk already, since it was started there."""
        return (node.name, model.name) in self._weights

    def _count_claims(self, snapshot: ClusterSnapshot) -> None:
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
