"""Declared fabrics against the ports that there are, and a proposal where nothing is declared."""

import msgspec
import pytest

from llmgw.core.hardware.fabrics import DeclaredFabric
from llmgw.core.hardware.findings import Severity
from llmgw.core.hardware.network import Gid, LinkLayer, Port, PortState, SubnetManager
from tests.workers.discovery.infiniband.tree import LOCAL, mapped
from workers.discovery.infiniband.fabrics import attach
from workers.discovery.infiniband.gids import ipv4_of
from workers.discovery.infiniband.identity import Interfaces

A, B = (SubnetManager(guid=f"0x{digit * 16}") for digit in "ab")
PORT = Port(
    hca="mlx5_0",
    link_layer=LinkLayer.INFINIBAND,
    state=PortState.ACTIVE,
    physical_state="link-up",
    rate_gbps=400.0,
    lid=5,
    hca_type="MT4129",
    subnet_manager=A,
)
ETH0 = {"lo": ("127.0.0.1/8",), "docker0": ("172.17.0.1/16",), "eth0": ("fe80::1/64", "10.0.0.5/24")}

NOWHERE = Interfaces(ETH0, {})
DECLARED = DeclaredFabric(name="compute", ports=("mlx5_0", "mlx5_1"))
RAILS = {"eth2": ("10.1.0.5/24",), "eth3": ("10.2.0.5/24",), "eth4": ("10.1.0.6/24",)}


def port(number=0, **facts):
    return msgspec.structs.replace(PORT, hca=f"mlx5_{number}", **facts)


def compute(*ports, names=("mlx5_0", "mlx5_1"), addresses=ETH0, **facts):
    around = Interfaces(addresses, dict.fromkeys(addresses, 0))
    told = attach([DeclaredFabric(name="compute", ports=names, **facts)], ports, around)
    (fabric,) = told.attachments
    return fabric, [(finding.code, finding.about) for finding in told.findings]


def test_a_fabric_that_is_well_is_attached():
    fabric, wrong = compute(port(0), port(1))
    assert (len(fabric.usable_ports), fabric.rate_gbps, fabric.unusable, wrong) == (2, 800.0, None, [])
    assert (fabric.interface, fabric.address, fabric.identities) == ("eth0", "10.0.0.5", (f"sm:{A.guid}",))


@pytest.mark.parametrize(
    ("facts", "code"),
    [
        ({"state": PortState.INIT}, "port.no-subnet-manager"),
        ({"state": PortState.DOWN, "physical_state": "polling"}, "port.down"),
        ({"state": PortState.DOWN, "physical_state": "disabled"}, "port.down"),
        ({"lid": 0}, "port.no-subnet-manager"),
        ({"link_layer": LinkLayer.ETHERNET}, "port.gid"),
        ({"is_software": True}, "port.software"),
    ],
)
def test_a_port_that_carries_nothing_is_named(facts, code):
    fabric, wrong = compute(port(0), port(1, **facts))
    assert (code, "mlx5_1:1") in wrong
    assert [each.name for each in fabric.usable_ports] == ["mlx5_0:1"]


def test_a_port_that_is_not_there_is_named():
    assert compute(port(0))[1] == [("port.missing", "mlx5_1:1")]


def test_without_any_port_it_is_not_advertised():
    fabric, wrong = compute()
    assert (fabric.unusable_code, wrong[-1]) == ("fabric.no-port", ("fabric.no-port", "compute"))


def test_two_fabrics_under_one_name_are_caught_by_their_managers():
    fabric, wrong = compute(port(0), port(1, subnet_manager=B))
    assert (fabric.unusable_code, wrong) == ("fabric.identity", [("fabric.identity", "compute")])


def test_a_standby_that_takes_over_does_not_split_a_fabric():
    fabric, wrong = compute(port(0, other_subnet_managers=(B,)), port(1, subnet_manager=B, other_subnet_managers=(A,)))
    assert (fabric.unusable, wrong) == (None, [])


def roce_port(number, netdev, ipv4):
    gid = Gid(index=3, gid=mapped(*map(int, ipv4.split("."))), kind="roce-v2", netdev=netdev, ipv4=ipv4)
    more = {"netdevs": (netdev,), "gids": (gid,), "roce_gid_index": 3, "subnet_manager": None}
    return port(number, link_layer=LinkLayer.ETHERNET, **more)


def test_roce_ports_of_one_network_are_one_fabric():
    fabric, wrong = compute(roce_port(0, "eth2", "10.1.0.5"), roce_port(1, "eth4", "10.1.0.6"), addresses=RAILS)
    assert (fabric.identities, fabric.unusable, wrong) == (("roce:0:10.1.0.0/24",), None, [])


def test_roce_ports_of_two_networks_are_told_and_still_used():
    ports = (roce_port(0, "eth2", "10.1.0.5"), roce_port(1, "eth3", "10.2.0.5"))
    fabric, wrong = compute(*ports, addresses=RAILS)
    assert (fabric.identities, fabric.unusable) == (("roce:0:10.1.0.0/24", "roce:0:10.2.0.0/24"), None)
    assert (len(fabric.usable_ports), wrong) == (2, [("fabric.identity", "compute")])
    (finding,) = attach([DECLARED], ports, Interfaces(RAILS, {"eth2": 0, "eth3": 100})).findings
    assert (finding.severity, finding.excludes) == (Severity.WARN, False)
    assert finding.text.endswith("in different networks under one name: 10.1.0.0/24, 10.2.0.0/24 in VLAN 100")


@pytest.mark.parametrize(
    ("gid", "kind", "why"),
    [
        (mapped(169, 254, 3, 4), "roce-v2", " but 169.254.3.4, which an interface gives itself"),
        (LOCAL, "roce-v2", " but a link-local one"),
        (mapped(10, 1, 0, 5), "roce-v1", ""),
    ],
)
def test_a_roce_port_with_an_address_that_leads_nowhere_is_named(gid, kind, why):
    known = Gid(index=1, gid=gid, kind=kind, netdev="eth2", ipv4=ipv4_of(gid))
    told = attach([DECLARED], [port(0, link_layer=LinkLayer.ETHERNET, gids=(known,))], NOWHERE)
    finding = next(each for each in told.findings if each.code == "port.gid")
    assert finding.text.startswith(f"port mlx5_0:1: has no RoCE v2 address{why}")
    assert finding.text.endswith("address") is not bool(why)


def test_rails_that_are_declared_to_be_apart_may_be_networks_of_their_own():
    ports = (roce_port(0, "eth2", "10.1.0.5"), roce_port(1, "eth3", "10.2.0.5"))
    assert compute(*ports, addresses=RAILS, rail_only=True)[1] == []


def test_layers_are_not_mixed():
    ethernet = port(1, link_layer=LinkLayer.ETHERNET, roce_gid_index=3, subnet_manager=None)
    assert compute(port(0), ethernet)[0].unusable_code == "fabric.mixed"


@pytest.mark.parametrize(("facts", "wanted"), [({"rate_gbps": 100.0}, None), ({}, 800.0)])
def test_a_slow_port_is_told(facts, wanted):
    _, wrong = compute(port(0), port(1, **facts), rate_gbps=wanted)
    assert ("port.slow", "mlx5_1:1") in wrong


@pytest.mark.parametrize(
    ("addresses", "declared", "told"),
    [
        ({"lo": ("127.0.0.1/8",), "docker0": ("172.17.0.1/16",)}, None, (None, None)),
        ({"eth0": ("fe80::1/64",)}, None, (None, None)),
        ({"br-1a2b3c4d5e6f": ("172.18.0.1/16",), "lom1": ("10.0.0.5/24",)}, None, ("lom1", "10.0.0.5")),
        (ETH0 | {"ib0": ("10.1.0.5/24",)}, "ib0", ("ib0", "10.1.0.5")),
        (ETH0, "ib7", (None, None)),
    ],
)
def test_where_ranks_meet_is_never_an_interface_that_leads_nowhere(addresses, declared, told):
    fabric, _ = compute(port(0), port(1), addresses=addresses, interface=declared)
    assert (fabric.interface, fabric.address) == told


def test_a_declared_interface_that_leads_nowhere_is_named():
    assert compute(port(0), port(1), interface="ib7")[1] == [("fabric.interface", "compute")]


def test_without_a_declaration_one_is_proposed_with_a_reason_for_each():
    slow, down = port(1, rate_gbps=100.0), port(2, state=PortState.DOWN, physical_state="polling")
    (proposal,) = attach([], [port(0), slow, down, port(3, is_virtual_function=True)], NOWHERE).proposals
    assert [(each.name, each.taken) for each in proposal.ports] == [
        ("mlx5_0:1", True),
        ("mlx5_1:1", False),
        ("mlx5_2:1", False),
        ("mlx5_3:1", False),
    ]
    assert all(each.reason for each in proposal.ports)
    assert 'ports = ["mlx5_0:1"]' in proposal.declaration


def test_a_machine_without_adapters_has_nothing_to_propose():
    assert attach([], [], NOWHERE) == ((), (), ())
