"""Replicas over several nodes: all shards or none, in one NVLink domain or on one fabric, told by what it really is."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from llmgw.core.hardware.fabrics import Attachment
from llmgw.core.placement.choosing import choose
from llmgw.core.refusals import FabricIdentity, FabricShort, RailsApart, Refusal
from llmgw.core.wanted import Profile
from llmgw.core.world import Device, Node

_COMPARED: Final = 64
"""With so many nodes of a group a further one is compared: a bound for fleets in which no rails agree."""


class Kind(StrEnum):
    """What joins nodes; the faster comes first."""

    NVLINK = "nvlink"
    FABRIC = "fabric"


class GroupKey(NamedTuple):
    """Nodes of one key can reach each other."""

    kind: Kind
    name: str
    """Of the fabric; empty for an NVLink domain."""
    identity: str
    """`sm:0x…`, `roce:0:10.1.0.0/24`, a cluster UUID with its clique; empty where a fabric's is not known."""


def groups_of(node: Node, fabric: str | None = None) -> tuple[GroupKey, ...]:
    """Return all that a node is joined to others by; by name, that fabric alone."""
    domains = sorted({device.domain for device in node.devices if device.domain})
    over = [attached for attached in node.fabrics if not attached.unusable and fabric in {None, attached.name}]
    return (
        *(GroupKey(Kind.NVLINK, "", domain) for domain in domains if fabric is None),
        *(GroupKey(Kind.FABRIC, attached.name, identity_of(attached)) for attached in over),
    )


def identity_of(attached: Attachment) -> str:
    """Say in one word which physical network it is; rails that are networks of their own are told together."""
    return "+".join(sorted(attached.identities))


Shards = tuple[tuple[Node, tuple[Device, ...]], ...]
"""What each node gives, in the order of the ranks."""


class Offer(NamedTuple):
    """A node that has enough free devices for one shard."""

    node: Node
    free: tuple[Device, ...]


@dataclass(slots=True)
class Bucket:
    """The offers of one group, the best first."""

    key: GroupKey
    per_node: int
    nodes: int
    offers: list[Offer] = field(default_factory=list)
    _rails: list[Mapping[int, Device]] = field(default_factory=list)

    def add(self, offer: Offer) -> Shards | None:
        """Take one more offer; return the shards once enough nodes offer devices on the same rails."""
        rails = _rails(offer, self.key)
        chosen, common = [len(self.offers)], set(rails)
        for at, other in enumerate(self._rails[-_COMPARED:], max(0, len(self._rails) - _COMPARED)):
            if len(chosen) < self.nodes and len(both := common & other.keys()) >= self.per_node:
                chosen, common = [*chosen, at], both
        self.offers.append(offer)
        self._rails.append(rails)
        return self._shards(sorted(chosen), common) if len(chosen) == self.nodes else None

    def any(self) -> Shards | None:
        """Return shards on whatever rails; None where there are too few nodes, or only rails reach each other."""
        if len(self.offers) < self.nodes or any(_is_rail_only(offer.node, self.key) for offer in self.offers):
            return None
        return tuple((offer.node, choose(offer.free, self.per_node)) for offer in self.offers[: self.nodes])

    def _shards(self, chosen: Sequence[int], common: set[int]) -> Shards:
        """Choose the rails on the first node, where NVLink may join some of them, and take the same on all."""
        first = self._rails[chosen[0]]
        taken = choose([first[rail] for rail in sorted(common)], self.per_node)
        rails = [rail for rail in sorted(common) if first[rail] in taken]
        return tuple((self.offers[at].node, tuple(self._rails[at][rail] for rail in rails)) for at in chosen)


def _rails(offer: Offer, key: GroupKey) -> Mapping[int, Device]:
    """Say which free device is on which rail: that of the nearest port, else a card's own number."""
    attached = _attached(offer.node, key)
    near = {gpu: port.rail for port in (attached.usable_ports if attached else ()) for gpu in port.near_gpus}
    told = {near.get(device.id, _number(device, place)): device for place, device in enumerate(offer.free)}
    # Where several cards share a rail, as with fewer ports than cards, only their numbers tell them apart.
    return told if len(told) == len(offer.free) else {_number(d, place): d for place, d in enumerate(offer.free)}


def _number(device: Device, place: int) -> int:
    return place if device.index is None else device.index


def _attached(node: Node, key: GroupKey) -> Attachment | None:
    return next((each for each in node.fabrics if key.kind is Kind.FABRIC and each.name == key.name), None)


def _is_rail_only(node: Node, key: GroupKey) -> bool:
    attached = _attached(node, key)
    return attached is not None and attached.rail_only


def spans(
    candidates: Iterator[Offer], *, nodes: int, per_node: int, fabric: str | None
) -> tuple[GroupKey, Shards] | None:
    """Return the first group in which enough nodes offer enough, an NVLink domain before a fabric.

    `candidates` come best first. Nodes of equal rails are taken before better ones whose rails differ.
    """
    buckets: dict[GroupKey, Bucket] = {}
    found: dict[Kind, tuple[GroupKey, Shards]] = {}
    for offer in candidates:
        for key in groups_of(offer.node, fabric):
            bucket = buckets.setdefault(key, Bucket(key, per_node, nodes))
            if key.kind not in found and (shards := bucket.add(offer)):
                found[key.kind] = (key, shards)
        if Kind.NVLINK in found or (Kind.FABRIC in found and not _any_domain(buckets)):
            break
    aligned = found.get(Kind.NVLINK) or found.get(Kind.FABRIC)
    return aligned or next(((key, shards) for key, bucket in buckets.items() if (shards := bucket.any())), None)


def _any_domain(buckets: Mapping[GroupKey, Bucket]) -> bool:
    return any(key.kind is Kind.NVLINK for key in buckets)


# --- why not ------------------------------------------------------------------------------------------------------


class Reach:
    """Which of the nodes that could take a shard reach each other."""

    def __init__(self, able: Sequence[Node], profile: Profile) -> None:
        self.many = Counter(key for node in able for key in groups_of(node, profile.fabric))
        self._identities: dict[str, set[str]] = {}
        for key in self.many:
            if key.kind is Kind.FABRIC:
                self._identities.setdefault(key.name, set()).add(key.identity)

    def strangers(self, key: GroupKey) -> tuple[str, ...]:
        """Tell which other networks were given the same name."""
        return tuple(sorted(self._identities.get(key.name, set()) - {key.identity})) if key.kind is Kind.FABRIC else ()


def alone(node: Node, reach: Reach, profile: Profile) -> Iterator[Refusal]:
    """Say why a node that could take a shard finds too few others."""
    for key in groups_of(node, profile.fabric):
        there = reach.many[key]
        if there >= profile.nodes:
            yield RailsApart(key.name, profile.nodes, profile.devices // profile.nodes)
            continue
        yield FabricShort(key.name or "NVLink", key.identity, profile.nodes, there)
        if strangers := reach.strangers(key):
            yield FabricIdentity(key.name, key.identity, strangers)
