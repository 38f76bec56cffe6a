"""`llmgw-node fabric-scan`: what it prints, and how it exits."""

import json

import pytest

from tests.workers.fabric.fabric_text import railed
from workers.cli import main

IB = {"state": "4: ACTIVE", "phys_state": "5: LinkUp", "rate": "400 Gb/sec (4X NDR)", "link_layer": "InfiniBand"}


@pytest.fixture
def site(tmp_path):
    """A machine with an Ethernet port, one that is down, and one that is on the fabric."""
    ports = {"mlx5_0": {"link_layer": "Ethernet"}, "mlx5_1": {"state": "1: DOWN"}, "mlx5_2": {}}
    for hca, facts in ports.items():
        port = tmp_path / f"sys/class/infiniband/{hca}/ports/1"
        port.mkdir(parents=True)
        (port.parent.parent / "hca_type").write_text("MT4129\n")
        for name, word in {**IB, **facts}.items():
            (port / name).write_text(f"{word}\n")
    prints(tmp_path, railed(hosts=3, rails=2).whole())
    return tmp_path


def prints(site, text, code=0):
    (site / "said").write_text(text)
    tool = site / "ibnetdiscover"
    tool.write_text(f'#!/bin/sh\necho "$@" > {site}/argv\ncat {site}/said\nexit {code}\n')
    tool.chmod(0o755)


@pytest.fixture
def scan(site, capsys):
    def run(*more):
        code = main(["fabric-scan", "--sysfs", str(site / "sys"), "--tools", str(site), *more])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def test_it_begins_at_the_first_active_port_and_says_what_there_is(site, scan):
    code, said, _ = scan()
    assert code == 0
    assert (site / "argv").read_text() == "-C mlx5_2 -P 1\n"
    assert said.startswith("3 switches, 3 hosts with a name, 6 adapters, 8 links\n")
    assert "leaf01 (0x0002c90300000020), lid 2\n    1  4x HDR    gpu01 mlx5_0 port 1\n" in said
    assert "rail 1: leaf02 (3 hosts)" in said


def test_as_json_it_is_the_graph_with_where_it_began(scan):
    code, said, _ = scan("--hca", "mlx5_2", "--port", "1", "--json")
    told = json.loads(said)
    assert (code, told["port"], told["problem"]) == (0, "mlx5_2:1", None)
    assert len(told["graph"]["links"]) == 8


def test_a_finding_that_is_a_failure_is_told_by_the_exit_code_too(site, scan):
    fabric = railed(hosts=2, rails=2)
    fabric.boxes[-1].lid = fabric.boxes[-2].lid
    prints(site, fabric.whole() + "what is this\n")
    code, said, _ = scan()
    assert code == 1
    assert "FAIL  graph.lid-twice: LID " in said
    assert "1 lines of ibnetdiscover make no sense" in said


def test_a_walk_that_failed_says_why(site, scan):
    prints(site, "ibwarn: [9] mad_rpc_open_port: can't open UMAD port ((null):0)\n", code=255)
    code, said, _ = scan()
    assert (code, "umad* may be opened by root alone" in said) == (1, True)
    code, said, _ = scan("--json")
    assert (json.loads(said)["graph"], json.loads(said)["problem"]["code"]) == (None, "ibnetdiscover.not-allowed")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--hca", "mlx5_0"], "port mlx5_0:1 is ethernet and active"),
        (["--hca", "mlx5_1:1"], "port mlx5_1:1 is infiniband and down"),
        (["--hca", "mlx5_2", "--port", "2"], "there is no port mlx5_2:2 on this node"),
    ],
)
def test_a_port_that_it_cannot_begin_at_is_wrong_usage(scan, more, words):
    code, _, said = scan(*more)
    assert code == 2
    assert words in said
    assert "of InfiniBand and active are: mlx5_2:1" in said


def test_a_machine_without_such_a_port_is_told_so(tmp_path, capsys):
    assert main(["fabric-scan", "--sysfs", str(tmp_path)]) == 2
    assert "there is no active InfiniBand port" in capsys.readouterr().err
