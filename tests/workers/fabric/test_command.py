"""`llmgw-node fabric-test` with a made-up ib_write_bw that is a process of its own."""

import json
import os

import pytest

from workers.cli import main

TOOL = """#!/bin/sh
echo $$ > {folder}/pid
echo "$@" > {folder}/argv
case "$*" in
  *10.0.0.2) cat {folder}/table ;;
  *) exec sleep 600 ;;
esac
"""
TABLE = (
    " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n"
    " 65536      221234           0.00               386.31               0.736825\n"
)


@pytest.fixture
def fabric_test(tmp_path, capsys):
    port = tmp_path / "sys/class/infiniband/mlx5_0/ports/1"
    port.mkdir(parents=True)
    words = {"state": "4: ACTIVE", "phys_state": "5: LinkUp", "rate": "400 Gb/sec (4X NDR)", "link_layer": "InfiniBand"}
    for name, word in words.items():
        (port / name).write_text(f"{word}\n")
    (port.parent.parent / "hca_type").write_text("MT4129\n")
    tool = tmp_path / "ib_write_bw"
    tool.write_text(TOOL.format(folder=tmp_path))
    tool.chmod(0o755)
    (tmp_path / "table").write_text(TABLE)

    def run(*arguments):
        code = main(["fabric-test", "--sysfs", str(tmp_path / "sys"), "--tools", str(tmp_path), *arguments])
        said = capsys.readouterr()
        return code, said.out + said.err

    return run


def test_a_client_measures(fabric_test, tmp_path):
    code, said = fabric_test("10.0.0.2", "--port", "mlx5_0", "--json")
    assert (code, json.loads(said)["gbps"]) == (0, 386.31)
    assert (tmp_path / "argv").read_text().split()[:4] == ["-d", "mlx5_0", "-i", "1"]


def test_a_server_to_which_nobody_comes_is_gone_afterwards(fabric_test, tmp_path, monkeypatch):
    monkeypatch.setattr("workers.fabric.command._SETUP_S", 0.1)
    code, said = fabric_test("--port", "mlx5_0:1", "--wait-s", "0.2", "--duration-s", "1")
    assert (code, "bandwidth.timeout" in said) == (1, True)
    pid = int((tmp_path / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_port_that_is_not_there_is_wrong_usage(fabric_test):
    code, said = fabric_test("--port", "mlx5_7")
    assert code == 2
    assert "there are: mlx5_0:1" in said
