"""Starting behind the gate, knowing again, ending: with real processes."""

import os
import signal
import sys
from contextlib import suppress

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as some
from msgspec.structs import replace

from tests.processes import MARK
from workers.engines import process
from workers.engines.process import EngineProcess, Fingerprint, Gone, NotOurs

SLEEP = ("/bin/sleep", "600")
BOOT = "this boot"


@pytest.fixture
def at_gate(processes, tmp_path):
    """Start a process and leave it at its gate."""

    def start(argv=SLEEP):
        environment = {"PATH": "/usr/bin:/bin", MARK: processes.mark, process.LAUNCH_ID: "launch-1"}
        (tmp_path / "launch-1").mkdir(exist_ok=True)
        return process.spawn(argv, environment, tmp_path / "launch-1", tmp_path / "engine.log")

    return start


def fingerprint(child, argv=SLEEP):
    told = {"pid": child.pid, "pgid": child.pid, "start_ticks": child.start_ticks, "boot_id": BOOT}
    return Fingerprint(launch_id="launch-1", argv=argv, **told)


@pytest.fixture
def engine(at_gate, eventually):
    child = at_gate()
    engine = child.release(fingerprint(child))
    eventually(lambda: process.argv_of(child.pid) == SLEEP)
    yield engine
    with suppress(ProcessLookupError):
        os.killpg(engine.pid, signal.SIGKILL)
    engine.close()


def test_a_closed_gate_ends_the_process(at_gate, tmp_path):
    child = at_gate(("/bin/sh", "-c", "echo ran"))
    child.discard()
    assert not psutil.pid_exists(child.pid)
    assert (tmp_path / "engine.log").read_bytes() == b""


def test_a_killed_parent_is_a_closed_gate(at_gate, eventually):
    child = at_gate()
    os.close(child.gate)  # what the kernel does for a process that dies
    held = EngineProcess(fingerprint(child), child.descriptor)
    eventually(held.has_ended)
    assert held.end() == process.End(exit_code=process.GATE_CLOSED)
    held.close()


def test_behind_the_gate_it_is_the_engine_itself(engine, tmp_path):
    stat = process.stat_of(engine.pid)
    assert stat is not None
    assert stat.pgrp == stat.session == engine.pid
    assert process.argv_of(engine.pid) == SLEEP
    assert process.leaders_by_launch(tmp_path)["launch-1"] == engine.pid


def test_an_engine_of_another_node_on_this_machine_is_not_found(engine, tmp_path):
    (tmp_path / "other" / "launch-1").mkdir(parents=True)
    assert process.leaders_by_launch(tmp_path / "other") == {}


def test_output_is_appended_to_the_log(at_gate, tmp_path, eventually):
    (tmp_path / "engine.log").write_text("before\n")
    argv = ("/bin/sh", "-c", "echo out; echo err >&2; exit 3")
    child = at_gate(argv)
    held = child.release(fingerprint(child, argv))
    eventually(held.has_ended)
    assert held.end() == process.End(exit_code=3)
    assert (tmp_path / "engine.log").read_text() == "before\nout\nerr\n"
    held.close()


def test_the_right_fingerprint_takes_hold(engine):
    held = process.hold(engine.fingerprint, BOOT)
    assert isinstance(held, EngineProcess)
    assert not held.has_ended()
    held.close()


def test_a_process_at_its_gate_is_ours_too(at_gate):
    child = at_gate()
    held = process.hold(fingerprint(child), BOOT)
    assert isinstance(held, EngineProcess)
    assert held.is_at_gate()
    held.close()
    child.discard()


@pytest.mark.parametrize(
    ("other", "what"),
    [({"start_ticks": 1}, "start-time"), ({"boot_id": "before"}, "boot-id"), ({"argv": ("/bin/sleep", "1")}, "argv")],
)
def test_a_wrong_fingerprint_does_not(engine, other, what):
    found = process.hold(replace(engine.fingerprint, **other), BOOT)
    assert isinstance(found, NotOurs)
    assert found.what == what
    assert found.detail


def test_nobody_and_a_zombie_are_gone(engine, eventually):
    engine.signal_group(signal.SIGKILL)
    eventually(engine.has_ended)
    assert process.hold(engine.fingerprint, BOOT) == Gone()  # not waited for: a zombie
    assert engine.end() == process.End(signal=9)
    assert process.hold(engine.fingerprint, BOOT) == Gone()


def test_an_end_is_told_only_to_the_parent(engine, eventually):
    stranger = process.hold(engine.fingerprint, BOOT)
    assert isinstance(stranger, EngineProcess)
    engine.signal_group(signal.SIGTERM)
    eventually(stranger.has_ended)
    assert engine.end() == process.End(signal=15)
    assert stranger.end() == process.End()
    stranger.close()


def test_leftovers_of_the_group_are_ended_and_others_are_not(at_gate, processes, eventually):
    outsider = processes.start(list(SLEEP))
    argv = (sys.executable, "-ISc", "import os, time; os.fork(); os.fork(); time.sleep(600)")
    child = at_gate(argv)
    held = child.release(fingerprint(child, argv))
    eventually(lambda: len(list(held.members())) == 3)
    os.kill(held.pid, signal.SIGKILL)
    eventually(held.has_ended)
    assert held.end_leftovers() == 3
    eventually(lambda: not list(held.members()))
    held.end()
    assert outsider.poll() is None
    held.close()


def test_a_recycled_pid_keeps_its_group(engine):
    recycled = EngineProcess(replace(engine.fingerprint, start_ticks=1), os.pidfd_open(engine.pid))
    assert recycled.end_leftovers() == 0
    recycled.close()


def test_a_program_that_is_not_there_is_told_in_the_log(at_gate, tmp_path, eventually):
    argv = ("/nowhere/llama-server",)
    child = at_gate(argv)
    held = child.release(fingerprint(child, argv))
    eventually(held.has_ended)
    assert held.end().exit_code in process.NEVER_RAN
    assert "not found" in (tmp_path / "engine.log").read_text()
    held.close()


@pytest.mark.parametrize(
    ("shown", "runs"),
    [
        (("llama-server", "--port", "1"), True),
        (("/usr/bin/python3", "llama-server", "--port", "1"), True),
        (("llama-server", "--port", "2"), False),
        (("--port", "1"), True),
        ((), False),
        ((*process.GATE, "llama-server", "--port", "1"), False),
    ],
)
def test_arguments_tell_who_runs(shown, runs):
    assert process.runs(shown, ("llama-server", "--port", "1")) is runs


def test_a_command_without_arguments_is_told_by_its_name():
    assert process.runs(("engine",), ("engine",))
    assert not process.runs(("other",), ("engine",))


def test_a_process_may_have_any_name():
    row = "7 (a) b ) S 1 7 7 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 12345 1000"
    assert process.parse_stat(row) == process.Stat("S", 7, 7, 12345)


@given(text=some.text(max_size=200))
def test_any_stat_is_read_without_an_exception(text):
    process.parse_stat(text)


@pytest.mark.parametrize(
    ("end", "text"),
    [
        (process.End(), "ended, exit code unknown"),
        (process.End(exit_code=3), "ended with exit code 3"),
        (process.End(signal=9), "ended by SIGKILL"),
        (process.End(signal=63), "ended by signal 63"),
    ],
)
def test_an_end_in_words(end, text):
    assert end.text() == text
