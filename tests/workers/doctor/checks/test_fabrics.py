"""Checks of fabrics: subnet managers, and one name for one fabric."""

import pytest

from llmgw.core.hardware.fabrics import AttachedPort, Attachment
from llmgw.core.hardware.findings import Problem
from llmgw.core.hardware.network import Gid, SubnetManager
from tests.workers.doctor.checks.patients import a_patient, a_port, a_roce_port, declared, only, outcomes, verdicts
from workers.doctor.checks.fabrics import CHECKS, NOT_YET

GUID = "0x0002c90200259201"
OTHER = "0x0002c9030010b250"
STANDBY = SubnetManager(guid=OTHER, state="standby")
NETWORKS = ("roce:0:10.1.0.0/24", "roce:100:10.2.0.0/24")
HOST = {"/proc/sys/kernel/hostname": "gpu07.example\n"}
DESCRIPTION = "/sys/class/infiniband/mlx5_0/node_desc"


def a_master(guid=GUID, **more):
    return SubnetManager(**{"guid": guid, "lid": 1, "priority": 14, "state": "master", "activity": 100, **more})


def managed(*others, name="mlx5_0", **more):
    return a_port(name, **{"subnet_manager": a_master(), "other_subnet_managers": others, **more})


def unanswered(code, fact="subnet manager"):
    return Problem(
        code=code, fact=f"port mlx5_0:1: {fact}", text="sminfo did not tell", literal="iberror: query failed"
    )


def attached(*names, **more):
    ports = tuple(AttachedPort(name=name, usable=True, identity=f"sm:{GUID}") for name in names)
    return Attachment(**{"name": "compute", "ports": ports, "identities": (f"sm:{GUID}",), **more})


NO_SAQUERY = Problem(code="saquery.missing", fact="other subnet managers", text="saquery is not installed")
LOST = (
    AttachedPort(name="mlx5_0:1", usable=True),
    AttachedPort(name="mlx5_1:1", usable=False, why="down"),
)


def with_gid(name, gid):
    return managed(name=name, gids=(Gid(index=0, gid=gid, kind="ib"),))


@pytest.mark.parametrize(
    ("check", "facts", "expected"),
    [
        ("fabric.usable", {}, "not-applicable"),
        ("fabric.usable", {"fabrics": (attached("mlx5_0:1"),)}, "pass"),
        ("fabric.usable", {"fabrics": (attached(ports=LOST),)}, "fail"),
        ("fabric.usable", {"fabrics": (attached("mlx5_0:1", unusable="no port is up"),)}, "fail"),
        ("fabric.one-identity", {}, "not-applicable"),
        ("fabric.one-identity", {"fabrics": (attached("mlx5_0:1"),)}, "pass"),
        ("fabric.one-identity", {"fabrics": (attached(identities=(f"sm:{GUID}", f"sm:{OTHER}")),)}, "fail"),
        ("fabric.one-identity", {"fabrics": (attached(identities=NETWORKS),)}, "warn"),
        ("fabric.one-identity", {"fabrics": (attached(identities=NETWORKS, rail_only=True),)}, "pass"),
        ("fabric.one-identity", {"fabrics": (attached(identities=()),)}, "unknown"),
        ("fabric.prefix", {"ports": (with_gid("mlx5_0", "fe80:0000:0000:0000:0002:c902:0025:9202"),)}, "pass"),
        (
            "fabric.prefix",
            {
                "ports": (
                    with_gid("mlx5_0", "fe80:0000:0000:0000:0002:c902:0025:9202"),
                    with_gid("mlx5_1", "fec0:0000:0000:0001:0002:c902:0025:9203"),
                )
            },
            "fail",
        ),
        ("fabric.prefix", {"ports": (managed(),)}, "unknown"),
        ("fabric.prefix", {}, "not-applicable"),
        ("fabric.addresses", {"ports": (managed(), managed(name="mlx5_1", lid=18))}, "pass"),
        ("fabric.addresses", {"ports": (managed(), managed(name="mlx5_1"))}, "fail"),
        ("fabric.addresses", {"ports": (managed(), managed(name="mlx5_1", subnet_manager=a_master(OTHER)))}, "pass"),
        ("fabric.addresses", {"ports": (a_port(port_guid="0xa1"), a_port("mlx5_1", port_guid="0xa1"))}, "fail"),
        ("fabric.addresses", {"ports": (a_port(node_guid="0000:0000:0000:0000"),)}, "fail"),
        ("fabric.addresses", {"ports": (a_roce_port(),)}, "not-applicable"),
        ("fabric.node-description", {"ports": (a_port(),), "files": HOST | {DESCRIPTION: "gpu07 mlx5_0\n"}}, "pass"),
        (
            "fabric.node-description",
            {"ports": (a_port(),), "files": HOST | {DESCRIPTION: "MT4129 ConnectX7\n"}},
            "warn",
        ),
        ("fabric.node-description", {"ports": (a_port(),), "files": HOST}, "unknown"),
        ("fabric.node-description", {"ports": (a_roce_port(),)}, "not-applicable"),
        ("sm.answers", {"ports": (managed(),)}, "pass"),
        ("sm.answers", {"ports": (managed(subnet_manager=a_master(state="standby")),)}, "warn"),
        ("sm.answers", {"ports": (a_port(),)}, "unknown"),
        ("sm.answers", {"ports": (a_port(),), "problems": (unanswered("sminfo.exit"),)}, "fail"),
        ("sm.answers", {"ports": (a_port(),), "problems": (unanswered("sminfo.missing"),)}, "unknown"),
        ("sm.answers", {"ports": (a_port(),), "problems": (unanswered("sminfo.not-allowed"),)}, "unknown"),
        ("sm.answers", {"ports": (a_roce_port(),)}, "not-applicable"),
        ("sm.alive", {"ports": (managed(),)}, "unknown"),
        ("sm.alive", {"ports": (managed(),), "earlier": {"sm.2c90200259201.activity": 90}}, "pass"),
        ("sm.alive", {"ports": (managed(),), "earlier": {"sm.2c90200259201.activity": 100}}, "fail"),
        ("sm.alive", {"ports": (managed(),), "earlier": {"sm.2c90200259201.activity": 100}, "ago": 2.0}, "unknown"),
        ("sm.alive", {"ports": (managed(subnet_manager=a_master(activity=None)),)}, "unknown"),
        ("sm.alive", {"ports": (a_port(),)}, "unknown"),
        ("sm.alive", {}, "not-applicable"),
        ("sm.one-master", {"ports": (managed(STANDBY),)}, "pass"),
        ("sm.one-master", {"ports": (managed(a_master(OTHER)),)}, "fail"),
        ("sm.one-master", {"ports": (managed(a_master("0x2c90200259201")),)}, "pass"),
        ("sm.one-master", {"ports": (managed(),), "problems": (unanswered("saquery.exit"),)}, "unknown"),
        ("sm.one-master", {"ports": (a_port(),)}, "unknown"),
        ("sm.one-master", {}, "not-applicable"),
        ("sm.standby", {"ports": (managed(STANDBY),)}, "pass"),
        ("sm.standby", {"ports": (managed(),)}, "warn"),
        ("sm.standby", {"ports": (managed(),), "problems": (unanswered("saquery.missing"),)}, "unknown"),
        ("sm.standby", {"ports": (managed(),), "problems": (NO_SAQUERY,)}, "unknown"),
        ("sm.expected", {"ports": (managed(STANDBY),)}, "pass"),
        ("sm.expected", {"ports": (managed(is_subnet_manager=True),)}, "warn"),
        ("sm.expected", {"ports": (managed(STANDBY),), "earlier": {"sm.2c90200259201.seen": 1}}, "warn"),
        ("sm.expected", {"ports": (a_port(),)}, "unknown"),
        ("sm.expected", {}, "not-applicable"),
    ],
)
def test_a_fabric_is_judged(check, facts, expected):
    assert verdicts(CHECKS, check, a_patient(**facts)) == [expected]


def test_two_masters_are_named_and_their_fabric():
    split = a_patient(ports=(managed(a_master(OTHER)),), settings=declared("compute", "mlx5_0"))
    found = only(CHECKS, "sm.one-master", split)
    assert found.text == f"{GUID}, {OTHER} are all master of one subnet"
    assert found.about == "compute"


def test_ports_of_two_subnets_are_judged_apart():
    two = a_patient(ports=(managed(STANDBY), managed(name="mlx5_1", subnet_manager=a_master(OTHER))))
    assert [found.about for found in outcomes(CHECKS, "sm.one-master", two)] == ["mlx5_0:1", "mlx5_1:1"]


def test_a_subnet_is_listed_by_one_of_its_ports():
    unlisted = {"ports": (managed(), managed(name="mlx5_1")), "problems": (unanswered("saquery.exit"),)}
    assert verdicts(CHECKS, "sm.standby", a_patient(**unlisted)) == ["unknown"]


def test_managers_are_remembered():
    patient = a_patient(ports=(managed(STANDBY),))
    outcomes(CHECKS, "sm.expected", patient)
    assert patient.counters == {"sm.2c90200259201.seen": 1, "sm.2c9030010b250.seen": 1}


def test_what_is_not_checked_yet_says_why():
    assert all(why.startswith("needs ") for _, _, why in NOT_YET)
