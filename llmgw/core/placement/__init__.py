"""Where one replica goes: the devices chosen for it, or for every candidate why not."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from llmgw.core.placement.choosing import choose, fits_whole
from llmgw.core.placement.fleet import Fleet
from llmgw.core.placement.spanning import Offer, Reach, Shards, alone, spans
from llmgw.core.refusals import NoNodes, Refusal
from llmgw.core.units import NodeName
from llmgw.core.wanted import Demand
from llmgw.core.world import ClusterSnapshot, Node

__all__ = ["Fleet", "Part", "Placement", "Refusals", "Refused", "fitting", "place", "refusals"]


class Part(NamedTuple):
    """What one shard gets."""

    node: NodeName
    devices: tuple[str, ...]
    rank: int = 0


@dataclass(frozen=True, slots=True)
class Placement:
    """A place for all shards of one replica."""

    profile: str
    parts: tuple[Part, ...]
    fabric: str = ""
    """The fabric that its shards reach each other over; empty on one node, and in an NVLink domain."""


class Refused(NamedTuple):
    """One reason against one candidate; node and profile are None where the reason is not about one."""

    node: NodeName | None
    profile: str | None
    refusal: Refusal


@dataclass(frozen=True, slots=True)
class Refusals:
    """Why no candidate would do, every node looked at."""

    refused: tuple[Refused, ...]


def place(cluster: ClusterSnapshot | Fleet, demand: Demand) -> Placement | Refusals:
    """Choose devices for one replica by one profile, or say for every node why not."""
    fleet = cluster if isinstance(cluster, Fleet) else Fleet(cluster)
    return fitting(fleet, demand) or Refusals(refusals(fleet, demand))


def fitting(fleet: Fleet, demand: Demand) -> Placement | None:
    """Take the best candidate that every check lets through; classes in the profile's order."""
    find = _on_one_node if demand.profile.nodes == 1 else _over_nodes
    return next((found for name in demand.profile.device_classes if (found := find(fleet, demand, name))), None)


def _on_one_node(fleet: Fleet, demand: Demand, device_class: str) -> Placement | None:
    """Take the best node; where NVLink could join all devices, a node where it does before one where it does not."""
    needed = demand.profile.devices
    is_joined = 1 < needed <= fleet.largest_group(device_class)
    best: Offer | None = None
    for offer in _offers(fleet, demand, device_class, needed):
        if not is_joined or fits_whole(offer.free, needed):
            return _placement(demand, ((offer.node, choose(offer.free, needed)),))
        best = best or offer
    return _placement(demand, ((best.node, choose(best.free, needed)),)) if best else None


def _over_nodes(fleet: Fleet, demand: Demand, device_class: str) -> Placement | None:
    profile = demand.profile
    per_node = profile.devices // profile.nodes
    offers = _offers(fleet, demand, device_class, per_node)
    found = spans(offers, nodes=profile.nodes, per_node=per_node, fabric=profile.fabric)
    return _placement(demand, found[1], found[0].name) if found else None


def _offers(fleet: Fleet, demand: Demand, device_class: str, needed: int) -> Iterator[Offer]:
    for node in fleet.best_first(device_class, needed, demand.model):
        free = fleet.free(node, fleet.usable(node, device_class, demand))
        if len(free) >= needed:
            yield Offer(node, tuple(free))


def _placement(demand: Demand, shards: Shards, fabric: str = "") -> Placement:
    parts = (Part(node.name, tuple(d.id for d in devices), rank) for rank, (node, devices) in enumerate(shards))
    return Placement(demand.profile.name, tuple(parts), fabric)


def refusals(fleet: Fleet, demand: Demand) -> tuple[Refused, ...]:
    """Say for every node why it does not take a replica, as it is now."""
    if not fleet.nodes:
        return (Refused(None, None, NoNodes()),)
    profile = demand.profile
    able = [node for node in fleet.nodes if _is_able(fleet, node, demand)] if profile.nodes > 1 else []
    reach, is_able = Reach(able, profile), {node.name for node in able}
    return tuple(
        Refused(node.name, profile.name, no)
        for node, against in fleet.refusals(demand)
        for no in (alone(node, reach, profile) if node.name in is_able else against)
    )


def _is_able(fleet: Fleet, node: Node, demand: Demand) -> bool:
    """Tell whether a node by itself could take one shard of several."""
    needed = demand.profile.devices // demand.profile.nodes
    classes = demand.profile.device_classes
    return any(len(fleet.free(node, fleet.usable(node, name, demand))) >= needed for name in classes)
