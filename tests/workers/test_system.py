"""The real machine: tools that behave and tools that do not, files that are there and files that are not."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.fakes.machine import FakeMachine
from workers.ports import Machine, ToolResult
from workers.settings import NodeSettings
from workers.system import DIE_AT, RealMachine


@pytest.fixture
def machine():
    return RealMachine()


def test_both_machines_keep_the_protocol():
    machines: tuple[Machine, ...] = (RealMachine(), FakeMachine())
    assert all(machine.cpu_count() > 0 for machine in machines)


def test_a_tool_and_its_output(machine):
    assert machine.output(("/bin/sh", "-c", "echo out; echo err >&2; exit 3"), 5) == ToolResult(3, "out\n", "err\n")


def test_a_tool_gets_no_input_and_plain_english(machine):
    assert machine.output(("/bin/sh", "-c", "cat; echo $LC_ALL"), 5) == ToolResult(0, "C\n")


def test_a_tool_that_prints_garbage_is_read_all_the_same(machine):
    assert machine.output(("/usr/bin/printf", r"\377ok"), 5).out == "\N{REPLACEMENT CHARACTER}ok"


def test_a_tool_that_is_missing_or_no_program_is_an_answer(machine, tmp_path):
    (tmp_path / "text").write_text("no program")
    assert machine.output(("/nowhere/tool",), 5) == ToolResult(None, problem="not found")
    assert machine.output((str(tmp_path / "text"),), 5).problem.startswith("not allowed")


def test_a_tool_that_hangs_is_ended_with_its_children(machine):
    before = time.monotonic()
    result = machine.output(("/bin/sh", "-c", "echo early; sleep 600 & wait"), 0.3)
    assert result == ToolResult(None, "early\n", problem="no answer within 0.3 s")
    assert not result.ok
    assert time.monotonic() - before < 3


# --- files and programs


def test_files(machine, tmp_path):
    (tmp_path / "b").write_bytes(b"\xff text")
    (tmp_path / "a").mkdir()
    assert machine.names_in(tmp_path) == ("a", "b")
    assert machine.names_in(tmp_path / "nowhere") == ()
    assert machine.read_text(tmp_path / "b") == "\N{REPLACEMENT CHARACTER} text"
    assert machine.read_text(tmp_path / "nowhere") is None


def test_disk_of_a_folder_that_is_not_made_yet(machine, tmp_path):
    disk = machine.disk(tmp_path / "not" / "yet")
    assert 0 < disk.free <= disk.total


def test_programs_by_name_and_by_path(tmp_path):
    program = tmp_path / "tool"
    program.write_text("#!/bin/sh\n")
    machine = RealMachine({"PATH": str(tmp_path)})
    assert machine.which("tool") is None
    program.chmod(0o755)
    assert machine.which("tool") == machine.which(str(program)) == str(program)


def test_the_folder_of_tools_comes_before_path_and_the_system_s_own_programs_after_it(tmp_path):
    for folder in ("ours", "path"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "sminfo").write_text("#!/bin/sh\n")
        (tmp_path / folder / "sminfo").chmod(0o755)
    environment = {"PATH": str(tmp_path / "path")}
    assert RealMachine(environment).which("sminfo") == str(tmp_path / "path" / "sminfo")
    ours = RealMachine(environment, tools=tmp_path / "ours")
    assert ours.which("sminfo") == str(tmp_path / "ours" / "sminfo")
    assert ours.which("ldconfig") in {"/usr/sbin/ldconfig", "/sbin/ldconfig"}


def test_the_settings_say_where_the_kernel_s_trees_are(tmp_path):
    (tmp_path / "class").mkdir()
    (tmp_path / "class" / "name").write_text("made up\n")
    (tmp_path / "device").symlink_to("../0000:3b:00.0")
    machine = RealMachine.of(NodeSettings(sysfs=tmp_path))
    assert machine.read_text(Path("/sys/class/name")) == "made up\n"
    assert machine.names_in(Path("/sys")) == ("class", "device")
    assert machine.link(Path("/sys/device")) == "../0000:3b:00.0"
    assert machine.read(Path("/sys/class")).problem == "Is a directory"
    assert machine.read(Path("/sys/none")).is_missing


def test_modules_are_found_without_being_loaded(machine):
    assert machine.has_module("antigravity")
    assert "antigravity" not in sys.modules
    assert not machine.has_module("no_such_module")


def test_ids_differ_and_clocks_run(machine):
    assert machine.new_id() != machine.new_id()
    assert machine.now() > 1_700_000_000
    assert machine.boot_id() == machine.boot_id()
    assert machine.monotonic() <= machine.monotonic()


def test_a_checkpoint_kills_only_where_it_is_told_to():
    code = "from workers.system import RealMachine; m = RealMachine(); m.checkpoint('a'); m.checkpoint('b'); print(1)"
    ends = {
        point: subprocess.run([sys.executable, "-c", code], env={DIE_AT: point}, check=False, capture_output=True)
        for point in ("", "b", "c")
    }
    assert [done.returncode for done in ends.values()] == [0, -signal.SIGKILL, 0]
