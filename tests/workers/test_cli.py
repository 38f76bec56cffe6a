"""The node's command line: what it prints and how it exits."""

import msgspec
import pytest

from llmgw.core import wire
from llmgw.core.units import GIB
from workers import cli
from workers.cli import main


@pytest.fixture(autouse=True)
def _no_settings_of_ours(monkeypatch):
    for name in ("LLMGW_NODE_SETTINGS", "LLMGW_NODE_ID"):
        monkeypatch.delenv(name, raising=False)


def test_inventory_needs_no_settings_no_broker_and_no_state(capsys):
    assert main(["inventory"]) == 0
    told = capsys.readouterr().out
    assert "device   cpu  cpu" in told
    assert "memory" in told


def test_inventory_as_json_is_what_the_control_plane_gets(capsys):
    assert main(["inventory", "--json"]) == 0
    found = msgspec.json.decode(capsys.readouterr().out, type=wire.Inventory)
    assert found.memory_total > GIB / 4
    assert found.devices[0].id == "cpu"


def test_settings_shape_the_inventory(tmp_path, capsys):
    file = tmp_path / "node.toml"
    file.write_text('cpu_slots = 7\nllama_server = "/no/such/program"\n')
    assert main(["inventory", "--settings", str(file)]) == 0
    told = capsys.readouterr().out
    assert "7 slots" in told
    assert "llama_server in the settings is /no/such/program" in told


def test_the_environment_may_name_the_settings_file(tmp_path, capsys, monkeypatch):
    file = tmp_path / "node.toml"
    file.write_text("cpu_slots = 5\n")
    monkeypatch.setenv("LLMGW_NODE_SETTINGS", str(file))
    assert main(["inventory"]) == 0
    assert "5 slots" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["run", "inventory"])
def test_wrong_settings_exit_with_two_and_a_line_each(tmp_path, capsys, command):
    file = tmp_path / "node.toml"
    file.write_text("cpu_slots = 'many'\nwrong = 1\n")
    assert main([command, "--settings", str(file)]) == cli.BAD_USAGE
    told = capsys.readouterr().err
    assert f"{file}: cpu_slots: cannot be used" in told
    assert f"{file}: wrong: is no setting of a node" in told


def test_wrong_usage_exits_with_two():
    with pytest.raises(SystemExit) as ended:
        main(["dance"])
    assert ended.value.code == cli.BAD_USAGE
