"""The environment that NCCL and Gloo get for the shards of a replica on a fabric: exact names, nothing left to guess.

Shards of one replica are looked at together: which rails they take, and whether NVLink joins them, is right only when
it is the same on all their nodes.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from types import MappingProxyType
from typing import ClassVar, Final, NamedTuple

from llmgw.core.hardware.fabrics import AttachedPort, Attachment
from llmgw.core.hardware.gpus import Gpu
from llmgw.core.hardware.interfaces import is_of_this_host
from llmgw.core.hardware.network import LinkLayer

Variables = Mapping[str, str]

_INTERFACE: Final = re.compile(r"[^\s,^=/]{1,15}")
"""What the kernel allows and NCCL's and Gloo's lists can carry."""


@dataclass(frozen=True, slots=True)
class Member:
    """One shard: how its node is on the fabric, and the cards that it holds there."""

    fabric: Attachment
    gpus: tuple[Gpu, ...] = ()
    """Empty stands for all cards of the node."""
    node: str = ""
    """Named in refusals; empty where only one node is looked at."""

    @property
    def whose(self) -> str:
        """Name the fabric on this node."""
        return f"fabric {self.fabric.name} on {self.node}" if self.node else f"fabric {self.fabric.name}"


# --- refusals -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NoEnvironment:
    """A shard gets none: NCCL would fall back to plain sockets without a word, or hang."""

    code: ClassVar[str] = "nccl.no-environment"
    whose: str
    """The fabric, and the node where several are looked at."""

    def text(self) -> str:
        """Say it in one line."""
        return f"no shard can use {self.whose}"

    def cure(self) -> str:
        """Say what an operator can do."""
        return "see to the fabric's findings: `llmgw-node doctor`"


@dataclass(frozen=True, slots=True)
class FabricUnusable(NoEnvironment):
    """The node itself says that nothing may be placed over the fabric."""

    code: ClassVar[str] = "nccl.fabric-unusable"
    why: str

    def text(self) -> str:
        return f"no shard can use {self.whose}: {self.why}"


@dataclass(frozen=True, slots=True)
class NoUsablePort(NoEnvironment):
    """None of the fabric's adapters carries traffic."""

    code: ClassVar[str] = "nccl.no-port"
    ports: tuple[tuple[str, str], ...]
    """Name and what is wrong with it."""

    def text(self) -> str:
        told = "; ".join(f"{name} {why}".strip() for name, why in self.ports) or "it has none"
        return f"no shard can use {self.whose}: no usable port: {told}"


@dataclass(frozen=True, slots=True)
class WrongInterface(NoEnvironment):
    """Where processes of several nodes would first meet leads to no other node."""

    code: ClassVar[str] = "nccl.interface"
    interface: str | None
    why: str

    def text(self) -> str:
        named = f"{self.interface} " if self.interface else ""
        return f"no shard can use {self.whose}: {named}{self.why}"

    def cure(self) -> str:
        """Name the setting."""
        return "name one with an address that other nodes reach as the fabric's `interface` in the node's settings"


@dataclass(frozen=True, slots=True)
class FamiliesDiffer(NoEnvironment):
    """Some nodes would meet by IPv4, others by IPv6."""

    code: ClassVar[str] = "nccl.address-families"
    addresses: tuple[tuple[str, str], ...]
    """Node and its address."""

    def text(self) -> str:
        told = ", ".join(f"{node or 'a node'} has {address}" for node, address in self.addresses)
        return f"no shard can use {self.whose}: its nodes would meet by IPv4 and by IPv6: {told}"

    def cure(self) -> str:
        """Say what to agree on."""
        return "give all nodes an `interface` with an address of the same family"


@dataclass(frozen=True, slots=True)
class NoCommonRail(NoEnvironment):
    """Only ports of the same number reach each other, and no number is usable on all nodes."""

    code: ClassVar[str] = "nccl.rails"
    rails: tuple[tuple[str, tuple[int, ...]], ...]
    """Node and the rails that are usable there."""

    def text(self) -> str:
        told = "; ".join(f"{node or 'a node'} has {', '.join(map(str, rails))}" for node, rails in self.rails)
        return f"no shard can use {self.whose}: its nodes have no usable rail in common: {told}"

    def cure(self) -> str:
        """Say where to look."""
        return "see to the ports that are down, or to the order of `ports` in the nodes' settings"


@dataclass(frozen=True, slots=True)
class NoGidIndex:
    """No index names the RoCE v2 address of every port, so none is forced: a wrong one fails at the first packet."""

    code: ClassVar[str] = "nccl.gid-index"
    ports: tuple[tuple[str, int | None], ...]
    """Port and the index of its address."""

    def text(self) -> str:
        """Say it in one line."""
        told = ", ".join(f"{name} {'none' if index is None else index}" for name, index in self.ports)
        return f"the RoCE v2 address has no one index on all ports: {told}"

    def cure(self) -> str:
        """Say what goes on all the same, and where it does not."""
        return "NCCL from 2.21 on finds each port's by itself; for an older one give all interfaces as many addresses"


# --- what is told -------------------------------------------------------------------------------------------------


def environment(fabric: Attachment, gpus: Sequence[Gpu] = ()) -> Variables | NoEnvironment:
    """Return the variables of one node for these cards, or for all; what other nodes have is not known here."""
    told = environments((Member(fabric, tuple(gpus)),))
    return told if isinstance(told, NoEnvironment) else told[0]


def environments(members: Sequence[Member]) -> tuple[Variables, ...] | NoEnvironment:
    """Return the variables of each shard of a replica, in the order of the members, or why it cannot run like this.

    The names are of NCCL's user guide. `=` before a list makes its names exact: without it, NCCL takes `mlx5_1` for
    a prefix of `mlx5_10`. `NCCL_NET` keeps it from falling back to sockets.
    """
    if no := next(_refusals(members), None):
        return no
    rails = _rails(members)
    nvlink = _nvlink(members)
    is_rail_only = any(member.fabric.rail_only for member in members)
    cross = {"NCCL_CROSS_NIC": "0"} if is_rail_only else {}
    return tuple({**_of_node(member.fabric, rails), **cross, **nvlink} for member in members)


def _of_node(fabric: Attachment, rails: frozenset[int]) -> dict[str, str]:
    ports = [port for port in _in_order(fabric) if port.rail in rails] or _in_order(fabric)
    family = "AF_INET6" if isinstance(_address(fabric), IPv6Address) else "AF_INET"
    return {
        **({"NCCL_NET": "IB"} if fabric.link_layer else {}),
        "NCCL_IB_HCA": "=" + ",".join(port.name for port in ports),
        "NCCL_SOCKET_IFNAME": f"={fabric.interface}",
        "GLOO_SOCKET_IFNAME": str(fabric.interface),
        "NCCL_SOCKET_FAMILY": family,
        **(_roce(ports) if fabric.link_layer is LinkLayer.ETHERNET else {}),
    }


def _in_order(fabric: Attachment) -> list[AttachedPort]:
    return sorted(fabric.usable_ports, key=lambda port: port.rail)


# --- whether ------------------------------------------------------------------------------------------------------


def _refusals(members: Sequence[Member]) -> Iterator[NoEnvironment]:
    for member in members:
        yield from _of_fabric(member)
    families = {type(_address(member.fabric)) for member in members}
    if len(families) > 1:
        addresses = tuple((member.node, member.fabric.address or "") for member in members)
        yield FamiliesDiffer(_together(members), addresses)
    if any(member.fabric.rail_only for member in members) and not _common(members):
        rails = tuple((member.node, tuple(sorted(_usable(member)))) for member in members)
        yield NoCommonRail(_together(members), rails)


def _of_fabric(member: Member) -> Iterator[NoEnvironment]:
    fabric = member.fabric
    if fabric.unusable:
        yield FabricUnusable(member.whose, fabric.unusable)
    if not fabric.usable_ports:
        yield NoUsablePort(member.whose, tuple((port.name, port.why) for port in fabric.ports))
    if why := _leads_nowhere(fabric):
        yield WrongInterface(member.whose, fabric.interface, why)


def _leads_nowhere(fabric: Attachment) -> str:
    if not fabric.interface:
        return "no interface for the nodes to meet by"
    if is_of_this_host(fabric.interface) or not _INTERFACE.fullmatch(fabric.interface):
        return "leads to no other node"
    address = _address(fabric)
    if address is None:
        return "has no address that other nodes reach"
    if address.is_loopback or address.is_link_local or address.is_unspecified or address.is_multicast:
        return f"has {address} only, which other nodes do not reach"
    return ""


def _address(fabric: Attachment) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address((fabric.address or "").partition("/")[0].partition("%")[0])
    except ValueError:
        return None


def _together(members: Sequence[Member]) -> str:
    return members[0].whose if len(members) == 1 else f"fabric {members[0].fabric.name}"


# --- which --------------------------------------------------------------------------------------------------------


def _rails(members: Sequence[Member]) -> frozenset[int]:
    """Choose the rails that are usable on all nodes and near to the cards of any; empty lets each node take its own.

    On a fabric whose rails do not reach each other, a list that differed between nodes would leave ports without a
    peer; on any other, it would leave some with two. A single node of such a fabric takes all: its peers' are unknown.
    """
    common = _common(members)
    if len(members) == 1 and members[0].fabric.rail_only:
        return common
    near = frozenset(rail for member in members for rail in _near(member))
    return near & common or common


def _usable(member: Member) -> frozenset[int]:
    return frozenset(port.rail for port in member.fabric.usable_ports)


def _common(members: Sequence[Member]) -> frozenset[int]:
    return frozenset.intersection(*(_usable(member) for member in members)) if members else frozenset()


def _near(member: Member) -> frozenset[int]:
    """Return the rails nearest to the shard's cards; all where it holds all cards, or where one has no nearest port."""
    ports = member.fabric.usable_ports
    cards = {gpu.uuid for gpu in member.gpus}
    known = {uuid for port in member.fabric.ports for uuid in port.near_gpus}
    reached = {uuid for port in ports for uuid in port.near_gpus}
    if not cards or known <= cards or not cards <= reached:
        return _usable(member)
    return frozenset(port.rail for port in ports if cards & set(port.near_gpus))


# --- RoCE, NVLink -------------------------------------------------------------------------------------------------


def gid_index(ports: Sequence[AttachedPort]) -> int | NoGidIndex:
    """Return the index at which every one of these ports of one node has its RoCE v2 address."""
    indexes = {port.gid_index for port in ports}
    only = next(iter(indexes)) if len(indexes) == 1 else None
    return NoGidIndex(tuple((port.name, port.gid_index) for port in ports)) if only is None else only


def _roce(ports: Sequence[AttachedPort]) -> dict[str, str]:
    """Name the address by its index, else by what tells it from others: NCCL from 2.21 on looks for it by these."""
    index = gid_index(ports)
    if not isinstance(index, NoGidIndex):
        return {"NCCL_IB_GID_INDEX": str(index)}
    subnets = [_subnet(port) for port in ports]
    is_six = bool(subnets) and all(isinstance(subnet, IPv6Network) for subnet in subnets)
    told = {"NCCL_IB_ROCE_VERSION_NUM": "2", "NCCL_IB_ADDR_FAMILY": "AF_INET6" if is_six else "AF_INET"}
    is_one = len(set(subnets)) == 1 and subnets[0] is not None
    return {**told, "NCCL_IB_ADDR_RANGE": str(subnets[0])} if is_one else told


def _subnet(port: AttachedPort) -> IPv4Network | IPv6Network | None:
    """Read the subnet out of a RoCE port's identity: `roce:<vlan>:<subnet>`."""
    kind, _, rest = (port.identity or "").partition(":")
    try:
        return ip_network(rest.partition(":")[2], strict=False) if kind == "roce" else None
    except ValueError:
        return None


def _nvlink(members: Sequence[Member]) -> dict[str, str]:
    """Let NCCL share memory over NVLink with other nodes where all cards are in one such domain, and else not try.

    Of a shard whose cards are not named it is not known where they are.
    """
    gpus = [gpu for member in members for gpu in member.gpus if not gpu.failed]
    domains = {gpu.fabric.domain if gpu.fabric else None for gpu in gpus}
    is_joined = len(domains) == 1 and None not in domains and all(member.gpus for member in members)
    return {"NCCL_MNNVL_ENABLE": "1", "NCCL_CUMEM_ENABLE": "1"} if is_joined else {"NCCL_MNNVL_ENABLE": "0"}


# --- why ----------------------------------------------------------------------------------------------------------


class Explained(NamedTuple):
    """One variable, and why it is as it is."""

    name: str
    value: str
    why: str


WHY: Final[Mapping[str, str]] = MappingProxyType(
    {
        "NCCL_NET": "the fabric or nothing: NCCL would else fall back to sockets without a word",
        "NCCL_IB_HCA": "exactly the ports of this fabric that carry traffic, in the order of the rails",
        "NCCL_SOCKET_IFNAME": "where the ranks first meet; exact",
        "GLOO_SOCKET_IFNAME": "the same for the groups on the CPU; Gloo knows no `=`",
        "NCCL_SOCKET_FAMILY": "the family of that interface's address",
        "NCCL_IB_GID_INDEX": "the RoCE v2 address that all ports have at this index",
        "NCCL_IB_ROCE_VERSION_NUM": "the ports have it at different indexes: NCCL looks for it by itself, from 2.21 on",
        "NCCL_IB_ADDR_FAMILY": "among addresses of this family",
        "NCCL_IB_ADDR_RANGE": "in the subnet that all ports are in",
        "NCCL_CROSS_NIC": "only ports of the same number reach each other",
        "NCCL_MNNVL_ENABLE": "the cards are in one NVLink domain over several nodes",
        "NCCL_MNNVL_ENABLE=0": "the cards are in no NVLink domain over several nodes",
        "NCCL_CUMEM_ENABLE": "sharing memory over NVLink between nodes needs it",
    }
)
"""Name of a variable, or `name=value`, → why it is set."""


def explain(variables: Variables) -> tuple[Explained, ...]:
    """Return each variable with its value and its reason; empty for one that is not ours."""
    return tuple(
        Explained(name, value, WHY.get(f"{name}={value}", WHY.get(name, ""))) for name, value in variables.items()
    )
