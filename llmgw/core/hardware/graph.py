"""An InfiniBand fabric as a graph: switches, adapters of hosts, the links between them, and what is odd about them."""

from enum import StrEnum

import msgspec

from llmgw.core.hardware.findings import Finding


class NodeKind(StrEnum):
    """What a node of the graph is."""

    SWITCH = "switch"
    ADAPTER = "adapter"
    """Of a host."""
    ROUTER = "router"
    AGGREGATION = "aggregation"
    """Of a switch: what computes for SHARP; it looks like an adapter and is no host."""


class GraphNode(msgspec.Struct, frozen=True, kw_only=True):
    """A switch, or one adapter of a host."""

    guid: str
    """16 hexadecimal digits after `0x`; of the port where a report by ports tells no other."""
    kind: NodeKind
    name: str = ""
    """What a person calls it: `leaf01`, `host01 mlx5_0`; as it is told where it is nothing but the product."""
    description: str = ""
    """As the node tells it, without blanks around it."""
    host: str | None = None
    """Null where the description does not tell it."""
    hca: str | None = None
    """`mlx5_0`, `HCA-1`."""
    system_guid: str | None = None
    vendor_id: str | None = None
    """`0x2c9`."""
    device_id: str | None = None
    ports: int | None = None
    lid: int | None = None
    """Of a switch; an adapter has one for each port, which its links tell."""


class LinkEnd(msgspec.Struct, frozen=True, kw_only=True):
    """One end of a link."""

    guid: str
    """Of the node."""
    port: int
    port_guid: str | None = None
    lid: int | None = None


class GraphLink(msgspec.Struct, frozen=True, kw_only=True):
    """A cable; of a switch and an adapter, the switch is `a`."""

    a: LinkEnd
    b: LinkEnd
    width: int | None = None
    """Lanes in use."""
    speed: str | None = None
    """`HDR`, `NDR`, …"""
    gbps: float | None = None
    """Of all lanes, in 10⁹ bits per second."""


class FreePort(msgspec.Struct, frozen=True, kw_only=True):
    """A port without a neighbour; only a report by ports tells them."""

    guid: str
    port: int


class HostPort(msgspec.Struct, frozen=True, kw_only=True):
    """A port of a host, and the switch that it is on."""

    rail: int
    """Its place among the host's ports on this fabric, by adapter and port."""
    name: str
    """`mlx5_0:1`."""
    guid: str
    leaf: str | None = None
    """GUID of the switch; null for a cable between two hosts."""


class GraphHost(msgspec.Struct, frozen=True, kw_only=True):
    """A host that its adapters name."""

    name: str
    ports: tuple[HostPort, ...] = ()


class FabricGraph(msgspec.Struct, frozen=True, kw_only=True):
    """All that a scan has told."""

    source: str = "topology"
    """`topology`, or `ports` for a report by ports, which tells no models of devices."""
    nodes: tuple[GraphNode, ...] = ()
    links: tuple[GraphLink, ...] = ()
    free_ports: tuple[FreePort, ...] = ()
    hosts: tuple[GraphHost, ...] = ()
    has_rails: bool = False
    """True where port N of hosts that are alike is on a switch of its own."""
    findings: tuple[Finding, ...] = ()
    """The most serious first."""
    unread_lines: int = 0
    """Lines that make no sense; more than none is news of a format, or of noise."""

    def count(self, kind: NodeKind) -> int:
        """Return how many nodes are of a kind."""
        return sum(node.kind is kind for node in self.nodes)
