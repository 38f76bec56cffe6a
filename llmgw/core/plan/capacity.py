"""How much of each device class is taken and free, now and once a plan is carried out."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from llmgw.core.lifecycle import HOLDING
from llmgw.core.plan.actions import Plan, Start
from llmgw.core.world import ClusterSnapshot, Device, Node, NodeState


@dataclass(frozen=True, slots=True)
class Capacity:
    """One class, in places: a card is one, a CPU as many as its node says."""

    device_class: str
    places: int
    unusable: int
    """Of unhealthy devices, and of nodes that take nothing new."""
    taken: int
    taken_after: int

    @property
    def free(self) -> int:
        """Return what is left now."""
        return max(0, self.places - self.unusable - self.taken)

    @property
    def free_after(self) -> int:
        """Return what is left then."""
        return max(0, self.places - self.unusable - self.taken_after)

    def to_json(self) -> dict[str, Any]:
        """Return the printed shape."""
        return {
            "device_class": self.device_class,
            "places": self.places,
            "unusable": self.unusable,
            "taken": self.taken,
            "free": self.free,
            "taken_after": self.taken_after,
            "free_after": self.free_after,
        }


def capacity(snapshot: ClusterSnapshot, plan: Plan) -> tuple[Capacity, ...]:
    """Count each class, by name. What a plan stops still holds its devices until it has stopped."""
    class_of = {(node.name, device.id): device.device_class for node in snapshot.nodes for device in node.devices}
    places: Counter[str] = Counter()
    unusable: Counter[str] = Counter()
    for node in snapshot.nodes:
        for device in node.devices:
            places[device.device_class] += device.slots
            unusable[device.device_class] += 0 if _may_be_used(node, device) else device.slots
    taken = Counter(class_of[key] for key in _held(snapshot) if key in class_of)
    new = Counter(class_of[key] for key in _given(plan) if key in class_of)
    return tuple(
        Capacity(name, places[name], unusable[name], taken[name], taken[name] + new[name]) for name in sorted(places)
    )


def _may_be_used(node: Node, device: Device) -> bool:
    return node.state is NodeState.READY and not node.cordoned and not device.unhealthy


def _held(snapshot: ClusterSnapshot) -> Iterator[tuple[str, str]]:
    for replica in snapshot.replicas:
        for shard in replica.shards:
            if shard.state in HOLDING:
                yield from ((shard.node, device) for device in shard.devices)
    for stray in snapshot.strays:
        yield from ((stray.node, device) for device in stray.devices)


def _given(plan: Plan) -> Iterator[tuple[str, str]]:
    for action in plan.actions:
        if isinstance(action, Start):
            yield from ((part.node, device) for part in action.shards for device in part.devices)
