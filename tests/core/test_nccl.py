"""What NCCL is told for a fabric: exact names, the same rails on all nodes, and nothing left to guess."""

import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.core import nccl
from llmgw.core.hardware.fabrics import AttachedPort, Attachment
from llmgw.core.hardware.gpus import FabricState, Gpu, GpuFabric
from llmgw.core.hardware.network import LinkLayer
from llmgw.core.nccl import Member, NoEnvironment, NoGidIndex, explain, gid_index

IB = Attachment(
    name="compute",
    link_layer=LinkLayer.INFINIBAND,
    ports=(
        AttachedPort(name="mlx5_1:1", usable=True),
        AttachedPort(name="mlx5_2:1", usable=False, why="sees no light", rail=1),
        AttachedPort(name="mlx5_10:2", usable=True, rail=2),
    ),
    interface="eth0",
    address="10.0.0.5",
)
GB200 = GpuFabric(state=FabricState.COMPLETED, status="success", cluster_uuid="dc6e", clique_id=1)


def environment(*asked):
    return nccl.environment(*asked)


def environments(members):
    return nccl.environments(members)


def change(**facts):
    return msgspec.structs.replace(IB, **facts)


def roce(*indexes, **facts):
    ports = tuple(
        AttachedPort(name=f"mlx5_{n}:1", usable=True, gid_index=index, rail=n, **facts)
        for n, index in enumerate(indexes)
    )
    return change(link_layer=LinkLayer.ETHERNET, ports=ports)


def of_rails(*rails, cards=8, rail_only=False):
    """A node with a card beside each of eight ports, of which these rails can be used."""
    ports = tuple(
        AttachedPort(name=f"mlx5_{n}:1", usable=n in rails, rail=n, near_gpus=(f"GPU-{n}",)) for n in range(cards)
    )
    return change(ports=ports, rail_only=rail_only)


def cards(*numbers):
    return tuple(Gpu(uuid=f"GPU-{number}") for number in numbers)


def hcas(told):
    assert not isinstance(told, NoEnvironment)
    return told["NCCL_IB_HCA"]


def test_adapters_and_interfaces_are_named_exactly():
    assert environment(IB) == {
        "NCCL_NET": "IB",
        "NCCL_IB_HCA": "=mlx5_1:1,mlx5_10:2",
        "NCCL_SOCKET_IFNAME": "=eth0",
        "GLOO_SOCKET_IFNAME": "eth0",
        "NCCL_SOCKET_FAMILY": "AF_INET",
        "NCCL_MNNVL_ENABLE": "0",
    }


def test_ports_are_named_in_the_order_of_the_rails():
    assert hcas(environment(change(ports=IB.ports[::-1]))) == "=mlx5_1:1,mlx5_10:2"


def test_ports_whose_kind_is_not_known_leave_the_kind_of_network_open():
    assert "NCCL_NET" not in environment(change(link_layer=None))


# --- RoCE


@pytest.mark.parametrize(
    ("fabric", "told"),
    [
        (roce(3, 3), {"NCCL_IB_GID_INDEX": "3"}),
        (roce(0), {"NCCL_IB_GID_INDEX": "0"}),
        (roce(3, 5), {"NCCL_IB_ROCE_VERSION_NUM": "2", "NCCL_IB_ADDR_FAMILY": "AF_INET"}),
        (roce(3, None), {"NCCL_IB_ROCE_VERSION_NUM": "2", "NCCL_IB_ADDR_FAMILY": "AF_INET"}),
        (
            roce(3, 5, identity="roce:100:10.8.0.0/16"),
            {
                "NCCL_IB_ROCE_VERSION_NUM": "2",
                "NCCL_IB_ADDR_FAMILY": "AF_INET",
                "NCCL_IB_ADDR_RANGE": "10.8.0.0/16",
            },
        ),
        (
            roce(3, 5, identity="roce::fd00:8::/64"),
            {"NCCL_IB_ROCE_VERSION_NUM": "2", "NCCL_IB_ADDR_FAMILY": "AF_INET6", "NCCL_IB_ADDR_RANGE": "fd00:8::/64"},
        ),
        (
            roce(3, 5, identity="roce:100:nonsense"),
            {"NCCL_IB_ROCE_VERSION_NUM": "2", "NCCL_IB_ADDR_FAMILY": "AF_INET"},
        ),
    ],
)
def test_roce_is_told_its_address_by_index_or_by_what_tells_it_from_others(fabric, told):
    found = environment(fabric)
    assert {name: value for name, value in found.items() if re.search("GID|ROCE|ADDR", name)} == told


def test_infiniband_needs_no_index():
    assert not any("GID" in name for name in environment(change(ports=roce(3, 3).ports)))


def test_no_index_for_all_ports_is_said_with_each_of_them():
    no = gid_index(roce(3, None).ports)
    assert isinstance(no, NoGidIndex)
    assert no.text() == "the RoCE v2 address has no one index on all ports: mlx5_0:1 3, mlx5_1:1 none"
    assert no.cure()


# --- rails


def test_rails_that_reach_only_their_like_keep_to_themselves():
    assert environment(change(rail_only=True))["NCCL_CROSS_NIC"] == "0"


def test_a_shard_takes_the_ports_nearest_to_its_cards():
    assert hcas(environment(of_rails(*range(8)), cards(2, 3))) == "=mlx5_2:1,mlx5_3:1"


def test_a_shard_of_all_cards_takes_all_ports():
    fabric = of_rails(0, 1, cards=2)
    far = AttachedPort(name="mlx5_9:1", usable=True, rail=2)
    assert hcas(environment(change(ports=(*fabric.ports, far)), cards(0, 1))) == "=mlx5_0:1,mlx5_1:1,mlx5_9:1"


def test_a_card_whose_own_port_is_down_makes_the_shard_take_all():
    assert hcas(environment(of_rails(0, 1, cards=3), cards(1, 2))) == "=mlx5_0:1,mlx5_1:1"


def test_a_card_that_has_no_name_makes_the_shard_take_all():
    assert hcas(environment(of_rails(0, 1, 2, cards=3), (*cards(1), Gpu()))) == "=mlx5_0:1,mlx5_1:1,mlx5_2:1"


def test_one_node_of_a_rail_only_fabric_takes_all_ports_since_its_peers_are_unknown():
    assert hcas(environment(of_rails(0, 1, 2, cards=3, rail_only=True), cards(1))) == "=mlx5_0:1,mlx5_1:1,mlx5_2:1"


@pytest.mark.parametrize("rail_only", [True, False])
def test_all_nodes_of_a_replica_take_the_same_rails(rail_only):
    told = environments(
        (
            Member(of_rails(*range(8), rail_only=rail_only), cards(0, 1), "gpu01"),
            Member(of_rails(*range(1, 8), rail_only=rail_only), cards(4, 5), "gpu02"),
        )
    )
    assert [hcas(each) for each in told] == ["=mlx5_1:1,mlx5_4:1,mlx5_5:1"] * 2


def test_rails_are_told_by_their_place_and_not_by_the_adapters_name():
    other = change(ports=tuple(AttachedPort(name=f"ibs{n}:1", usable=True, rail=n) for n in range(3)))
    told = environments((Member(other), Member(of_rails(1, 2, cards=3))))
    assert [hcas(each) for each in told] == ["=ibs1:1,ibs2:1", "=mlx5_1:1,mlx5_2:1"]


def test_nodes_without_a_rail_in_common_cannot_use_a_fabric_of_separate_rails():
    members = (Member(of_rails(0, 1, rail_only=True), (), "gpu01"), Member(of_rails(2, rail_only=True), (), "gpu02"))
    told = environments(members)
    assert isinstance(told, NoEnvironment)
    assert told.code == "nccl.rails"
    assert told.text().endswith("no usable rail in common: gpu01 has 0, 1; gpu02 has 2")
    assert told.cure()


def test_nodes_without_a_rail_in_common_take_what_they_have_where_rails_reach_each_other():
    told = environments((Member(of_rails(0, 1)), Member(of_rails(2))))
    assert [hcas(each) for each in told] == ["=mlx5_0:1,mlx5_1:1", "=mlx5_2:1"]


# --- NVLink


def test_nvlink_between_nodes_is_used_where_all_cards_are_in_one_domain():
    mates = (Gpu(uuid="a", fabric=GB200), Gpu(uuid="b", fabric=GB200))
    assert environment(IB, mates)["NCCL_MNNVL_ENABLE"] == "1"
    assert environment(IB, mates)["NCCL_CUMEM_ENABLE"] == "1"
    assert environment(IB, (*mates, Gpu(uuid="c")))["NCCL_MNNVL_ENABLE"] == "0"
    assert environment(IB, (*mates, Gpu(uuid="c", failed="GPU is lost")))["NCCL_MNNVL_ENABLE"] == "1"


def test_nvlink_between_nodes_is_not_tried_where_two_nodes_are_in_two_domains():
    other = msgspec.structs.replace(GB200, clique_id=2)
    members = (Member(IB, (Gpu(uuid="a", fabric=GB200),)), Member(IB, (Gpu(uuid="b", fabric=other),)))
    told = environments(members)
    assert {each["NCCL_MNNVL_ENABLE"] for each in told} == {"0"}


def test_nvlink_between_nodes_is_not_tried_where_the_cards_of_one_are_not_known():
    members = (Member(IB, (Gpu(uuid="a", fabric=GB200),)), Member(IB))
    assert {each["NCCL_MNNVL_ENABLE"] for each in environments(members)} == {"0"}


# --- where they meet


def test_ipv6_is_said():
    assert environment(change(address="fd00::5"))["NCCL_SOCKET_FAMILY"] == "AF_INET6"


def test_nodes_that_would_meet_by_different_families_are_refused():
    told = environments((Member(IB, (), "gpu01"), Member(change(address="fd00::5"), (), "gpu02")))
    assert isinstance(told, NoEnvironment)
    assert told.code == "nccl.address-families"
    assert "gpu01 has 10.0.0.5, gpu02 has fd00::5" in told.text()
    assert told.cure()


@pytest.mark.parametrize(
    ("fabric", "code", "reason"),
    [
        (change(ports=()), "nccl.no-port", "no usable port: it has none"),
        (change(ports=IB.ports[1:2]), "nccl.no-port", "no usable port: mlx5_2:1 sees no light"),
        (change(unusable="two masters"), "nccl.fabric-unusable", "two masters"),
        (change(interface=None), "nccl.interface", "no interface for the nodes to meet by"),
        (change(interface="lo"), "nccl.interface", "lo leads to no other node"),
        (change(interface="docker0"), "nccl.interface", "docker0 leads to no other node"),
        (change(interface="docker_gwbridge"), "nccl.interface", "docker_gwbridge leads to no other node"),
        (change(interface="br-1a2b3c4d5e6f"), "nccl.interface", "br-1a2b3c4d5e6f leads to no other node"),
        (change(interface="eth0,eth1"), "nccl.interface", "eth0,eth1 leads to no other node"),
        (change(address=None), "nccl.interface", "eth0 has no address that other nodes reach"),
        (change(address="127.0.0.1"), "nccl.interface", "eth0 has 127.0.0.1 only"),
        (change(address="169.254.3.4/16"), "nccl.interface", "eth0 has 169.254.3.4 only"),
        (change(address="fe80::1%eth0"), "nccl.interface", "eth0 has fe80::1 only"),
    ],
)
def test_what_leads_nowhere_is_refused(fabric, code, reason):
    told = environment(fabric)
    assert isinstance(told, NoEnvironment)
    assert told.code == code
    assert told.text().startswith("no shard can use fabric compute: ")
    assert reason in told.text()
    assert told.cure()


@pytest.mark.parametrize("interface", ["br0", "br-ex", "bond0.100", "ibp13s0", "enp1s0f0np0", "login0"])
def test_interfaces_that_only_sound_alike_are_taken(interface):
    assert environment(change(interface=interface))["NCCL_SOCKET_IFNAME"] == f"={interface}"


# --- always


def test_every_variable_has_its_reason():
    mnnvl = environment(IB, (Gpu(uuid="a", fabric=GB200),))
    apart = environment(msgspec.structs.replace(roce(3, 5, identity="roce:1:10.0.0.0/8"), rail_only=True))
    for told in (environment(IB), environment(roce(3)), mnnvl, apart):
        assert [(name, value) for name, value, _ in explain(told)] == list(told.items())
        assert all(why for _, _, why in explain(told))
    assert dict(explain(mnnvl)[-2:][0]._asdict())["why"] != explain(environment(IB))[-1].why


NAMES = st.sampled_from(["mlx5_0", "mlx5_1", "mlx5_10", "mlx5_bond_0", "ibp13s0f0", "irdma0"])
PORTS = st.builds(
    AttachedPort,
    name=st.builds("{}:{}".format, NAMES, st.integers(1, 2)),
    usable=st.booleans(),
    gid_index=st.none() | st.integers(0, 20),
    rail=st.integers(0, 9),
    near_gpus=st.lists(st.sampled_from(["GPU-0", "GPU-1", "GPU-2"]), unique=True).map(tuple),
    identity=st.none() | st.sampled_from(["sm:0x1", "roce:1:10.0.0.0/24", "roce", "roce:::", "roce:1:fd00::/64"]),
)
FABRICS = st.builds(
    Attachment,
    name=st.just("compute"),
    link_layer=st.none() | st.sampled_from(LinkLayer),
    ports=st.lists(PORTS, max_size=8, unique_by=lambda port: port.name).map(tuple),
    interface=st.none() | st.sampled_from(["eth0", "lo", "docker0", "br-12ab", "ib0", ""]) | st.text(max_size=6),
    address=st.none() | st.sampled_from(["10.0.0.1", "fd00::1", "127.0.0.1", "fe80::2", "::1"]) | st.text(max_size=6),
    rail_only=st.booleans(),
    unusable=st.none() | st.just("two masters"),
)
GPUS = st.lists(st.sampled_from(["GPU-0", "GPU-1", "GPU-2", "GPU-9"]), unique=True).map(
    lambda uuids: tuple(Gpu(uuid=uuid) for uuid in uuids)
)


@given(st.lists(st.builds(Member, FABRICS, GPUS), min_size=1, max_size=4))
def test_whatever_the_nodes_are_only_what_is_there_and_leads_somewhere_is_named(members):
    told = environments(members)
    assert told == environments(members)
    if isinstance(told, NoEnvironment):
        assert told.text()
        assert told.cure()
        return
    for member, each in zip(members, told, strict=True):
        named = each["NCCL_IB_HCA"].removeprefix("=").split(",")
        usable = {port.name for port in member.fabric.usable_ports}
        assert named
        assert set(named) <= usable
        assert each["NCCL_SOCKET_IFNAME"] == f"={each['GLOO_SOCKET_IFNAME']}"
        assert each["GLOO_SOCKET_IFNAME"] not in {"lo", "docker0", "br-12ab", ""}
        assert all(re.fullmatch(r"[A-Z0-9_]+", name) for name in each)
        assert all(explained.why for explained in explain(each))


@given(st.lists(st.builds(Member, FABRICS, GPUS), min_size=2, max_size=4))
def test_nodes_of_separate_rails_name_the_same_rails(members):
    told = environments(members)
    if isinstance(told, NoEnvironment) or not any(member.fabric.rail_only for member in members):
        return
    taken = [
        {port.rail for port in member.fabric.usable_ports if port.name in each["NCCL_IB_HCA"][1:].split(",")}
        for member, each in zip(members, told, strict=True)
    ]
    assert all(rails == taken[0] for rails in taken)


CARDS = st.lists(st.sampled_from(["GPU-0", "GPU-1", "GPU-2"]), unique=True)
NEAR = st.lists(st.tuples(st.booleans(), CARDS), min_size=1, max_size=12).map(
    lambda ports: change(
        ports=tuple(
            AttachedPort(name=f"mlx5_{rail}:1", usable=usable, rail=rail, near_gpus=tuple(near))
            for rail, (usable, near) in enumerate(ports)
        )
    )
)


@given(NEAR, GPUS)
def test_a_shard_takes_the_adapters_nearest_to_its_cards_or_all(fabric, gpus):
    told = environment(fabric, gpus)
    assert environment(fabric, gpus) == told
    if isinstance(told, NoEnvironment):
        assert fabric.usable_ports == ()
        return
    exact, *named = re.split("[=,]", told["NCCL_IB_HCA"])
    usable = {port.name: set(port.near_gpus) for port in fabric.usable_ports}
    mine = {gpu.uuid for gpu in gpus}
    assert exact == ""
    assert set(named) <= usable.keys()
    assert {name for name, near in usable.items() if near & mine} <= set(named), "none that is near is left out"
    is_served = all(any(card in near for near in usable.values()) for card in mine)
    if not mine or not is_served:
        assert set(named) == usable.keys(), "where a card has none nearby, none is left out"
    if set(named) != usable.keys():
        assert all(usable[name] & mine for name in named), "and none that is far is taken"
