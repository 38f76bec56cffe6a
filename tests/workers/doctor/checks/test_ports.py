"""Checks of ports: each of what it passes, what it fails or warns, and what it does not know."""

from dataclasses import replace

import pytest

from llmgw.core.hardware.findings import Problem
from llmgw.core.hardware.gpus import Pair, Topology
from llmgw.core.hardware.network import LinkLayer, PortState, SubnetManager
from tests.workers.doctor.checks.patients import (
    OPEN,
    SHUT,
    a_down_port,
    a_gpu,
    a_patient,
    a_port,
    a_roce_port,
    declared,
    only,
    outcomes,
    verdicts,
)
from workers.doctor.checks.ports import CHECKS
from workers.ports import ToolResult

INIT = {"state": PortState.INIT}
TWO = (a_port(), a_port("mlx5_1"))
PCI = "/sys/bus/pci/devices/0000:1a:00.0"
ON_PCI = {f"{PCI}/vendor": "0x15b3\n", f"{PCI}/class": "0x020700\n"}
ETHERNET = {f"{PCI}/vendor": "0x15b3\n", f"{PCI}/class": "0x020000\n"}
VERBS = {"/sys/class/infiniband_verbs/uverbs0/ibdev": "mlx5_0\n"}
MAD = {"/sys/class/infiniband_mad/umad0/ibdev": "mlx5_0\n", "/sys/class/infiniband_mad/umad0/port": "1\n"}
UVERBS, UMAD = "/dev/infiniband/uverbs0", "/dev/infiniband/umad0"
DEVINFO = "hca_id:\tmlx5_0\n\t\tport:\t1\n\t\t\tmax_mtu:\t\t4096 (5)\n\t\t\tactive_mtu:\t\t{} ({})\n"


def near(by):
    return {"gpus": (a_gpu(),), "topology": Topology(pairs=(Pair(a="GPU0", b="mlx5_0", by=by),))}


IBSTAT = """CA 'mlx5_0'
	CA type: MT4129
	Number of ports: 1
	Port 1:
		State: {}
		Physical state: LinkUp
		Rate: {}
		Base lid: 51
		Link layer: InfiniBand
"""


@pytest.mark.parametrize(
    ("check", "facts", "expected"),
    [
        ("port.present", {"ports": (a_port(),)}, "pass"),
        ("port.present", {"ports": ()}, "not-applicable"),
        ("port.present", {"ports": (a_port(pci_address="0000:1a:00.0"),), "files": ON_PCI}, "pass"),
        ("port.present", {"files": ON_PCI}, "fail"),
        ("port.present", {"files": ETHERNET}, "warn"),
        ("port.present", {"files": ON_PCI, "links": {f"{PCI}/physfn": "../0000:1a:00.1"}}, "not-applicable"),
        ("port.present", {"files": ON_PCI, "links": {f"{PCI}/driver": "../../drivers/vfio-pci"}}, "not-applicable"),
        ("port.present", {"ports": (a_port(),), "settings": declared("compute", "mlx5_7")}, "fail"),
        ("port.state", {"ports": (a_port(),)}, "pass"),
        ("port.state", {"ports": (a_port(state=None),)}, "unknown"),
        ("port.state", {"ports": (a_down_port(),)}, "not-applicable"),
        ("port.state", {"ports": (a_port("mlx5_1"), a_down_port(physical="training"))}, ["fail", "pass"]),
        ("port.state", {"ports": (a_port(is_software=True),)}, "not-applicable"),
        ("port.state", {"ports": (a_port(state=PortState.NOP),), "settings": declared("c", "mlx5_0")}, "fail"),
        ("port.cable", {"ports": (a_port(),)}, "pass"),
        ("port.cable", {"ports": (a_down_port(),)}, "warn"),
        ("port.cable", {"ports": (a_port("mlx5_1"), a_down_port())}, ["fail", "pass"]),
        ("port.cable", {"ports": (a_down_port(),), "settings": declared("compute", "mlx5_0")}, "fail"),
        ("port.cable", {"ports": (a_down_port(),), "settings": declared("compute", "mlx5_0:1")}, "fail"),
        ("port.cable", {"ports": (a_port(state=None),)}, "not-applicable"),
        ("port.disabled", {"ports": (a_port(),)}, "pass"),
        ("port.disabled", {"ports": (a_down_port(physical="disabled"),)}, "warn"),
        ("port.disabled", {"ports": (a_port("mlx5_1"), a_down_port(physical="disabled"))}, ["fail", "pass"]),
        ("port.subnet-manager", {"ports": (a_port(),)}, "pass"),
        ("port.subnet-manager", {"ports": (a_port(**INIT),)}, "fail"),
        ("port.subnet-manager", {"ports": (a_port(state=PortState.ARMED),)}, "fail"),
        ("port.subnet-manager", {"ports": (a_port(**INIT),), "settings": declared("c", "mlx5_5")}, "warn"),
        ("port.subnet-manager", {"ports": (a_roce_port(),)}, "not-applicable"),
        ("port.lid", {"ports": (a_port(),)}, "pass"),
        ("port.lid", {"ports": (a_port(lid=0),)}, "fail"),
        ("port.lid", {"ports": (a_port(lid=None),)}, "unknown"),
        ("port.lid", {"ports": (a_roce_port(),)}, "not-applicable"),
        ("port.rate", {"ports": TWO}, "pass"),
        ("port.rate", {"ports": (a_port(), a_port("mlx5_1", rate_gbps=200.0))}, ["fail", "pass"]),
        (
            "port.rate",
            {"ports": (a_port(rate_gbps=200.0),), "settings": declared("c", "mlx5_0", rate_gbps=400)},
            "fail",
        ),
        ("port.rate", {"ports": (a_port(rate_gbps=2.5, width=1, speed="SDR"),)}, "fail"),
        ("port.rate", {"ports": (a_port(rate_gbps=100.0, width=2, speed="HDR"),)}, "pass"),
        ("port.rate", {"ports": (a_port(), a_port("mlx5_1", rate_gbps=200.0, hca_type="MT4123"))}, "pass"),
        ("port.rate", {"ports": (a_port(rate_gbps=None),)}, "unknown"),
        ("port.rate", {"ports": (a_down_port(rate_gbps=10.0),)}, "not-applicable"),
        ("port.link-layer", {"ports": TWO, "settings": declared("c", "mlx5_0", "mlx5_1")}, "pass"),
        ("port.link-layer", {"ports": (a_port(), a_roce_port("mlx5_1"))}, "not-applicable"),
        (
            "port.link-layer",
            {"ports": (a_port(), a_roce_port("mlx5_1")), "settings": declared("c", "mlx5_0", "mlx5_1")},
            "fail",
        ),
        ("port.link-layer", {"settings": declared("c", "mlx5_0")}, "unknown"),
        ("port.partition", {"ports": (a_port(partitions=("0x7fff", "0xffff")),)}, "pass"),
        ("port.partition", {"ports": (a_port(partitions=("0x7fff",)),)}, "warn"),
        ("port.partition", {"ports": (a_port(partitions=("what",)),)}, "unknown"),
        ("port.firmware", {"ports": TWO}, "pass"),
        ("port.firmware", {"ports": (a_port(), a_port("mlx5_1", firmware="28.39.2048"))}, "warn"),
        ("port.firmware", {"ports": (a_port(firmware=None),)}, "unknown"),
        ("port.firmware", {}, "not-applicable"),
        ("port.near-gpu", {"ports": (a_port(),)}, "not-applicable"),
        ("port.near-gpu", {"ports": (a_port(),), **near("PXB")}, "pass"),
        ("port.near-gpu", {"ports": (a_port(),), **near("NODE")}, "warn"),
        ("port.near-gpu", {"ports": (a_port(),), **near("NODE"), "architecture": "aarch64"}, "pass"),
        ("port.near-gpu", {"ports": (a_port(),), **near("SYS")}, "fail"),
        ("port.near-gpu", {"ports": (a_port(numa_node=1),), "gpus": (a_gpu(numa_node=0),)}, "fail"),
        ("port.near-gpu", {"ports": (a_port(numa_node=0),), "gpus": (a_gpu(numa_node=0),)}, "pass"),
        ("port.near-gpu", {"ports": (a_port(numa_node=-1),), "gpus": (a_gpu(numa_node=0),)}, "unknown"),
        ("port.second-look", {}, "not-applicable"),
        ("port.second-look", {"ports": (a_port(),)}, "unknown"),
        ("port.second-look", {"ports": (a_port(),), "tools": {"ibstat": IBSTAT.format("Active", 400)}}, "pass"),
        ("port.second-look", {"ports": (a_port(),), "tools": {"ibstat": IBSTAT.format("Down", 40)}}, "warn"),
        ("port.second-look", {"ports": (a_port(),), "tools": {"ibstat": IBSTAT.format("Active", 200)}}, "warn"),
        ("port.second-look", {"ports": TWO, "tools": {"ibstat": IBSTAT.format("Active", 400)}}, "warn"),
        ("port.device-nodes", {"ports": (a_port(),), "files": {}}, "unknown"),
        ("port.device-nodes", {"ports": (a_port(),), "files": {"/sys/module/loop/refcnt": "0\n"}}, "fail"),
        ("port.device-nodes", {"ports": (a_port(),), "files": VERBS}, "fail"),
        ("port.device-nodes", {"ports": (a_port(),), "files": VERBS, "nodes": {UVERBS: SHUT}}, "fail"),
        ("port.device-nodes", {"ports": (a_port(),), "files": VERBS, "nodes": {UVERBS: OPEN}}, "warn"),
        ("port.device-nodes", {"ports": (a_roce_port(),), "files": VERBS, "nodes": {UVERBS: OPEN}}, "pass"),
        (
            "port.device-nodes",
            {"ports": (a_port(),), "files": VERBS | MAD, "nodes": {UVERBS: OPEN, UMAD: SHUT}},
            "warn",
        ),
        (
            "port.device-nodes",
            {"ports": (a_port(),), "files": VERBS | MAD, "nodes": {UVERBS: OPEN, UMAD: OPEN}},
            "pass",
        ),
        ("port.mtu", {}, "not-applicable"),
        ("port.mtu", {"ports": (a_port(),)}, "unknown"),
        ("port.mtu", {"ports": (a_port(),), "tools": {"ibv_devinfo": DEVINFO.format(4096, 5)}}, "pass"),
        ("port.mtu", {"ports": (a_port(),), "tools": {"ibv_devinfo": DEVINFO.format(2048, 4)}}, "warn"),
        ("port.mtu", {"ports": (a_roce_port(),), "tools": {"ibv_devinfo": DEVINFO.format(1024, 3)}}, "pass"),
        ("port.mtu", {"ports": TWO, "tools": {"ibv_devinfo": DEVINFO.format(4096, 5)}}, ["pass", "unknown"]),
    ],
)
def test_a_port_is_judged(check, facts, expected):
    assert verdicts(CHECKS, check, a_patient(**facts)) == ([expected] if isinstance(expected, str) else expected)


def test_ports_that_could_not_be_read_are_unknown():
    problem = Problem(code="ports.unreadable", fact="ports", text="the ports are not known")
    assert verdicts(CHECKS, "port.cable", a_patient(problems=(problem,))) == ["unknown"]


def test_a_second_function_of_a_bond_is_not_missed():
    files = ETHERNET | {f"{PCI}/net/eth3/mtu": "9000"}
    bonded = a_patient(
        files=files, links={"/sys/class/net/eth3/master": "../bond0"}, ports=(a_roce_port("mlx5_bond_0"),)
    )
    assert verdicts(CHECKS, "port.present", bonded) == ["pass"]


def test_a_slow_port_is_told_with_what_its_like_run_at():
    slow = a_patient(ports=(a_port(), a_port("mlx5_1", rate_gbps=100.0, width=1)))
    (found,) = (each for each in outcomes(CHECKS, "port.rate", slow) if each.about == "mlx5_1:1")
    assert found.text == "mlx5_1:1 runs at 100 Gb/s over 1 lane, 400 Gb/s its like does"


def test_ports_of_another_subnet_are_not_their_like():
    here, there = SubnetManager(guid="0x1"), SubnetManager(guid="0x2")
    slow = a_port("mlx5_1", rate_gbps=200.0, subnet_manager=there)
    patient = a_patient(ports=(a_port(subnet_manager=here), slow))
    assert verdicts(CHECKS, "port.rate", patient) == ["pass"]


def test_a_guests_part_of_an_adapter_counts_only_when_it_is_declared():
    part = a_down_port(is_virtual_function=True)
    assert verdicts(CHECKS, "port.cable", a_patient(ports=(part,))) == ["not-applicable"]
    assert verdicts(CHECKS, "port.cable", a_patient(ports=(part,), settings=declared("c", "mlx5_0"))) == ["fail"]


def test_a_missing_tool_is_named():
    assert only(CHECKS, "port.mtu", a_patient(ports=(a_port(),))).text == (
        "the MTU of the ports is not known: ibv_devinfo is not installed"
    )
    failing = a_patient(ports=(a_port(),), tools={"ibv_devinfo": ToolResult(255, err="Failed to get IB devices list")})
    assert only(CHECKS, "port.mtu", failing).evidence["literal"] == "Failed to get IB devices list"


# --- counters ---------------------------------------------------------------------------------------------------------

COUNTED = {
    "port.link-downed": "link_downed",
    "port.symbol-errors": "symbol_error",
    "port.remote-errors": "port_rcv_remote_physical_errors",
    "port.receive-errors": "port_rcv_errors",
    "port.congestion": "port_xmit_discards",
    "port.partition-errors": "port_rcv_constraint_errors",
    "port.retries": "out_of_sequence",
}


def counting(counter, now, before=None, ago=3600.0):
    earlier = None if before is None else {f"port.mlx5_0:1.{counter}": before}
    return a_patient(ports=(a_port(counters={counter: now}),), earlier=earlier, ago=ago)


@pytest.mark.parametrize(("check", "counter"), COUNTED.items())
def test_a_counter_is_judged_by_its_growth_alone(check, counter):
    assert verdicts(CHECKS, check, counting(counter, 255)) == ["unknown"]
    assert verdicts(CHECKS, check, counting(counter, 255, 255)) == ["pass"]
    assert verdicts(CHECKS, check, counting(counter, 3, 255)) == ["unknown"]
    assert verdicts(CHECKS, check, a_patient(ports=(a_port(),))) == ["unknown"]
    assert verdicts(CHECKS, check, a_patient()) == ["not-applicable"]


@pytest.mark.parametrize(
    ("check", "rise", "hours", "expected"),
    [
        ("port.link-downed", 1, 1, "warn"),
        ("port.link-downed", 2, 1, "fail"),
        ("port.link-downed", 2, 72, "warn"),
        ("port.symbol-errors", 1, 1, "warn"),
        ("port.symbol-errors", 11, 1, "fail"),
        ("port.symbol-errors", 11, 2, "warn"),
        ("port.remote-errors", 5000, 1, "warn"),
        ("port.receive-errors", 14, 1, "fail"),
        ("port.congestion", 1000, 1, "pass"),
        ("port.congestion", 4000, 1, "warn"),
        ("port.partition-errors", 1, 1, "warn"),
        ("port.retries", 40, 1, "warn"),
        ("port.retries", 4000, 1, "fail"),
    ],
)
def test_a_rise_is_weighed_against_its_time(check, rise, hours, expected):
    patient = counting(COUNTED[check], 100 + rise, 100, hours * 3600.0)
    assert verdicts(CHECKS, check, patient) == [expected]


def test_a_rise_names_the_counter_and_the_time():
    found = only(CHECKS, "port.link-downed", counting("link_downed", 4, 1, 7200.0))
    assert found.text == "mlx5_0:1: link_downed +3 in 2 h"
    assert found.about == "mlx5_0:1"
    assert found.evidence == {"link_downed": 3}


def test_what_is_counted_is_left_for_the_next_run():
    patient = counting("link_downed", 255)
    outcomes(CHECKS, "port.link-downed", patient)
    assert patient.counters == {"port.mlx5_0:1.link_downed": 255}
    later = replace(patient, earlier=patient.counters, earlier_at=patient.now - 60)
    assert verdicts(CHECKS, "port.link-downed", later) == ["pass"]


def test_roce_ports_are_counted_too():
    assert a_roce_port().link_layer is LinkLayer.ETHERNET
    patient = a_patient(
        ports=(a_roce_port(counters={"out_of_sequence": 9}),), earlier={"port.mlx5_0:1.out_of_sequence": 2}
    )
    assert verdicts(CHECKS, "port.retries", patient) == ["warn"]
