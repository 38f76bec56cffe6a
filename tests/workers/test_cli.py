"""The node's command line: what it prints and how it exits."""

import os
import subprocess
import sys

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


# --- where to look ------------------------------------------------------------------------------------------------


def a_tool(folder, name, prints):
    folder.mkdir(exist_ok=True)
    tool = folder / name
    tool.write_text(f"#!/bin/sh\necho '{prints}'\n")
    tool.chmod(0o755)
    return tool


def found(capsys, *flags):
    assert main(["inventory", "--json", *flags]) == 0
    return msgspec.json.decode(capsys.readouterr().out, type=wire.Inventory)


def test_flags_say_where_the_kernel_s_trees_are(tmp_path, capsys):
    (tmp_path / "meminfo").write_text("MemTotal: 8388608 kB\nMemAvailable: 4194304 kB\n")
    inventory = found(capsys, "--proc", str(tmp_path), "--sysfs", str(tmp_path))
    assert (inventory.memory_total, inventory.memory_available) == (8 * GIB, 4 * GIB)


def test_flags_win_over_the_settings(tmp_path, capsys):
    file = tmp_path / "node.toml"
    file.write_text('tools = "/nowhere"\nproc = "/nowhere"\ncpu_slots = 7\n')
    a_tool(tmp_path / "tools", "uname", "made-up")
    (tmp_path / "meminfo").write_text("MemTotal: 8388608 kB\n")
    inventory = found(
        capsys, "--settings", str(file), "--tools", str(tmp_path / "tools"), "--proc", str(tmp_path), "--nvml", "off"
    )
    assert inventory.architecture == "made-up"
    assert inventory.devices[0].slots == 7


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--sysfs", "/no/such/tree"], "--sysfs: /no/such/tree is no folder"),
        (["--proc", "/etc/passwd"], "--proc: /etc/passwd is no folder"),
        (["--tools", ""], "--tools: cannot be used – give a path"),
        (["--nvml", "sometimes"], "--nvml: cannot be used – give auto, off, or the absolute path of libnvidia-ml"),
        (["--nvidia-smi", " "], "--nvidia-smi: cannot be used"),
        (["--replay", "/no/such/recording"], "--replay: /no/such/recording/machine.json cannot be read"),
        (["--replay", "/tmp", "--sysfs", "/sys"], "--sysfs: a recording has its own"),
    ],
)
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_flag_that_cannot_be_meant_is_named_and_exits_with_two(capsys, flags, says, form):
    assert main(["inventory", *form, *flags]) == cli.BAD_USAGE
    out, err = capsys.readouterr()
    assert says in err
    assert out == ""


def test_a_machine_is_recorded_and_looked_at_again(tmp_path, capsys):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "meminfo").write_text("MemTotal: 8388608 kB\nMemAvailable: 4194304 kB\n")
    flags = ["--proc", str(tmp_path / "proc"), "--sysfs", str(tmp_path), "--nvml", "off"]
    before = found(capsys, *flags)
    assert main(["record", str(tmp_path / "new"), *flags]) == 0
    assert "Look it over before you send it" in capsys.readouterr().out
    after = found(capsys, "--replay", str(tmp_path / "new"))
    same = ("devices", "cpu_count", "memory_total", "os", "engines")
    assert [getattr(after, name) for name in same] == [getattr(before, name) for name in same]


def test_a_recording_brings_the_settings_that_its_look_depended_on(tmp_path, capsys):
    file = tmp_path / "node.toml"
    file.write_text("cpu_slots = 9\n")
    assert main(["record", str(tmp_path / "new"), "--settings", str(file)]) == 0
    capsys.readouterr()
    assert found(capsys, "--replay", str(tmp_path / "new")).devices[0].slots == 9


def test_a_folder_with_something_in_it_is_not_recorded_into(tmp_path, capsys):
    (tmp_path / "mine").write_text("precious")
    assert main(["record", str(tmp_path)]) == cli.BAD_USAGE
    assert "not an empty folder" in capsys.readouterr().err
    assert [file.name for file in tmp_path.iterdir()] == ["mine"]


# --- as a process


def shell(line, **environment):
    told = {**os.environ, **environment}
    command = line.replace("llmgw-node", f"{sys.executable} -m workers.cli")
    argv = ["/bin/bash", "-o", "pipefail", "-c", command]
    return subprocess.run(argv, env=told, capture_output=True, text=True, check=False)


REPLAYED = "--replay tests/recorded/h100-infiniband"


@pytest.mark.parametrize("command", ["inventory", "inventory --json", "doctor --all", "doctor --json"])
def test_who_has_heard_enough_may_go(command):
    done = shell(f"llmgw-node {command} {REPLAYED} | true")
    assert done.returncode in {0, 1}  # as soon as `true` has gone, and it may go late
    assert done.stderr == ""


@pytest.mark.parametrize("command", ["inventory", "doctor --json"])
def test_a_full_disk_behind_the_output_is_told_in_a_line(command):
    done = shell(f"llmgw-node {command} {REPLAYED} > /dev/full")
    assert (done.returncode, done.stderr) == (
        1,
        "llmgw-node: the answer cannot be written: No space left on device\n",
    )


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_an_output_may_be_closed(closed):
    assert shell(f"llmgw-node inventory {REPLAYED} {closed}").returncode == 0


def test_a_locale_without_our_signs_does_not_cost_the_answer():
    done = shell(f"llmgw-node inventory {REPLAYED}", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert (done.returncode, done.stderr) == (0, "")
    assert "device   cpu" in done.stdout


def test_what_breaks_is_told_on_the_error_output_and_the_answer_stays_json(tmp_path):
    broken = "import sys, workers.cli as cli\nfrom workers.discovery import network\n"
    broken += "network.look = lambda *_: 1 / 0\nsys.exit(cli.main())\n"
    (tmp_path / "broken.py").write_text(broken)
    here = f"PYTHONPATH=. {sys.executable} {tmp_path}/broken.py"
    done = shell(f"{here} inventory --json {REPLAYED}")
    assert done.returncode == 0
    told = msgspec.json.decode(done.stdout, type=wire.Inventory)
    assert "ports.garbage" in {problem.code for problem in told.problems}
    assert "ZeroDivisionError" in done.stderr


@pytest.mark.parametrize("said", ["", ";", "x", "=mlx5_0", "x=", "x=mlx5_0:", "x=mlx5_0,mlx5_0"])
def test_a_fabric_that_cannot_be_meant_exits_with_two(capsys, said):
    assert main(["doctor", "--replay", "tests/recorded/t4", "--fabric", said]) == cli.BAD_USAGE
    assert "--fabric: cannot be used – give compute=mlx5_0,mlx5_1:2" in capsys.readouterr().err


def test_a_recording_made_without_nvml_is_looked_at_without_it(tmp_path, capsys):
    assert main(["record", str(tmp_path / "new"), "--nvml", "off", "--sysfs", str(tmp_path)]) == 0
    capsys.readouterr()
    problems = found(capsys, "--replay", str(tmp_path / "new")).problems
    assert not [problem for problem in problems if problem.code.startswith("nvml.")]
