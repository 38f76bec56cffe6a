"""Makes a graph of what ibnetdiscover tells, and finds what is odd about the fabric."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec

from llmgw.core.hardware.findings import Problem, cut
from llmgw.core.hardware.graph import (
    FabricGraph,
    FreePort,
    GraphHost,
    GraphLink,
    GraphNode,
    HostPort,
    LinkEnd,
    NodeKind,
)
from llmgw.core.hardware.network import Port
from workers import tools
from workers.fabric import oddities, rails
from workers.fabric.netdiscover import Heard, HeardFree, HeardLid, HeardLink, HeardNode, listen
from workers.ports import Machine, ToolResult
from workers.settings import NodeSettings

TOOL: Final = "ibnetdiscover"
_KINDS: Final = MappingProxyType({"S": NodeKind.SWITCH, "R": NodeKind.ROUTER})
_AGGREGATION: Final = re.compile(r"\bAggregation Node\b", re.IGNORECASE)
_MANAGED: Final = re.compile(r"^MF0;([^:;]+):")
"""How switches with a management system describe themselves: `MF0;leaf01:MQM8700/U1`."""
_OF_HOST: Final = re.compile(r"^(\S+)\s+(HCA-\d+|(?:mlx|ib|roce|hfi|qib|hns|bnxt|irdma)\w+)$", re.IGNORECASE)
_LANE_GBPS: Final[Mapping[str, float]] = MappingProxyType(
    {
        "SDR": 2.5,
        "DDR": 5.0,
        "QDR": 10.0,
        "FDR10": 10.0,
        "FDR": 14.0,
        "EDR": 25.0,
        "HDR": 50.0,
        "NDR": 100.0,
        "XDR": 200.0,
    }
)


def scan(machine: Machine, settings: NodeSettings, port: Port) -> tuple[FabricGraph | None, Problem | None]:
    """Walk over the fabric that a port is on; takes minutes on a large one and loads its subnet manager.

    A walk that broke off gives what it had told by then, and a problem.
    """
    answer = tools.ask(machine, settings, TOOL, "-C", port.hca, "-P", str(port.port))
    graph = parse(answer.out)
    if answer.ok and graph.nodes:
        return graph, None
    return (graph if graph.nodes else None), _unknown(port, answer)


def _unknown(port: Port, answer: ToolResult) -> Problem:
    fact = f"fabric of {port.name}"
    said = answer.err.strip() or answer.out.strip() or answer.problem
    why, text = _why(answer, said)
    return Problem(code=f"{TOOL}.{why}", fact=fact, text=f"{fact} is not known as a whole: {text}", literal=cut(said))


def _why(answer: ToolResult, said: str) -> tuple[str, str]:
    if answer.problem == "not found":
        return "missing", f"{TOOL} is not installed: install {tools.TOOLS[TOOL].package}"
    if answer.problem.startswith("held up"):
        return "held-up", answer.problem
    if answer.problem.startswith("no answer"):
        return "timeout", f"{answer.problem}; allow more by `tool_limits_s`"
    if "is ib_umad module loaded" in said:
        return "not-allowed", "the kernel module ib_umad is not loaded: `modprobe ib_umad`"
    if answer.problem or re.search(r"UMAD|permission|not permitted|failed to open", said, re.IGNORECASE):
        return "not-allowed", "/dev/infiniband/umad* may be opened by root alone; run it as root"
    if answer.ok:
        return "garbage", f"{TOOL} names no node"
    return "exit", f"{TOOL} ended with {answer.code}"


def parse(text: str) -> FabricGraph:
    """Read ibnetdiscover's topology, or its report by ports; whatever makes no sense is counted and left out."""
    heard = list(listen(text))
    told = [each for each in heard if each is not None]
    nodes = _nodes(told)
    links, clashes = _links(told, nodes)
    hosts = _hosts(nodes.values(), links)
    has_rails, crossed = rails.look(hosts)
    return FabricGraph(
        source="ports" if _is_by_ports(text) else "topology",
        nodes=tuple(nodes.values()),
        links=links,
        free_ports=tuple(FreePort(guid=each.guid, port=each.port) for each in told if isinstance(each, HeardFree)),
        hosts=hosts,
        has_rails=has_rails,
        findings=oddities.find(nodes, links, clashes, [each for each in told if isinstance(each, HeardLid)], crossed),
        unread_lines=heard.count(None),
    )


def _is_by_ports(text: str) -> bool:
    return re.search(r"^(?:CA|SW|RT) +\d", text, re.MULTILINE) is not None


# --- nodes --------------------------------------------------------------------------------------------------------


def _nodes(told: Iterable[Heard]) -> dict[str, GraphNode]:
    """Join what the lines say of each node, its own before its neighbours', in the order in which they are named."""
    found: dict[str, HeardNode] = {}
    for each in told:
        if isinstance(each, HeardNode):
            before = found.get(each.guid)
            found[each.guid] = each if before is None else _joined(before, each)
    return {guid: _node(each) for guid, each in found.items()}


def _joined(before: HeardNode, after: HeardNode) -> HeardNode:
    better, other = (after, before) if after.is_own and not before.is_own else (before, after)
    return better._replace(
        letter=other.letter if better.letter == "?" else better.letter,
        description=better.description or other.description,
        ports=better.ports if better.ports is not None else other.ports,
        lid=better.lid or other.lid,
        attributes=better.attributes or other.attributes,
    )


def _node(heard: HeardNode) -> GraphNode:
    is_aggregation = _AGGREGATION.search(heard.description) is not None
    kind = NodeKind.AGGREGATION if is_aggregation else _KINDS.get(heard.letter, NodeKind.ADAPTER)
    managed = _MANAGED.match(heard.description)
    host, hca = _host(heard.description) if kind is NodeKind.ADAPTER else (None, None)
    told = dict(heard.attributes)
    system = told.get("sysimgguid")
    return GraphNode(
        guid=heard.guid,
        kind=kind,
        name=managed[1].strip() if managed else heard.description,
        description=heard.description,
        host=host,
        hca=hca,
        system_guid=f"0x{system.removeprefix('0x'):0>16}" if system else None,
        vendor_id=told.get("vendid"),
        device_id=told.get("devid"),
        ports=heard.ports,
        lid=heard.lid or None,
    )


def _host(description: str) -> tuple[str | None, str | None]:
    """Split `host01 mlx5_0`; a description that is the product's tells no host, one word alone is the host's."""
    found = _OF_HOST.match(description)
    if found:
        return found[1], found[2]
    is_host = bool(description) and " " not in description and not oddities.is_default(description)
    return (description if is_host else None), None


# --- links --------------------------------------------------------------------------------------------------------


def _links(told: Iterable[Heard], nodes: Mapping[str, GraphNode]) -> tuple[tuple[GraphLink, ...], tuple[LinkEnd, ...]]:
    """Join the two accounts of each link, and name the ends that are said to have two neighbours."""
    found: dict[tuple[tuple[str, int], tuple[str, int]], GraphLink] = {}
    neighbours: dict[tuple[str, int], set[tuple[str, int]]] = defaultdict(set)
    for each in (each for each in told if isinstance(each, HeardLink)):
        link = _link(each, nodes)
        key = (link.a.guid, link.a.port), (link.b.guid, link.b.port)
        found[key] = _merged(found[key], link) if key in found else link
        neighbours[key[0]].add(key[1])
        neighbours[key[1]].add(key[0])
    clashes = tuple(LinkEnd(guid=guid, port=port) for (guid, port), those in neighbours.items() if len(those) > 1)
    return tuple(found.values()), clashes


def _link(heard: HeardLink, nodes: Mapping[str, GraphNode]) -> GraphLink:
    def order(end: LinkEnd) -> tuple[bool, str, int]:
        return nodes[end.guid].kind is not NodeKind.SWITCH, end.guid, end.port

    a, b = sorted((heard.here, heard.there), key=order)
    return GraphLink(a=a, b=b, width=heard.width, speed=heard.speed, gbps=_gbps(heard))


def _gbps(heard: HeardLink) -> float | None:
    lane = _LANE_GBPS.get(heard.speed or "")
    return heard.width * lane if heard.width and lane else None


def _merged(one: GraphLink, other: GraphLink) -> GraphLink:
    return msgspec.structs.replace(
        one,
        a=_end(one.a, other.a),
        b=_end(one.b, other.b),
        width=one.width or other.width,
        speed=one.speed or other.speed,
        gbps=one.gbps or other.gbps,
    )


def _end(one: LinkEnd, other: LinkEnd) -> LinkEnd:
    return msgspec.structs.replace(one, port_guid=one.port_guid or other.port_guid, lid=one.lid or other.lid)


# --- hosts --------------------------------------------------------------------------------------------------------


def _hosts(nodes: Iterable[GraphNode], links: Sequence[GraphLink]) -> tuple[GraphHost, ...]:
    """Gather adapters by the host that they name, with the switch that each of their ports is on."""
    by_guid = {node.guid: node for node in nodes}
    found: dict[str, list[tuple[tuple[object, ...], str, str, str | None]]] = defaultdict(list)
    for link in links:
        for end, peer in ((link.a, link.b), (link.b, link.a)):
            node = by_guid[end.guid]
            if node.host:
                leaf = peer.guid if by_guid[peer.guid].kind is NodeKind.SWITCH else None
                name = f"{node.hca or node.guid}:{end.port}"
                found[node.host].append((rails.natural(name), name, end.guid, leaf))
    return tuple(
        GraphHost(
            name=host,
            ports=tuple(
                HostPort(rail=rail, name=name, guid=guid, leaf=leaf)
                for rail, (_, name, guid, leaf) in enumerate(sorted(found[host], key=lambda port: port[:3]))
            ),
        )
        for host in sorted(found, key=rails.natural)
    )
