"""Where one replica goes: the devices chosen for it, or for every candidate why not."""

from dataclasses import dataclass
from typing import NamedTuple

from llmgw.core.placement.fleet import Fleet
from llmgw.core.refusals import NoNodes, Refusal
from llmgw.core.units import NodeName
from llmgw.core.wanted import Demand
from llmgw.core.world import ClusterSnapshot

__all__ = ["Fleet", "Part", "Placement", "Refusals", "Refused", "fitting", "place"]


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
    return fitting(fleet, demand) or Refusals(_all_refused(fleet, demand))


def fitting(fleet: Fleet, demand: Demand) -> Placement | None:
    """Take the best candidate that every check lets through; classes in the profile's order."""
    needed = demand.profile.devices
    for device_class in demand.profile.device_classes:
        for node in fleet.best_first(device_class, needed):
            free = fleet.free(node, fleet.usable(node, device_class, demand))
            if len(free) >= needed:
                devices = tuple(device.id for device in free[:needed])
                return Placement(demand.profile.name, (Part(node.name, devices),))
    return None


def _all_refused(fleet: Fleet, demand: Demand) -> tuple[Refused, ...]:
    if not fleet.nodes:
        return (Refused(None, None, NoNodes()),)
    return tuple(
        Refused(node.name, demand.profile.name, no) for node in fleet.nodes for no in fleet.refusals(node, demand)
    )
