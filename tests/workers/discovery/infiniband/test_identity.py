"""Which physical fabric a port is on, and where that is not known."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.workers.discovery.infiniband.tree import a_machine, a_port, mapped
from workers.discovery.infiniband import identity, ports

V2 = "RoCE v2"
UEVENT = "/sys/class/net/{}/uevent"
PLAIN = {UEVENT.format("eth2"): "INTERFACE=eth2\nIFINDEX=4\n"}
CONFIG = """VLAN Dev name\t | VLAN ID
Name-Type: VLAN_NAME_TYPE_RAW_PLUS_VID_NO_PAD
eth2.100       | 100  | eth2
"""
TAGGED = {str(identity.VLANS): CONFIG}
OWN = (mapped(10, 1, 0, 5), V2, "eth2")
IN_VLAN = (mapped(10, 1, 0, 5), V2, "eth2.100")


def identified(gid, files, **interfaces):
    machine = a_machine(a_port("mlx5_0", gids=[gid], link_layer="Ethernet"), interfaces=interfaces)
    machine.files = {**machine.files, **files}
    (port,), _ = ports.find(machine)
    return identity.of(port, identity.interfaces(machine, [port]))


@pytest.mark.parametrize(
    ("gid", "files", "interfaces", "told"),
    [
        (OWN, PLAIN, {"eth2": ("fe80::1/64", "10.1.0.5/24")}, "roce:0:10.1.0.0/24"),
        (OWN, TAGGED, {"eth2": ("10.1.0.5/16",)}, "roce:0:10.1.0.0/16"),
        (IN_VLAN, TAGGED, {"eth2": (), "eth2.100": ("10.1.0.5/24",)}, "roce:100:10.1.0.0/24"),
        (
            ("fd00:0008:0000:0000:0000:0000:0000:0005", V2, "eth2"),
            PLAIN,
            {"eth2": ("fd00:8::5/64",)},
            "roce:0:fd00:8::/64",
        ),
        ((mapped(10, 1, 0, 5), V2, None), TAGGED, {"bond0": ("10.1.0.5/24",)}, "roce:0:10.1.0.0/24"),
    ],
)
def test_a_roce_port_is_told_by_vlan_and_subnet_of_its_address(gid, files, interfaces, told):
    assert identified(gid, files, **interfaces) == told


@pytest.mark.parametrize(
    ("gid", "files", "interfaces"),
    [
        (OWN, PLAIN, {}),
        (OWN, PLAIN, {"eth2": ("10.1.0.6/24",)}),
        (OWN, PLAIN, {"eth2": ("nonsense",)}),
        (OWN, PLAIN, {"eth2": ("10.1.0.5/32",)}),
        (OWN, {}, {"eth2": ("10.1.0.5/24",)}),
        (IN_VLAN, {UEVENT.format("eth2.100"): "DEVTYPE=vlan\n"}, {"eth2.100": ("10.1.0.5/24",)}),
        (None, PLAIN, {"eth2": ("10.1.0.5/24",)}),
    ],
)
def test_what_is_not_known_for_sure_is_no_identity(gid, files, interfaces):
    assert identified(gid, files, **interfaces) is None


@given(st.text() | st.text().map(lambda text: CONFIG + text))
def test_whatever_is_written_of_vlans_gives_numbers_or_nothing(text):
    assert all(0 <= number <= 9999 for number in identity.parse_vlans(text).values())
