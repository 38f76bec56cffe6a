"""ibnetdiscover to a graph: both of its formats in the shapes of many years, and what is odd about a fabric."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.core.hardware.findings import Severity
from llmgw.core.hardware.graph import LinkEnd, NodeKind
from llmgw.core.hardware.network import LinkLayer, Port, PortState
from tests.fakes.machine import FakeMachine
from tests.workers.fabric.fabric_text import Fabric, railed
from workers.fabric.graph import parse, scan
from workers.fabric.netdiscover import listen
from workers.ports import ToolResult
from workers.settings import NodeSettings

PORT = Port(hca="mlx5_0", link_layer=LinkLayer.INFINIBAND, state=PortState.ACTIVE, physical_state="link-up")
TOPOLOGY = """\
#
# Topology file: generated on Tue Dec  1 10:00:00 2026
#
# Initiated from node 0cc4de0300aabb00 port 0cc4de0300aabb01

vendid=0x2c9
devid=0xd2f0
sysimgguid=0xcc4de03008a3f36
switchguid=0xcc4de03008a3f30(cc4de03008a3f30)
Switch\t41 "S-0cc4de03008a3f30"\t\t# "MF0;leaf01:MQM8700/U1" enhanced port 0 lid 387 lmc 0
[1]\t"H-0cc4de0300aabb00"[1](cc4de0300aabb01) \t\t# "gpu01 mlx5_0" lid 1181 4xHDR
[2]\t"S-0cc4de03008a4000"[7]\t\t# "MF0;spine01:MQM8700/U1" lid 12 4xHDR s=4 w=2 v=3
[41]\t"H-0cc4de03008a3f38"[1](cc4de03008a3f38) \t\t# "Mellanox Technologies Aggregation Node" lid 390 4xHDR

vendid=0x2c9
devid=0x101b
sysimgguid=0xcc4de0300aabb00
caguid=0xcc4de0300aabb00
Ca\t1 "H-0cc4de0300aabb00"\t\t# "gpu01 mlx5_0"
[1](cc4de0300aabb01) \t"S-0cc4de03008a3f30"[1]\t\t# lid 1181 lmc 0 "MF0;leaf01:MQM8700/U1" lid 387 4xHDR
"""
LEAF, GPU01, SPINE = "0x0cc4de03008a3f30", "0x0cc4de0300aabb00", "0x0cc4de03008a4000"


def named(graph):
    return {node.name: node for node in graph.nodes}


def codes(graph):
    return [finding.code for finding in graph.findings]


def test_a_topology_is_nodes_and_links():
    graph = parse(TOPOLOGY)
    leaf, host, spine = (named(graph)[name] for name in ("leaf01", "gpu01 mlx5_0", "spine01"))
    assert (leaf.guid, leaf.kind, leaf.lid, leaf.ports) == (LEAF, NodeKind.SWITCH, 387, 41)
    assert (leaf.system_guid, leaf.vendor_id, leaf.device_id) == ("0x0cc4de03008a3f36", "0x2c9", "0xd2f0")
    assert (host.kind, host.host, host.hca, host.device_id) == (NodeKind.ADAPTER, "gpu01", "mlx5_0", "0x101b")
    assert (spine.guid, spine.kind, spine.device_id) == (SPINE, NodeKind.SWITCH, None)
    assert (len(graph.links), graph.source, graph.unread_lines, graph.findings) == (3, "topology", 0, ())


def test_a_link_that_both_ends_tell_is_one():
    (link,) = (link for link in parse(TOPOLOGY).links if link.b.guid == GPU01)
    assert link.a == LinkEnd(guid=LEAF, port=1, lid=387)
    assert link.b == LinkEnd(guid=GPU01, port=1, port_guid="0x0cc4de0300aabb01", lid=1181)
    assert (link.width, link.speed, link.gbps) == (4, "HDR", 200.0)


def test_what_computes_in_a_switch_is_no_host():
    graph = parse(TOPOLOGY)
    assert graph.count(NodeKind.AGGREGATION) == 1
    assert [host.name for host in graph.hosts] == ["gpu01"]


def test_a_host_tells_the_switch_of_each_port():
    (host,) = parse(TOPOLOGY).hosts
    assert [(port.rail, port.name, port.guid, port.leaf) for port in host.ports] == [(0, "mlx5_0:1", GPU01, LEAF)]


def test_a_graph_is_json():
    graph = parse(TOPOLOGY)
    assert msgspec.json.decode(msgspec.json.encode(graph), type=type(graph)) == graph


def test_links_below_a_head_that_makes_no_sense_are_nobodys():
    graph = parse(TOPOLOGY.replace('Ca\t1 "H-0cc4de0300aabb00"', 'Ca\t1 "H-0cc4d'))
    assert (graph.unread_lines, codes(graph)) == (2, []), "the leaf's port 1 has no second neighbour"
    assert len(graph.links) == 3


@pytest.mark.parametrize(
    "line",
    [
        '[1]\t"H-0cc4de0300aabb00"[1]\t\t# "gpu01" lid 1181',
        '[1][ext 3]\t"H-0cc4de0300aabb00"[1][ext 2](cc4de0300aabb01) \t\t# "gpu01 HCA-1" lid 1181 4xNDR',
        '[1]\t"H-0xCC4DE0300AABB00"[1](0xcc4de0300aabb01)\t\t# "gpu01 mlx5_0" lid 1181 ??x???',
        '[1](cc4de03008a3f30) \t"R-0cc4de0300aabb00"[1] (cc4de0300aabb01) \t\t# lid 3 lmc 0 "router" lid 9 4xEDR (scp)',
        '[1]\t"H-0cc4de0300aabb00"[1](cc4de0300aabb01)',
        '[1]\t"?-0cc4de0300aabb00"[1]\t\t# "a "quoted" name" lid 4 12xQDR slot 2',
    ],
)
def test_ports_are_read_in_every_shape(line):
    header = 'Switch  24 "S-0cc4de03008a3f30"         # "ISR9024 Voltaire" base port 0 lid 6 lmc 0'
    graph = parse(f"Chassis 1 (guid 0x8f10400411a09)\n\n# Spine Nodes\n{header}\n{line}\n")
    (link,) = graph.links
    assert {link.a.guid, link.b.guid} == {LEAF, GPU01}
    assert graph.unread_lines == 0


@pytest.mark.parametrize(
    ("line", "names", "is_free"),
    [
        (
            "CA   134  1 0x0cc4de0300aabb01 4x EDR - SW  1719 10 0x0cc4de03008a3f30 ( 'gpu01 HCA-1' - 'leaf 01' )",
            ["gpu01 HCA-1", "leaf 01"],
            False,
        ),
        (
            "SW  1719 10 0x0cc4de03008a3f30 4x EDR - CA 134 1 0x0cc4de0300aabb01 ( ' leaf 01 ' - 'gpu01 HCA-1 ' )",
            ["leaf 01", "gpu01 HCA-1"],
            False,
        ),
        (
            "SW  1719 10 0x0cc4de03008a3f30 4x EDR - CA 134 1 0x0cc4de0300aabb01 ( leaf01 - gpu01 HCA-1 )",
            ["leaf01", "gpu01 HCA-1"],
            False,
        ),
        (
            "SW  1719 10 0x0cc4de03008a3f30 4x EDR - RT 134 1 0x0cc4de0300aabb01 ( 'it's leaf' - 'r1' )",
            ["it's leaf", "r1"],
            False,
        ),
        ("SW  2052 37 0x0cc4de03008a3f30 4x ???                                    'leaf 01'", ["leaf 01"], True),
        ("SW    24  1 0x0cc4de03008a3f30 4x SDR                                    ' leaf 02 '", ["leaf 02"], True),
        ("SW    24  1 0x0cc4de03008a3f30 ?? ???                                    leaf03", ["leaf03"], True),
    ],
)
def test_reports_by_ports_are_read_in_every_shape(line, names, is_free):
    graph = parse(line)
    assert [node.name for node in graph.nodes] == names
    assert (len(graph.free_ports), len(graph.links)) == ((1, 0) if is_free else (0, 1))
    assert (graph.source, graph.unread_lines) == ("ports", 0)


def test_both_formats_tell_the_same_fabric():
    fabric = railed(hosts=3, rails=2)
    whole, by_ports = parse(fabric.whole()), parse(fabric.by_ports())
    assert {(node.guid, node.kind, node.name, node.host) for node in whole.nodes} == {
        (node.guid, node.kind, node.name, node.host) for node in by_ports.nodes
    }
    ends = [{(link.a.guid, link.a.port, link.b.guid, link.b.port) for link in each.links} for each in (whole, by_ports)]
    assert ends[0] == ends[1]
    assert whole.hosts == by_ports.hosts
    assert whole.has_rails
    assert by_ports.has_rails
    assert codes(whole) == codes(by_ports) == []


# --- rails


def test_rails_are_seen_and_a_crossed_cable_is_named():
    fabric = railed(hosts=6, rails=4)
    one, other = (cable for cable in fabric.cables if cable.there.description in {"gpu02 mlx5_1", "gpu02 mlx5_2"})
    one.here, other.here = other.here, one.here
    graph = parse(fabric.whole())
    assert graph.has_rails
    assert codes(graph) == ["graph.rail-crossed", "graph.rail-crossed"]
    assert "gpu02 mlx5_1:1 is rail 1, and on leaf03" in graph.findings[0].text
    assert "which serves rail 2" in graph.findings[0].text


def test_hosts_with_all_ports_on_one_switch_have_no_rails():
    fabric = Fabric()
    leaf = fabric.add("S", "leaf01")
    for host in range(4):
        for number in range(2):
            adapter = fabric.add("H", f"gpu{host} mlx5_{number}")
            fabric.join(leaf, host * 2 + number + 1, adapter)
    graph = parse(fabric.whole())
    assert not graph.has_rails
    assert codes(graph) == []


def test_a_host_that_lacks_a_port_is_not_compared_with_the_others():
    fabric = railed(hosts=4, rails=4)
    fabric.cables = [cable for cable in fabric.cables if cable.there.description != "gpu02 mlx5_1"]
    graph = parse(fabric.whole())
    assert graph.has_rails
    assert "graph.rail-crossed" not in codes(graph)


def test_ports_are_counted_as_people_count():
    fabric = Fabric()
    leaf = fabric.add("S", "leaf01")
    for port, number in enumerate((10, 2, 1), start=1):
        fabric.join(leaf, port, fabric.add("H", f"gpu01 mlx5_{number}"))
    (host,) = parse(fabric.whole()).hosts
    assert [port.name for port in host.ports] == ["mlx5_1:1", "mlx5_2:1", "mlx5_10:1"]


# --- what is odd


@pytest.mark.parametrize("form", [Fabric.whole, Fabric.by_ports])
def test_a_lid_that_two_have_is_a_failure(form):
    fabric = railed(hosts=2, rails=2)
    fabric.boxes[-1].lid = fabric.boxes[-2].lid
    graph = parse(form(fabric))
    assert codes(graph) == ["graph.lid-twice"]
    assert graph.findings[0].severity is Severity.FAIL
    assert "gpu02 mlx5_0" in graph.findings[0].text
    assert "gpu02 mlx5_1" in graph.findings[0].text


def test_lids_that_follow_by_a_mask_count_too():
    text = TOPOLOGY.replace("lid 1181 lmc 0", "lid 1180 lmc 2").replace("lid 1181", "lid 1180")
    assert codes(parse(text.replace("lid 12 4x", "lid 1183 4x"))) == ["graph.lid-twice"]


@pytest.mark.parametrize("form", [Fabric.whole, Fabric.by_ports])
def test_a_guid_that_two_have_is_seen_by_its_two_neighbours(form):
    fabric = railed(hosts=3, rails=2)
    twin = fabric.boxes[-1]
    fabric.join(fabric.boxes[0], 30, twin, 1)
    graph = parse(form(fabric))
    assert codes(graph)[0] == "graph.guid-twice"
    assert "gpu03 mlx5_1" in graph.findings[0].text


@pytest.mark.parametrize("rate", [("1x", "HDR"), ("4x", "EDR"), ("2x", "HDR")])
def test_a_link_slower_than_others_of_its_kind_is_named(rate):
    fabric = railed(hosts=3, rails=2)
    fabric.cables[-1].rate = rate
    graph = parse(fabric.whole())
    assert codes(graph) == ["graph.link-slow"]
    assert f"runs at {' '.join(rate)}, others like it at 4x HDR" in graph.findings[0].text


def test_links_of_another_kind_of_adapter_may_be_slower():
    fabric = railed(hosts=3, rails=2)
    old = fabric.add("H", "storage01 mlx5_0", device="0x1013")
    fabric.join(fabric.boxes[1], 20, old, rate=("4x", "EDR"))
    assert codes(parse(fabric.whole())) == []


def test_a_speed_that_is_not_known_is_not_called_slow():
    fabric = railed(hosts=3, rails=2)
    fabric.cables[-1].rate = ("4x", "???")
    graph = parse(fabric.whole())
    assert codes(graph) == []
    assert [link.gbps for link in graph.links].count(None) == 1


@pytest.mark.parametrize(
    "description",
    [
        "MT4129 ConnectX7   Mellanox Technologies",
        "MT23108 InfiniHost Mellanox Technologies",
        "localhost HCA-1",
        "HCA-1",
        "",
    ],
)
def test_names_that_are_the_products_are_told_once(description):
    fabric = railed(hosts=2, rails=2)
    for number in (20, 21, 22):
        fabric.join(fabric.boxes[1], number, fabric.add("H", description, device="0x101b"))
    graph = parse(fabric.whole())
    assert codes(graph) == ["graph.name-default"]
    assert "3 nodes" in graph.findings[0].text


def test_two_adapters_of_one_name_are_told():
    fabric = railed(hosts=2, rails=2)
    fabric.boxes[-1].description = fabric.boxes[-2].description
    assert codes(parse(fabric.whole())) == ["graph.name-twice"]


def test_two_ports_of_one_adapter_are_no_two_nodes_in_a_report_by_ports():
    lines = [
        f"SW 3 {port} 0x0cc4de03008a3f30 4x EDR - CA 1{port} {port} 0x0cc4de0300aabb0{port} ( 'leaf' - 'gpu1 HCA-1' )"
        for port in (1, 2)
    ]
    graph = parse("\n".join(lines))
    assert codes(graph) == []
    assert [port.name for port in graph.hosts[0].ports] == ["HCA-1:1", "HCA-1:2"]


# --- asking


def asked(answer):
    machine = FakeMachine(programs={"ibnetdiscover": "/sbin/ibnetdiscover"}, tools={"/sbin/ibnetdiscover": answer})
    return *scan(machine, NodeSettings(), PORT), machine


def test_it_begins_at_the_port_that_is_named():
    graph, problem, machine = asked(ToolResult(0, TOPOLOGY))
    assert problem is None
    assert graph is not None
    assert machine.calls == [("/sbin/ibnetdiscover", "-C", "mlx5_0", "-P", "1")]


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (ToolResult(None, problem="no answer within 120 s"), "ibnetdiscover.timeout"),
        (ToolResult(None, problem="held up since 10:00"), "ibnetdiscover.held-up"),
        (ToolResult(None, problem="not allowed: Permission denied"), "ibnetdiscover.not-allowed"),
        (
            ToolResult(255, "", "ibwarn: [9] mad_rpc_open_port: can't open UMAD port (mlx5_0:1)\n"),
            "ibnetdiscover.not-allowed",
        ),
        (
            ToolResult(
                255,
                "/usr/sbin/ibnetdiscover: iberror: failed: discover failed\n",
                "ibwarn: [9] get_abi_version: can't read ABI version from /sys/class/infiniband_mad/abi_version "
                "(No such file or directory): is ib_umad module loaded?\n"
                "ibwarn: [9] mad_rpc_open_port: can't open UMAD port\n",
            ),
            "ibnetdiscover.not-allowed",
        ),
        (ToolResult(255, "", "ibnetdiscover: iberror: failed: discover failed\n"), "ibnetdiscover.exit"),
        (ToolResult(0, ""), "ibnetdiscover.garbage"),
    ],
)
def test_a_fabric_that_cannot_be_walked_has_a_reason(answer, code):
    graph, problem, _ = asked(answer)
    assert graph is None
    assert problem.code == code
    assert problem.text.startswith("fabric of mlx5_0:1 is not known as a whole: ")


def test_a_tool_that_is_missing_names_its_package():
    _, problem = scan(FakeMachine(), NodeSettings(), PORT)
    assert problem
    assert problem.code == "ibnetdiscover.missing"
    assert "infiniband-diags" in problem.text


def test_what_was_told_before_a_walk_broke_off_is_kept():
    graph, problem, _ = asked(ToolResult(None, TOPOLOGY[:500], problem="no answer within 120 s"))
    assert graph.nodes
    assert problem.code == "ibnetdiscover.timeout"


# --- whatever it says


def mangled(text):
    """Cut lines out, cut them off, exchange characters."""
    return st.lists(
        st.tuples(st.sampled_from(text.splitlines()), st.integers(0, 120), st.text(max_size=4), st.integers(0, 120))
    ).map(lambda pieces: "\n".join(line[:at] + more + line[back:] for line, at, more, back in pieces))


def check(text):
    graph = parse(text)
    guids = {node.guid for node in graph.nodes}
    assert {end.guid for link in graph.links for end in (link.a, link.b)} <= guids
    assert {port.guid for port in graph.free_ports} <= guids
    assert {port.guid for host in graph.hosts for port in host.ports} <= guids
    assert all(finding.text and finding.costs for finding in graph.findings)
    assert len({(link.a, link.b) for link in graph.links}) == len(graph.links)
    assert msgspec.json.decode(msgspec.json.encode(graph), type=type(graph)) == graph


@given(st.text())
def test_whatever_is_printed_is_read_or_counted(text):
    check(text)
    assert sum(each is None for each in listen(text)) <= len(text.splitlines())


@given(mangled(TOPOLOGY + railed(2, 2).by_ports()))
def test_whatever_is_mangled_is_read_or_counted(text):
    check(text)


def test_numbers_without_end_are_no_numbers():
    digits = "9" * 5000
    check(f'Switch\t{digits} "S-0cc4de03008a3f30"\t\t# "x" base port 0 lid {digits} lmc {digits}')
    check(f"CA {digits} {digits} 0x0cc4de0300aabb01 {digits}x EDR - SW 1 1 0x0cc4de03008a3f30 ( 'a' - 'b' )")
    check(TOPOLOGY.replace("lmc 0", f"lmc {digits}"))
    check(TOPOLOGY.replace("lmc 0", "lmc 999"))


def test_json_of_a_graph_holds_plain_names():
    told = json.loads(msgspec.json.encode(parse(TOPOLOGY)))
    assert told["nodes"][0]["kind"] == "switch"
    assert set(told) >= {"nodes", "links", "hosts", "findings"}
