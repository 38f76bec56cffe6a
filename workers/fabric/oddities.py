"""Finds what is odd about a fabric that was scanned: identities told twice, slow links, names that say nothing."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from llmgw.core.hardware.findings import Finding, Severity
from llmgw.core.hardware.graph import GraphLink, GraphNode, LinkEnd, NodeKind
from workers.fabric.netdiscover import HeardLid
from workers.fabric.rails import Crossed

_DEFAULT: Final = re.compile(
    r"Mellanox Tech|ConnectX|InfiniHost|Infiniscale|SwitchIB|SwitchX|^Quantum|Voltaire|QLogic|Topspin|^MT\d{4,}"
    r"|^HCA-\d+$|^mlx\d_\d+$|^localhost\b|^\(none\)|^MF0;switch-[0-9a-f]{6}:",
    re.IGNORECASE,
)
_SLOW: Final = 0.99
_NAMED: Final = 10
"""So many are named of those that have nothing but their product's name."""


def is_default(description: str) -> bool:
    """Tell whether a description is the product's, alike on all that were sold."""
    return not description or _DEFAULT.search(description) is not None


def find(
    nodes: Mapping[str, GraphNode],
    links: Sequence[GraphLink],
    clashes: Iterable[LinkEnd],
    lids: Iterable[HeardLid],
    crossed: Iterable[Crossed],
) -> tuple[Finding, ...]:
    """Return what was found, the most serious first."""
    found = [
        *_twice_connected(nodes, clashes),
        *_lids_twice(nodes, lids),
        *_slow(nodes, links),
        *_crossed(nodes, crossed),
        *_alike(nodes.values()),
        *_nameless(nodes.values()),
    ]
    return tuple(sorted(found, key=lambda finding: finding.severity.rank))


def called(node: GraphNode) -> str:
    """Name a node for a person."""
    return f"{node.name} ({node.guid})" if node.name else node.guid


# --- identities ---------------------------------------------------------------------------------------------------


def _twice_connected(nodes: Mapping[str, GraphNode], clashes: Iterable[LinkEnd]) -> Iterator[Finding]:
    for end in clashes:
        text = f"port {end.port} of {called(nodes[end.guid])} has two neighbours: its GUID is there twice"
        yield Finding(
            "graph.guid-twice",
            text,
            severity=Severity.FAIL,
            about=end.guid,
            costs="traffic for one of them goes to the other",
            cure="give each virtual function and each repaired adapter a GUID of its own, then restart the manager",
        )


def _lids_twice(nodes: Mapping[str, GraphNode], lids: Iterable[HeardLid]) -> Iterator[Finding]:
    owners: dict[int, set[tuple[str, int]]] = defaultdict(set)
    for each in lids:
        for lid in range(each.lid, each.lid + 2**each.lmc):
            owners[lid].add((each.guid, each.port))
    for lid, those in sorted(owners.items()):
        if len(those) > 1:
            names = ", ".join(called(nodes[guid]) + (f" port {port}" if port else "") for guid, port in sorted(those))
            yield Finding(
                "graph.lid-twice",
                f"LID {lid} is given to {names}",
                severity=Severity.FAIL,
                about=str(lid),
                costs="traffic for one of them goes to the other",
                cure="see that the fabric has one master subnet manager, and have it sweep anew",
            )


# --- links --------------------------------------------------------------------------------------------------------


def _slow(nodes: Mapping[str, GraphNode], links: Sequence[GraphLink]) -> Iterator[Finding]:
    """Compare each link with the fastest between devices of the same models: a bad lane trains without an error."""
    fastest: dict[tuple[str, str], GraphLink] = {}
    rated = [(_kind(nodes, link), link) for link in links if link.gbps]
    for kind, link in rated:
        best = fastest.get(kind)
        if best is None or (link.gbps or 0) > (best.gbps or 0):
            fastest[kind] = link
    for kind, link in rated:
        best = fastest[kind]
        if NodeKind.AGGREGATION not in _kinds(nodes, link) and (link.gbps or 0) < (best.gbps or 0) * _SLOW:
            where = " to ".join(f"{called(nodes[end.guid])} port {end.port}" for end in (link.a, link.b))
            text = (
                f"the link of {where} runs at {link.width}x {link.speed}, others like it at {best.width}x {best.speed}"
            )
            yield Finding(
                "graph.link-slow",
                text,
                about=f"{link.a.guid}:{link.a.port}",
                costs="all that goes over it is slower",
                cure="see to the cable and to both of its ends, and to the speed that they are allowed",
            )


def _kind(nodes: Mapping[str, GraphNode], link: GraphLink) -> tuple[str, str]:
    one, other = sorted(f"{node.kind} {node.device_id}" for node in (nodes[link.a.guid], nodes[link.b.guid]))
    return one, other


def _kinds(nodes: Mapping[str, GraphNode], link: GraphLink) -> set[NodeKind]:
    return {nodes[end.guid].kind for end in (link.a, link.b)}


def _crossed(nodes: Mapping[str, GraphNode], crossed: Iterable[Crossed]) -> Iterator[Finding]:
    for each in crossed:
        leaf = called(nodes[str(each.port.leaf)])
        text = f"{each.host} {each.port.name} is rail {each.port.rail}, and on {leaf}, which serves rail {each.usual}"
        yield Finding(
            "graph.rail-crossed",
            text,
            about=each.port.guid,
            costs="traffic within the rail takes the way over the spine, or none where rails are apart",
            cure="exchange the cables; or correct the order of `ports` in the node's settings",
        )


# --- names --------------------------------------------------------------------------------------------------------


def _alike(nodes: Iterable[GraphNode]) -> Iterator[Finding]:
    by_name: dict[str, list[GraphNode]] = defaultdict(list)
    for node in nodes:
        if not is_default(node.description) and node.kind is not NodeKind.AGGREGATION:
            by_name[node.description].append(node)
    for name, those in by_name.items():
        # an adapter with two ports has one name, and in a report by ports two GUIDs that follow each other
        if len(those) > 1 and not _are_one(those):
            guids = ", ".join(node.guid for node in those)
            yield Finding(
                "graph.name-twice",
                f"{len(those)} nodes are called {name}: {guids}",
                about=those[0].guid,
                costs="what is told of one may be about another",
                cure="give each host a name of its own; rdma-ndd tells it to the fabric",
            )


def _are_one(nodes: Sequence[GraphNode]) -> bool:
    """Tell whether nodes without a known model are the ports of one adapter, whose GUIDs are next to each other."""
    if any(node.device_id or node.kind is NodeKind.SWITCH for node in nodes):
        return False
    numbers = sorted(int(node.guid, 16) for node in nodes)
    return numbers[-1] - numbers[0] < 2 * len(numbers)


def _nameless(nodes: Iterable[GraphNode]) -> Iterator[Finding]:
    those = [node for node in nodes if node.kind is not NodeKind.AGGREGATION and is_default(node.description)]
    if those:
        more = f" and {len(those) - _NAMED} more" if len(those) > _NAMED else ""
        guids = ", ".join(node.guid for node in those[:_NAMED])
        yield Finding(
            "graph.name-default",
            f"{len(those)} nodes tell their product instead of their name: {guids}{more}",
            severity=Severity.INFO,
            costs="findings about them name no host",
            cure="run rdma-ndd on hosts (rdma-core), and give switches a host name",
        )
