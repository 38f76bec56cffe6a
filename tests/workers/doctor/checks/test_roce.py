"""Checks of RoCE: addresses, interfaces, and what keeps packets from being lost."""

import pytest

from llmgw.core.hardware.network import Gid
from tests.workers.doctor.checks.patients import a_patient, a_port, a_roce_port, declared, only, outcomes, verdicts
from workers.doctor.checks.roce import CHECKS
from workers.ports import ToolResult

ROCE = {"ports": (a_roce_port(),)}
TWO = (a_roce_port(), a_roce_port("mlx5_1", "eth3"))
SELF_GIVEN = "0000:0000:0000:0000:0000:ffff:a9fe:0304"
LOCAL = "fe80:0000:0000:0000:0000:00ff:fe00:0001"
ROUTED = "2001:0db8:0000:0000:0000:0000:0000:0007"
UP = {"/sys/class/net/eth2/operstate": "up\n", "/sys/class/net/eth2/mtu": "9000\n"}


def interfaces(**mtus):
    return {f"/sys/class/net/{name}/mtu": f"{mtu}\n" for name, mtu in mtus.items()}


def bond(first="up", second="up"):
    slaves = "".join(
        f"\nSlave Interface: {name}\nMII Status: {state}\nSpeed: 100000 Mbps\n"
        for name, state in (("eth4", first), ("eth5", second))
    )
    return {"/proc/net/bonding/eth2": f"Bonding Mode: IEEE 802.3ad\nMII Status: up\n{slaves}"}


def pfc(*on):
    states = " ".join(f"{at}:{'on' if at in on else 'off'}" for at in range(8))
    return {"dcb": f"pfc-cap 8 macsec-bypass off delay 0\nprio-pfc {states}\nrequests 0:0\n"}


MLNX = """DCBX mode: OS controlled
Priority trust state: {}
PFC configuration:
\tpriority    0   1   2   3   4   5   6   7
\tenabled     0   0   0   1   0   0   0   0
tc: 0 ratelimit: unlimited, tsa: vendor
"""
ECN = "/sys/class/net/eth2/ecn"
RULES = "0:\tfrom all lookup local\n100:\tfrom 10.1.0.5 lookup 100\n101:\tfrom 10.1.0.6 lookup 101\n"
SHARED = {"eth2": ("10.1.0.5/24", "fe80::1/64"), "eth3": ("10.1.0.6/24",)}
CLOSED = """table inet filter {
	chain input {
		type filter hook input priority filter; policy drop;
		ct state established accept
"""
PAUSES = "NIC statistics:\n     rx_packets: 5\n     rx_prio3_pause: 9000000\n     rx_prio3_pause_duration: 99999999\n"


def gid(index, text, kind="roce-v2"):
    return Gid(index=index, gid=text, kind=kind)


@pytest.mark.parametrize(
    ("check", "facts", "expected"),
    [
        ("roce.gid", ROCE, "pass"),
        ("roce.gid", {"ports": (a_roce_port(gids=(gid(5, ROUTED),), roce_gid_index=5),)}, "pass"),
        ("roce.gid", {"ports": (a_roce_port(roce_gid_index=None),)}, "fail"),
        ("roce.gid", {"ports": (a_roce_port(gids=(gid(1, LOCAL),)),)}, "warn"),
        ("roce.gid", {"ports": (a_roce_port(gids=(gid(1, SELF_GIVEN),), roce_gid_index=None),)}, "warn"),
        ("roce.gid", {"ports": (a_roce_port(gids=(gid(0, LOCAL, "roce-v1"),)),)}, "fail"),
        ("roce.gid", {"ports": (a_roce_port(gids=()),)}, "unknown"),
        ("roce.gid", {"ports": (a_port(),)}, "not-applicable"),
        ("roce.gid-index", ROCE, "pass"),
        ("roce.gid-index", ROCE | {"files": {"/etc/nccl.conf": "NCCL_IB_GID_INDEX=3\n"}}, "pass"),
        ("roce.gid-index", ROCE | {"files": {"/etc/nccl.conf": "NCCL_DEBUG=INFO\nNCCL_IB_GID_INDEX = 1\n"}}, "fail"),
        ("roce.gid-index", ROCE | {"environ": {"NCCL_IB_GID_INDEX": "0"}}, "fail"),
        ("roce.gid-index", ROCE | {"environ": {"NCCL_IB_GID_INDEX": "-1"}}, "pass"),
        ("roce.gid-index", {"ports": (a_port(),), "environ": {"NCCL_IB_GID_INDEX": "0"}}, "not-applicable"),
        ("roce.gid-table", ROCE, "unknown"),
        ("roce.gid-table", ROCE | {"earlier": {"port.mlx5_0:1.gid-table": 7}}, "warn"),
        ("roce.gid-table", {"ports": (a_roce_port(gids=()),)}, "unknown"),
        ("roce.gid-table", {}, "not-applicable"),
        ("roce.interface", ROCE | {"files": UP}, "pass"),
        ("roce.interface", ROCE | {"files": {"/sys/class/net/eth2/operstate": "down\n"}}, "fail"),
        ("roce.interface", ROCE | {"files": {"/sys/class/net/eth2/operstate": "unknown\n"}}, "unknown"),
        ("roce.interface", {"ports": (a_roce_port(netdevs=()),)}, "unknown"),
        ("roce.mtu", ROCE | {"files": UP}, "pass"),
        ("roce.mtu", ROCE | {"files": interfaces(eth2=4200)}, "pass"),
        ("roce.mtu", ROCE | {"files": interfaces(eth2=1500)}, "warn"),
        ("roce.mtu", {"ports": TWO, "files": interfaces(eth2=9000, eth3=4200)}, "fail"),
        ("roce.mtu", ROCE, "unknown"),
        ("roce.bond", ROCE, "not-applicable"),
        ("roce.bond", ROCE | {"files": bond()}, "pass"),
        ("roce.bond", ROCE | {"files": bond(second="down")}, "warn"),
        ("roce.bond", ROCE | {"files": bond("down", "down")}, "fail"),
        ("roce.rails", {}, "not-applicable"),
        ("roce.rails", ROCE, "unknown"),
        ("roce.rails", {"ports": TWO, "interfaces": {"eth2": ("10.1.0.5/24",), "eth3": ("10.2.0.5/24",)}}, "pass"),
        ("roce.rails", {"ports": TWO, "interfaces": SHARED}, "unknown"),
        ("roce.rails", {"ports": TWO, "interfaces": SHARED, "tools": {"ip": RULES}}, "pass"),
        ("roce.rails", {"ports": TWO, "interfaces": SHARED, "tools": {"ip": "0:\tfrom all lookup local\n"}}, "warn"),
        ("roce.firewall", {}, "not-applicable"),
        ("roce.firewall", ROCE, "unknown"),
        (
            "roce.firewall",
            ROCE | {"tools": {"nft": ToolResult(1, err="Operation not permitted (you must be root)")}},
            "unknown",
        ),
        ("roce.firewall", ROCE | {"tools": {"nft": ""}}, "pass"),
        ("roce.firewall", ROCE | {"tools": {"nft": CLOSED}}, "warn"),
        ("roce.firewall", ROCE | {"tools": {"nft": CLOSED + "\t\tudp dport 4791 accept\n"}}, "pass"),
        ("roce.firewall", ROCE | {"tools": {"nft": "\t\tudp dport { 4791, 53 } drop\n"}}, "warn"),
        ("roce.pfc", {}, "not-applicable"),
        ("roce.pfc", ROCE, "unknown"),
        ("roce.pfc", ROCE | {"tools": pfc(3)}, "pass"),
        ("roce.pfc", ROCE | {"tools": pfc()}, "warn"),
        ("roce.pfc", ROCE | {"tools": pfc(3, 4)}, "warn"),
        ("roce.pfc", ROCE | {"tools": pfc(*range(8))}, "fail"),
        (
            "roce.pfc",
            ROCE | {"tools": {"dcb": ToolResult(1, err="not supported"), "mlnx_qos": MLNX.format("pcp")}},
            "pass",
        ),
        ("roce.trust", {}, "not-applicable"),
        ("roce.trust", ROCE, "unknown"),
        ("roce.trust", ROCE | {"tools": {"mlnx_qos": MLNX.format("dscp")}}, "pass"),
        ("roce.trust", ROCE | {"tools": {"mlnx_qos": MLNX.format("pcp")}}, "warn"),
        ("roce.ecn", {}, "not-applicable"),
        ("roce.ecn", ROCE, "unknown"),
        ("roce.ecn", ROCE | {"files": {f"{ECN}/roce_np/enable/3": "1\n", f"{ECN}/roce_rp/enable/3": "1\n"}}, "pass"),
        ("roce.ecn", ROCE | {"files": {f"{ECN}/roce_np/enable/3": "1\n", f"{ECN}/roce_rp/enable/3": "0\n"}}, "warn"),
        ("roce.ecn", ROCE | {"files": {f"{ECN}/{way}/enable/3": "?\n" for way in ("roce_np", "roce_rp")}}, "unknown"),
        ("roce.ecn", {"ports": (a_roce_port(counters={"rp_cnp_handled": 12}),)}, "pass"),
        ("roce.pauses", {}, "not-applicable"),
        ("roce.pauses", ROCE, "unknown"),
        ("roce.pauses", ROCE | {"tools": {"ethtool": PAUSES}}, "unknown"),
        (
            "roce.pauses",
            ROCE | {"tools": {"ethtool": PAUSES}, "earlier": {"interface.eth2.rx_prio3_pause": 8999990}},
            "pass",
        ),
        ("roce.pauses", ROCE | {"tools": {"ethtool": PAUSES}, "earlier": {"interface.eth2.rx_prio3_pause": 0}}, "warn"),
    ],
)
def test_roce_is_judged(check, facts, expected):
    assert verdicts(CHECKS, check, a_patient(**facts)) == [expected]


def test_gids_that_stay_pass_at_the_next_run():
    first = a_patient(**ROCE)
    outcomes(CHECKS, "roce.gid-table", first)
    assert verdicts(CHECKS, "roce.gid-table", a_patient(**ROCE, earlier=first.counters)) == ["pass"]


def test_the_members_of_a_bond_are_asked_and_not_the_bond():
    patient = a_patient(**ROCE, files=bond(), tools=pfc(3))
    assert [found.about for found in outcomes(CHECKS, "roce.pfc", patient)] == ["eth4", "eth5"]
    assert ("dcb", "pfc", "show", "dev", "eth4") in patient.machine.calls


def test_the_fix_of_a_small_mtu_names_the_old_one():
    found = only(CHECKS, "roce.mtu", a_patient(**ROCE, files=interfaces(eth2=1500)))
    assert found.fix_arguments == {"interface": "eth2", "old": "1500"}


def test_mtus_of_two_fabrics_may_differ():
    files = interfaces(eth2=9000, eth3=4200)
    assert verdicts(CHECKS, "roce.mtu", a_patient(ports=TWO, files=files, settings=declared("c", "mlx5_0"))) == ["pass"]
