"""A fleet from a file."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.core.engines.needs import NEEDS
from llmgw.core.units import GIB, Bytes
from llmgw.core.validation.fleet import DEVICE_KEYS, FABRIC_KEYS, NODE_KEYS, fleet_from_document
from llmgw.core.world import DeviceKind, Node


def nodes(*raw):
    told = [node for node in fleet_from_document({"nodes": list(raw)}) if isinstance(node, Node)]
    assert told, fleet_from_document({"nodes": list(raw)})
    return told


def problems(raw):
    return [(each.field, each.code) for each in fleet_from_document(raw) if not isinstance(each, Node)]


def test_a_name_is_enough():
    (node,) = nodes({"name": "n1"})
    assert (node.name, node.devices, node.engines, node.cordoned) == ("n1", (), frozenset(NEEDS), False)


def test_many_alike_are_numbered():
    assert [node.name for node in nodes({"name": "dgx", "count": 10})] == [f"dgx-{n:02}" for n in range(1, 11)]
    assert [node.name for node in nodes({"name": "dgx", "count": 1})] == ["dgx-1"]


@pytest.mark.parametrize("told", ["8 x h100-80g", "8x h100-80g", "8 × h100-80g", {"class": "h100-80g", "count": 8}])
def test_devices_in_a_word_or_at_length(told):
    (node,) = nodes({"name": "n1", "devices": [told]})
    assert [(d.id, d.device_class, d.memory, d.kind) for d in node.devices] == [
        (f"gpu-{n}", "h100-80g", 80 * GIB, DeviceKind.GPU) for n in range(8)
    ]


def test_all_that_can_be_said_of_devices():
    (node,) = nodes(
        {
            "name": "n1",
            "devices": [
                {"class": "h100-80g", "count": 2, "nvlink": True, "domain": "rack-1.0"},
                {"class": "l40s-45g", "memory": "44.5GiB", "unhealthy": "off the bus"},
                "2 x a100-80g-mig-3g.40gb",
                {"class": "cpu", "memory": "64GiB", "count": 4},
            ],
        }
    )
    h100, _, l40s, mig, _, cpu = node.devices
    assert (h100.nvlink, h100.domain) == ("gpu-0", "rack-1.0")
    assert (l40s.id, l40s.memory, l40s.unhealthy) == ("gpu-2", Bytes(44 * GIB + GIB // 2), "off the bus")
    assert (mig.id, mig.kind, mig.memory) == ("mig-3", DeviceKind.MIG, 40 * GIB)
    assert (cpu.id, cpu.slots, cpu.memory) == ("cpu", 4, 64 * GIB)


def test_a_node_s_surroundings():
    fabrics = ["storage", {"name": "compute", "identity": "sm:0x1", "rail_only": True}]
    (node,) = nodes({"name": "n1", "fabrics": fabrics, "labels": {"rack": "a"}, "cordoned": True, "disk_free": "2TiB"})
    assert [(f.name, f.identities, f.rail_only) for f in node.fabrics] == [
        ("storage", (), False),
        ("compute", ("sm:0x1",), True),
    ]
    assert (dict(node.labels), node.cordoned, node.disk_free) == ({"rack": "a"}, True, 2048 * GIB)


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        (None, [("", "type.wrong")]),
        ({}, [("nodes", "key.missing")]),
        ({"nodes": [{}]}, [("nodes[0].name", "key.missing")]),
        ({"nodes": [{"name": "a"}, {"name": "a"}]}, [("nodes", "name.twice")]),
        ({"nodes": [{"name": "a", "count": 0}]}, [("nodes[0].count", "number.range")]),
        ({"nodes": [{"name": "a", "gpus": 8}]}, [("nodes[0].gpus", "key.unknown")]),
        ({"nodes": [{"name": "a", "devices": ["8 x h100"]}]}, [("nodes[0].devices[0].memory", "key.missing")]),
        (
            {"nodes": [{"name": "a", "devices": [3]}]},
            [
                ("nodes[0].devices[0]", "type.wrong"),
                ("nodes[0].devices[0].class", "key.missing"),
                ("nodes[0].devices[0].memory", "key.missing"),
            ],
        ),
        ({"nodes": [{"name": "a", "cordoned": "yes"}]}, [("nodes[0].cordoned", "type.wrong")]),
    ],
)
def test_what_is_wrong_is_told_with_its_place(raw, found):
    assert problems(raw) == found


keys = st.sampled_from([*NODE_KEYS, *DEVICE_KEYS, *FABRIC_KEYS, "nodes"])
anything = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 40) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=5),
    max_leaves=16,
)


@given(anything)
def test_whatever_stands_there_is_a_fleet_or_problems(raw):
    assert all(isinstance(each, Node) for each in fleet_from_document({"nodes": raw})) or problems({"nodes": raw})
