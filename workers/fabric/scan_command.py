"""`llmgw-node fabric-scan`: walks over the InfiniBand fabric that a port is on, and prints it as a graph."""

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from llmgw.core.hardware.findings import Finding, Problem, Severity
from llmgw.core.hardware.graph import FabricGraph, GraphLink, GraphNode, LinkEnd, NodeKind
from llmgw.core.hardware.network import LinkLayer, Port
from workers.fabric.graph import scan
from workers.fabric.oddities import called
from workers.ports import Machine
from workers.settings import NodeSettings

DONE, FAILED, BAD_USAGE = 0, 1, 2


class Scanned(msgspec.Struct, frozen=True, kw_only=True):
    """What a scan came to."""

    port: str
    """Where it began: `mlx5_0:1`."""
    graph: FabricGraph | None = None
    problem: Problem | None = None
    """Why there is no graph, or why it is not whole."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    parser.add_argument("--hca", metavar="X", help="the adapter to begin at; the first active one, without it")
    parser.add_argument("--port", type=int, default=1, metavar="N", help="its port (%(default)s)")
    parser.add_argument("--json", action="store_true", help="print the graph as JSON")


def run(arguments: argparse.Namespace, machine: Machine, settings: NodeSettings, ports: Sequence[Port]) -> int:
    """Scan once: 0 for a whole graph without a failure, 1 for any other, 2 for a port that it cannot begin at."""
    port = _chosen(arguments, ports)
    if isinstance(port, str):
        print(f"llmgw-node: {port}", file=sys.stderr)
        return BAD_USAGE
    graph, problem = scan(machine, settings, port)
    if arguments.json:
        told = Scanned(port=port.name, graph=graph, problem=problem)
        print(msgspec.json.format(msgspec.json.encode(told)).decode())
    else:
        print("\n".join([*(lines(graph) if graph else []), *([problem.text] if problem else [])]))
    fails = any(finding.severity is Severity.FAIL for finding in graph.findings) if graph else True
    return FAILED if fails or problem else DONE


def _chosen(arguments: argparse.Namespace, ports: Sequence[Port]) -> Port | str:
    """Return where to begin, or what is wrong with it."""
    fit = [port for port in ports if port.link_layer is LinkLayer.INFINIBAND and port.is_active]
    names = ", ".join(port.name for port in fit) or "none"
    if arguments.hca is None:
        return fit[0] if fit else "there is no active InfiniBand port on this node to begin at"
    name = arguments.hca if ":" in arguments.hca else f"{arguments.hca}:{arguments.port}"
    port = next((port for port in ports if port.name == name), None)
    if port is None:
        return f"there is no port {name} on this node; of InfiniBand and active are: {names}"
    if port not in fit:
        layer = port.link_layer.value if port.link_layer else "of no known kind"
        return f"port {name} is {layer} and {port.state or 'in no known state'}; of InfiniBand and active are: {names}"
    return port


# --- text ---------------------------------------------------------------------------------------------------------


def lines(graph: FabricGraph) -> Iterator[str]:
    """Say how large it is, what each switch is connected with, which rails there are, and what is odd."""
    yield ", ".join(
        [
            f"{graph.count(NodeKind.SWITCH)} switches",
            f"{len(graph.hosts)} hosts with a name",
            f"{graph.count(NodeKind.ADAPTER)} adapters",
            f"{len(graph.links)} links",
            *([f"{graph.count(NodeKind.AGGREGATION)} for aggregation"] if graph.count(NodeKind.AGGREGATION) else []),
            *([f"{graph.count(NodeKind.ROUTER)} routers"] if graph.count(NodeKind.ROUTER) else []),
            *([f"{len(graph.free_ports)} ports without a neighbour"] if graph.source == "ports" else []),
        ]
    )
    nodes = {node.guid: node for node in graph.nodes}
    yield from _switches(graph, nodes)
    yield from _rails(graph, nodes)
    yield from (_finding(finding) for finding in graph.findings)
    if graph.unread_lines:
        yield f"{graph.unread_lines} lines of ibnetdiscover make no sense and are left out"


def _switches(graph: FabricGraph, nodes: Mapping[str, GraphNode]) -> Iterator[str]:
    ends: dict[str, list[tuple[int, LinkEnd, GraphLink]]] = defaultdict(list)
    for link in graph.links:
        ends[link.a.guid].append((link.a.port, link.b, link))
        ends[link.b.guid].append((link.b.port, link.a, link))
    for switch in (node for node in graph.nodes if node.kind is NodeKind.SWITCH):
        yield f"{called(switch)}" + (f", lid {switch.lid}" if switch.lid else "")
        for port, peer, link in sorted(ends[switch.guid], key=lambda end: end[0]):
            rate = f"{link.width or '?'}x {link.speed or '?'}"
            yield f"  {port:3}  {rate:9} {nodes[peer.guid].name or peer.guid} port {peer.port}"


def _rails(graph: FabricGraph, nodes: Mapping[str, GraphNode]) -> Iterator[str]:
    if not graph.has_rails:
        return
    leaves: dict[int, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for port in (port for host in graph.hosts for port in host.ports if port.leaf):
        leaves[port.rail][str(port.leaf)] += 1
    for rail in sorted(leaves):
        told = ", ".join(f"{nodes[leaf].name or leaf} ({count} hosts)" for leaf, count in leaves[rail].items())
        yield f"rail {rail}: {told}"


def _finding(finding: Finding) -> str:
    return f"{finding.severity.upper():5} {finding.code}: {finding.text}"
