"""A worker that starts over a state folder: what it takes over, what it goes on with, what it leaves alone."""

import json
import os
import secrets
import shutil
import signal

import psutil
import pytest

from llmgw.core.wire import AnswerKind
from llmgw.core.world import State
from workers.supervisor import StateHeld


@pytest.fixture
def left(running):
    """A node whose worker has gone and whose engine serves."""
    running.launch()
    running.ready = running.heard.wait(State.READY)
    running.close()
    return running


def test_engines_outlive_the_worker_and_are_adopted(left):
    assert psutil.pid_exists(left.ready.pid)
    left.start()
    status = left.status()
    assert (status.state, status.pid, status.port) == (State.READY, left.ready.pid, left.ready.port)
    assert status.adopted
    assert status.steps == left.ready.steps
    assert left.launch()[0].kind is AnswerKind.REPEATED


def test_what_was_adopted_is_stopped_like_any_other(left):
    left.start()
    left.stop(drain_s=30)
    left.heard.wait(State.STOPPED)
    assert not psutil.pid_exists(left.ready.pid)


def test_the_end_of_what_was_adopted_is_seen(left):
    left.start()
    os.kill(left.ready.pid, signal.SIGKILL)
    assert left.heard.wait(State.FAILED).failure.failure_class in {"killed", "unknown"}


def test_its_port_is_not_given_to_another(left):
    left.start(engine_ports=(left.ready.port, left.ready.port))
    left.launch(launch="launch-2")
    assert left.heard.wait(State.FAILED, "launch-2").failure.failure_class == "port-in-use"


def test_loading_goes_on(running):
    running.launch("--fake-load-s", "1")
    running.heard.wait(State.LOADING)
    running.restart()
    assert running.heard.wait(State.READY).adopted


def test_a_drain_goes_on(running):
    running.launch()
    running.heard.wait(State.READY)
    running.stop(drain_s=600)
    running.restart()
    assert running.heard.wait(State.STOPPED).steps[-2].why == "no request is left"


def test_an_end_that_nobody_saw_is_a_failure(left):
    kill(left.ready.pid)
    left.start()
    failure = left.status().failure
    assert (failure.failure_class, failure.exit_code) == ("vanished", None)
    assert left.supervisor.findings() == ()


def test_an_end_that_was_asked_for_is_no_failure(running):
    running.launch("--fake-ignore-term")
    ready = running.heard.wait(State.READY)
    running.stop()
    running.close()
    kill(ready.pid)
    running.start()
    assert running.status().state is State.STOPPED


def kill(pid):
    process = psutil.Process(pid)
    process.kill()
    process.wait(5)


CHANGES: dict[str, dict[str, object]] = {
    "version": {"v": 2},
    "start-time": {"start_ticks": 1},
    "boot-id": {"boot_id": "another"},
    "argv": {"argv": ["/usr/bin/llama-server", "--model", "other"]},
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_pid_file_that_does_not_fit_is_reported_and_nothing_is_touched(left, what):
    path = left.folder() / "pid.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **CHANGES[what]}))
    assert_left_alone(left, f"pidfile.{what}")


@pytest.mark.parametrize("torn", ["", "{", '{"v": 1}', "\0" * 64, '{"v":1,"launch_id":"launch-1","pid":0}', "[" * 5000])
def test_a_torn_pid_file_is_reported_and_nothing_is_touched(left, torn):
    (left.folder() / "pid.json").write_text(torn)
    assert_left_alone(left, "pidfile.torn")


def assert_left_alone(left, code):
    before = (left.folder() / "pid.json").read_bytes()
    left.start()
    (finding,) = left.supervisor.findings()
    assert (finding.code, finding.launch_id) == (code, "launch-1")
    assert str(left.ready.pid) in finding.text
    failure = left.status().failure
    assert failure.failure_class == "vanished"
    assert "left alone" in failure.text
    assert psutil.Process(left.ready.pid).status() != psutil.STATUS_ZOMBIE
    assert left.stop()[0].kind is AnswerKind.REPEATED
    assert psutil.Process(left.ready.pid).status() != psutil.STATUS_ZOMBIE
    assert (left.folder() / "pid.json").read_bytes() == before


def test_a_pid_file_that_names_a_stranger_never_ends_the_stranger(left, processes):
    stranger = processes.start(["/bin/sleep", "600"])
    path = left.folder() / "pid.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "pid": stranger.pid, "pgid": stranger.pid}))
    left.start()
    left.stop()
    assert left.status().state is State.FAILED
    assert stranger.poll() is None


def test_without_its_pid_file_an_engine_is_known_by_its_environment(left):
    (left.folder() / "pid.json").unlink()
    left.start()
    assert (left.status().state, left.status().pid) == (State.READY, left.ready.pid)
    assert json.loads((left.folder() / "pid.json").read_bytes())["pid"] == left.ready.pid


def test_without_a_pid_file_and_without_a_process_a_served_launch_has_vanished(left):
    (left.folder() / "pid.json").unlink()
    kill(left.ready.pid)
    left.start()
    assert left.status().failure.failure_class == "vanished"


@pytest.mark.parametrize("torn", ["", '{"v": 1, "order": ', '{"v": 9}'])
def test_an_unusable_journal_is_reported_and_left(left, torn):
    (left.folder() / "launch.json").write_text(torn)
    left.start()
    (finding,) = left.supervisor.findings()
    assert finding.code == ("journal.version" if "9" in torn else "journal.torn")
    assert left.supervisor.statuses() == ()
    assert psutil.pid_exists(left.ready.pid)
    assert (left.folder() / "launch.json").read_text() == torn


def test_an_empty_folder_was_no_promise(left):
    (left.settings.state / "launches" / "launch-9").mkdir()
    left.start()
    assert [status.launch_id for status in left.supervisor.statuses()] == ["launch-1"]
    assert left.launch(launch="launch-9")[0].kind is AnswerKind.TAKEN


def test_what_is_at_rest_is_kept_until_it_is_forgotten(running):
    running.launch("--fake-exit", "5")
    running.heard.wait(State.FAILED)
    running.restart()
    assert running.status().failure.exit_code == 5


def test_a_second_worker_on_the_same_folder_is_refused(running):
    identity = running.identity
    with pytest.raises(StateHeld, match=f"pid {os.getpid()}"):
        type(identity).open(running.settings.state, running.machine)


def test_an_engine_whose_journal_is_gone_is_left_alone_and_told(running):
    launch = f"launch-{secrets.token_hex(8)}"  # engines are found on the whole machine, by this
    running.launch(launch=launch)
    pid = running.heard.wait(State.READY, launch).pid
    running.close()
    shutil.rmtree(running.settings.state)
    (found,) = running.start().findings()
    assert (found.code, found.launch_id) == ("engine.without-journal", launch)
    assert f"kill {pid}" in found.text
    assert psutil.pid_exists(pid)
