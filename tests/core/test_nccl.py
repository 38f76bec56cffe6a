"""What NCCL is told for a fabric: exact names, and nothing left to guess."""

import msgspec
import pytest

from llmgw.core import nccl
from llmgw.core.hardware.fabrics import AttachedPort, Attachment
from llmgw.core.hardware.gpus import FabricState, Gpu, GpuFabric
from llmgw.core.hardware.network import LinkLayer
from llmgw.core.nccl import WHY, NoEnvironment

IB = Attachment(
    name="compute",
    link_layer=LinkLayer.INFINIBAND,
    ports=(
        AttachedPort(name="mlx5_1:1", usable=True),
        AttachedPort(name="mlx5_2:1", usable=False, why="no light"),
        AttachedPort(name="mlx5_10:2", usable=True),
    ),
    interface="eth0",
    address="10.0.0.5",
)


def environment(*asked):
    return nccl.environment(*asked)


def change(**facts):
    return msgspec.structs.replace(IB, **facts)


def test_adapters_and_interfaces_are_named_exactly():
    assert environment(IB) == {
        "NCCL_IB_HCA": "=mlx5_1:1,mlx5_10:2",
        "NCCL_SOCKET_IFNAME": "=eth0",
        "GLOO_SOCKET_IFNAME": "eth0",
        "NCCL_SOCKET_FAMILY": "AF_INET",
        "NCCL_MNNVL_ENABLE": "0",
    }


@pytest.mark.parametrize(
    ("indexes", "told"),
    [
        ((3, 3), {"NCCL_IB_GID_INDEX": "3"}),
        ((3, 5), {"NCCL_IB_ROCE_VERSION_NUM": "2", "NCCL_IB_ADDR_FAMILY": "AF_INET"}),
        ((3, None), {"NCCL_IB_ROCE_VERSION_NUM": "2", "NCCL_IB_ADDR_FAMILY": "AF_INET"}),
    ],
)
def test_roce_is_told_its_address_where_all_ports_have_it_alike(indexes, told):
    ports = tuple(AttachedPort(name=f"mlx5_{n}:1", usable=True, gid_index=index) for n, index in enumerate(indexes))
    found = environment(change(link_layer=LinkLayer.ETHERNET, ports=ports))
    assert {name: value for name, value in found.items() if "GID" in name or "ROCE" in name or "ADDR" in name} == told


def test_rails_keep_to_themselves():
    assert environment(change(rail_only=True))["NCCL_CROSS_NIC"] == "0"


def test_ipv6_is_said():
    assert environment(change(address="fd00::5"))["NCCL_SOCKET_FAMILY"] == "AF_INET6"


def test_nvlink_between_nodes_is_used_where_all_cards_are_in_one_domain():
    member = GpuFabric(state=FabricState.COMPLETED, status="success", cluster_uuid="dc6e", clique_id=1)
    cards = (Gpu(uuid="a", fabric=member), Gpu(uuid="b", fabric=member))
    assert environment(IB, cards)["NCCL_MNNVL_ENABLE"] == "1"
    assert environment(IB, cards)["NCCL_CUMEM_ENABLE"] == "1"
    assert environment(IB, (*cards, Gpu(uuid="c")))["NCCL_MNNVL_ENABLE"] == "0"


@pytest.mark.parametrize(
    ("fabric", "reason"),
    [
        (change(ports=()), "no usable port"),
        (change(unusable="two masters"), "two masters"),
        (change(interface=None), "no interface"),
        (change(interface="lo"), "lo leads to no other node"),
        (change(interface="docker0"), "docker0 leads to no other node"),
        (change(interface="br-1a2b"), "br-1a2b leads to no other node"),
    ],
)
def test_what_leads_nowhere_is_refused(fabric, reason):
    told = environment(fabric)
    assert isinstance(told, NoEnvironment)
    assert reason in told.text()
    assert told.cure()


def test_every_variable_has_its_reason():
    roce = change(link_layer=LinkLayer.ETHERNET, rail_only=True)
    assert set(environment(IB)) | set(environment(roce)) <= set(WHY)
