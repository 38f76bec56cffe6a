"""Ending what a stopped worker has left running: exactly that, and nothing while a worker holds the folder."""

import msgspec
import psutil
import pytest

from llmgw.core.lifecycle import Happened
from llmgw.core.world import State
from workers import cli
from workers.engines import process
from workers.supervisor import StateHeld, ending
from workers.supervisor.ending import end_engines
from workers.supervisor.journal import LaunchFolder


def left_behind(node, *arguments):
    """Run an engine, and close its worker."""
    node.start()
    node.launch(*arguments)
    pid = node.heard.wait(State.READY).pid
    node.close()
    return pid


def is_alive(pid):
    stat = process.stat_of(pid)
    return stat is not None and stat.is_alive


def test_an_engine_is_asked_to_end(node):
    pid = left_behind(node)
    (outcome,) = end_engines(node.settings.state, node.machine, 5.0)
    assert (outcome.launch_id, outcome.ended, outcome.text) == ("launch-1", True, f"ended, pid {pid}")
    assert not is_alive(pid)
    assert end_engines(node.settings.state, node.machine, 5.0) == ()


@pytest.mark.parametrize("arguments", [(), ("--fake-ignore-term",)])
def test_the_next_worker_knows_that_the_end_was_asked_for(node, arguments):
    pid = left_behind(node, *arguments)
    (outcome,) = end_engines(node.settings.state, node.machine, 0.5)
    node.start()
    status = node.status()
    assert (status.state, status.failure) == (State.STOPPED, None)
    assert [(step.happened, step.why) for step in status.steps[-2:]] == [
        (Happened.STOP_ASKED, "stopped on the machine by the operator"),
        (Happened.EXITED, outcome.text),
    ]
    assert str(pid) in outcome.text
    assert node.supervisor.findings() == ()


def test_an_engine_that_had_ended_before_is_still_a_failure(node):
    engine = psutil.Process(left_behind(node))
    engine.kill()
    engine.wait(5)
    end_engines(node.settings.state, node.machine, 5.0)
    node.start()
    assert node.status().failure.failure_class == "vanished"


def test_where_the_command_was_cut_short_the_next_worker_ends_the_engine(node):
    left_behind(node)
    folder = LaunchFolder(node.folder())
    ending._note(folder, Happened.STOP_ASKED, ending.ASKED, node.machine)
    node.start()
    assert node.heard.wait(State.STOPPED).failure is None


def test_a_journal_that_cannot_be_read_keeps_no_engine_running(node):
    left_behind(node)
    (node.folder() / "launch.json").write_text("{")
    (outcome,) = end_engines(node.settings.state, node.machine, 5.0)
    assert outcome.ended
    assert (node.folder() / "launch.json").read_text() == "{"


def test_one_that_does_not_listen_is_killed(node):
    pid = left_behind(node, "--fake-ignore-term")
    (outcome,) = end_engines(node.settings.state, node.machine, 0.2)
    assert outcome.text == f"killed, pid {pid}"
    assert not is_alive(pid)


def test_nothing_is_touched_while_a_worker_holds_the_folder(running):
    running.launch()
    pid = running.heard.wait(State.READY).pid
    with pytest.raises(StateHeld):
        end_engines(running.settings.state, running.machine, 5.0)
    assert is_alive(pid)


def test_a_process_that_is_not_for_certain_ours_is_left_alone(node):
    pid = left_behind(node)
    file = node.folder() / "pid.json"
    told = msgspec.json.decode(file.read_bytes())
    file.write_bytes(msgspec.json.encode(told | {"start_ticks": told["start_ticks"] + 1}))
    (outcome,) = end_engines(node.settings.state, node.machine, 5.0)
    assert not outcome.ended
    assert "left alone" in outcome.text
    assert is_alive(pid)


def test_the_command_says_what_it_did(node, capsys, tmp_path):
    settings = tmp_path / "node.toml"
    settings.write_text(f'state = "{node.settings.state}"\n')
    assert cli.main(["stop-engines", "--settings", str(settings)]) == 0
    assert capsys.readouterr().out == "no engine runs\n"
    pid = left_behind(node)
    capsys.readouterr()
    assert cli.main(["stop-engines", "--settings", str(settings), "--dry-run"]) == 1
    assert capsys.readouterr().out == f"launch-1  runs, pid {pid}\n"
    assert cli.main(["stop-engines", "--settings", str(settings)]) == 0
    assert capsys.readouterr().out == f"launch-1  ended, pid {pid}\n"
