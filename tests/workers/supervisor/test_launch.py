"""From an order to an engine that serves, or to a failure that says why."""

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from llmgw.core.lifecycle import Happened
from llmgw.core.units import Seconds
from llmgw.core.wire import AnswerKind
from llmgw.core.world import State
from workers.engines import probe
from workers.supervisor.launch import MOST_STEPS
from workers.system import RealMachine


def test_an_order_becomes_a_serving_engine(running):
    answer, status = running.launch()
    assert (answer.kind, status.state) == (AnswerKind.TAKEN, State.PLACED)
    ready = running.heard.wait(State.READY)
    assert running.heard.story()[:5] == ["fetching", "launching", "loading", "ready"]
    first, last = running.settings.engine_ports
    assert first <= ready.port <= last
    assert [step.happened for step in ready.steps] == [
        Happened.FETCH_BEGUN,
        Happened.LAUNCH_BEGUN,
        Happened.PROCESS_STARTED,
        Happened.PROBE_PASSED,
    ]
    assert probe.ask(ready.host, ready.port, "/v1/models", 2).status == 200


def test_the_engine_is_its_own_session_with_little_of_our_environment(node):
    node.environment |= {"REDIS_URL": "redis://:secret@10.0.0.1", "HTTP_PROXY": "http://10.0.0.2", "HF_TOKEN": "hf_x"}
    node.start()
    node.launch()
    engine = psutil.Process(node.heard.wait(State.READY).pid)
    assert os.getsid(engine.pid) == os.getpgid(engine.pid) == engine.pid
    environment = engine.environ()
    assert environment["LLMGW_LAUNCH_ID"] == "launch-1"
    assert not {"REDIS_URL", "HTTP_PROXY", "HF_TOKEN"} & set(environment)
    assert engine.cwd() == str(node.folder())
    assert str(Path(f"/proc/{engine.pid}/fd/0").readlink()) == "/dev/null"


def test_the_pid_file_says_who_the_engine_is(running):
    running.launch()
    ready = running.heard.wait(State.READY)
    told = json.loads((running.folder() / "pid.json").read_bytes())
    assert (told["v"], told["pid"], told["pgid"]) == (1, ready.pid, ready.pid)
    assert told["boot_id"] == running.machine.boot_id()
    assert told["argv"][0] == running.settings.llama_server


def test_an_engine_that_keeps_changing_its_mind_makes_no_report_longer(running):
    running.launch()
    running.heard.wait(State.READY)
    launch = running.supervisor._launches["launch-1"]
    for _ in range(MOST_STEPS):
        launch.happen(Happened.PROBE_FAILED, "no-answer")
        launch.happen(Happened.PROBE_PASSED)
    assert len(running.status().steps) == MOST_STEPS
    assert len(running.heard.story()) >= 2 * MOST_STEPS
    running.stop()
    assert running.heard.wait(State.STOPPED).steps[-1].happened is Happened.EXITED


def test_an_order_that_comes_again_starts_nothing(running):
    running.launch()
    ready = running.heard.wait(State.READY)
    answer, status = running.launch()
    assert (answer.kind, status.state, status.pid) == (AnswerKind.REPEATED, State.READY, ready.pid)
    assert engines_of(running) == [ready.pid]


def test_the_same_order_at_the_same_time_starts_one_engine(running):
    with ThreadPoolExecutor(8) as pool:
        answers = [done.result()[0].kind for done in [pool.submit(running.launch) for _ in range(8)]]
    assert sorted(answers) == [AnswerKind.REPEATED] * 7 + [AnswerKind.TAKEN]
    ready = running.heard.wait(State.READY)
    assert engines_of(running) == [ready.pid]


def test_launches_get_ports_of_their_own(running):
    for number in range(3):
        running.launch(launch=f"launch-{number}")
    ports = {running.heard.wait(State.READY, f"launch-{number}").port for number in range(3)}
    assert len(ports) == 3


def test_without_a_free_port_it_says_which_range(node):
    first, _ = node.settings.engine_ports
    node.start(engine_ports=(first, first))
    node.launch()
    node.heard.wait(State.READY)
    node.launch(launch="launch-2")
    failure = node.heard.wait(State.FAILED, "launch-2").failure
    assert failure.failure_class == "port-in-use"
    assert str(first) in failure.text


def test_weights_that_cannot_be_had_fail_the_launch(running):
    running.weights.unlink()
    running.launch()
    failed = running.heard.wait(State.FAILED)
    assert failed.failure.failure_class == "model-missing"
    assert str(running.weights) in failed.failure.text
    assert failed.pid is None


def test_an_engine_that_is_not_installed_fails_the_launch(node):
    node.start(llama_server="/nowhere/llama-server")
    node.launch()
    assert node.heard.wait(State.FAILED).failure.failure_class == "engine-missing"


def test_a_program_that_cannot_be_executed_fails_the_launch(node):
    broken = node.weights.with_name("broken")
    broken.write_text("#!/nowhere/interpreter\n")
    broken.chmod(0o755)
    node.start(llama_server=str(broken))
    node.launch()
    failure = node.heard.wait(State.FAILED).failure
    assert failure.failure_class == "launch-failed"
    assert "not found" in failure.text


def test_an_engine_that_exits_is_told_with_its_last_words(running):
    running.launch("--fake-exit", "3", "--fake-say", "unknown model architecture: 'fake'")
    failure = running.heard.wait(State.FAILED).failure
    assert (failure.exit_code, failure.signal, failure.failure_class) == (3, None, "arch-unsupported")
    assert failure.text.startswith("smollm2/1 on n1: ")
    assert failure.tail[-1] == "unknown model architecture: 'fake'"


def test_an_engine_that_crashes_is_told_by_its_signal(running):
    running.launch("--fake-abort-after-s", "0.1")
    failure = running.heard.wait(State.FAILED).failure
    assert (failure.exit_code, failure.signal, failure.failure_class) == (None, 6, "crashed")


def test_a_port_that_was_taken_meanwhile_is_told(running):
    running.launch("--fake-no-bind")
    assert running.heard.wait(State.FAILED).failure.failure_class == "port-in-use"


def test_the_end_of_a_serving_engine_is_seen_at_once(node):
    node.timing = type(node.timing)()  # as slow as in life
    node.start()
    node.launch()
    psutil.Process(node.heard.wait(State.READY).pid).kill()
    before = time.monotonic()
    failure = node.heard.wait(State.FAILED).failure
    assert time.monotonic() - before < 0.5
    assert (failure.signal, failure.failure_class) == (9, "killed")


def test_what_an_engine_leaves_behind_is_ended(running):
    running.launch("--fake-child")
    engine = psutil.Process(running.heard.wait(State.READY).pid)
    (child,) = engine.children()
    engine.kill()
    running.heard.wait(State.FAILED)
    assert psutil.wait_procs([child], timeout=5)[0]


def test_loading_is_not_serving(running):
    running.launch("--fake-load-s", "0.4")
    loading = running.heard.wait(State.LOADING)
    ready = running.heard.wait(State.READY)
    assert ready.steps[-1].at - loading.steps[-1].at >= 0.4


def test_another_name_never_serves(running, eventually):
    running.launch("--fake-name", "other")
    running.heard.wait(State.LOADING)
    eventually(lambda: [found.code for found in running.supervisor.findings()] == ["probe.foreign"])
    assert running.status().state is State.LOADING


def test_a_stranger_on_the_port_never_serves(node, processes, eventually):
    deaf = node.weights.with_name("deaf")
    deaf.write_text("#!/bin/sh\nexec sleep 600\n")
    deaf.chmod(0o755)
    fake = node.settings.llama_server
    node.start(llama_server=str(deaf))
    node.launch()
    port = node.heard.wait(State.LOADING).port
    processes.start([fake, "--port", str(port), "--alias", "smollm2"])
    eventually(lambda: [found.code for found in node.supervisor.findings()] == ["probe.foreign"])
    assert "not this launch's" in node.supervisor.findings()[0].text
    assert node.status().state is State.LOADING
    eventually(lambda: node.heard.findings_changed == 1)
    node.stop()
    node.heard.wait(State.STOPPED)
    assert (node.supervisor.findings(), node.heard.findings_changed) == ((), 2)


def test_a_wrapper_that_stays_may_serve_by_its_child(node):
    wrapper = node.weights.with_name("wrapper")
    wrapper.write_text(f'#!/bin/sh\n{node.settings.llama_server} "$@"\nexit 7\n')
    wrapper.chmod(0o755)
    node.start(llama_server=str(wrapper))
    node.launch()
    engine = psutil.Process(node.heard.wait(State.READY).pid)
    assert engine.children()
    node.stop()
    node.heard.wait(State.STOPPED)
    assert not engines_of(node)


def test_an_engine_that_stops_answering_loads_again_and_comes_back(node):
    well = node.weights.with_name("well")
    node.start()
    node.launch("--fake-sick-after-s", "0.5", "--fake-well-file", str(well))
    pid = node.heard.wait(State.READY).pid
    loading = node.heard.wait(State.LOADING, count=2)
    assert loading.steps[-1].happened is Happened.PROBE_FAILED
    assert "3 looks in a row" in loading.steps[-1].why
    well.touch()
    assert node.heard.wait(State.READY, count=2).pid == pid


class LaterMachine(RealMachine):
    """Its clock has gone on by an hour while nobody watched."""

    def now(self):
        return Seconds(super().now() + 3600)


def test_an_engine_that_hangs_while_it_loads_is_ended(node):
    node.start(load_timeout_s=1)
    node.launch("--fake-load-s", "600", "--fake-say", "loading tensors", "--fake-child", "--fake-ignore-term")
    loading = node.heard.wait(State.LOADING)
    failed = node.heard.wait(State.FAILED)
    assert failed.failure.failure_class == "never-ready"
    assert "in time: 1 s" in failed.failure.text
    assert failed.failure.tail[-1] == "loading tensors"
    assert failed.steps[-1].at - loading.steps[-1].at >= 1
    assert not engines_of(node)


def test_the_time_to_load_goes_on_while_no_worker_is_there(running):
    running.launch("--fake-load-s", "600")
    running.heard.wait(State.LOADING)
    running.restart(machine=LaterMachine(running.environment))
    assert running.heard.wait(State.FAILED).failure.failure_class == "never-ready"


def test_without_a_limit_a_load_may_take_for_ever(running):
    running.launch("--fake-load-s", "1")
    running.heard.wait(State.LOADING)
    running.restart(machine=LaterMachine(running.environment), load_timeout_s=0)
    running.heard.wait(State.READY)


def test_an_engine_that_has_served_is_not_ended_for_being_slow(node, eventually):
    well = node.weights.with_name("well")
    node.start(load_timeout_s=1)
    node.launch("--fake-sick-after-s", "0.5", "--fake-well-file", str(well))
    pid = node.heard.wait(State.READY).pid
    since = node.heard.wait(State.LOADING, count=2).steps[-1].at
    eventually(lambda: node.machine.now() > since + 1.2)
    well.touch()
    assert node.heard.wait(State.READY, count=2).pid == pid
    # Nor by the next worker, which has only the journal to go by.
    well.unlink()
    node.heard.wait(State.LOADING, count=3)
    node.restart(machine=LaterMachine(node.environment))
    well.touch()
    assert node.heard.wait(State.READY).pid == pid


def test_a_chatty_engine_does_not_fill_the_disk(node, eventually):
    node.start(engine_log_bytes=10_000)
    node.launch("--fake-print", "20000", "--fake-load-s", "1")
    log = node.folder() / "engine.log"
    node.heard.wait(State.READY)
    eventually(lambda: log.stat().st_size <= 10_000)
    assert log.with_name("engine.log.1").stat().st_size <= 10_000
    assert node.status().tail[-1] == "line 19999 of a chatty engine"


def test_a_bug_of_ours_fails_the_launch_instead_of_hanging_it(node):
    class Broken:
        def fetch(self, source, progress):
            raise ZeroDivisionError("of all things")

    node.start(fetcher=Broken())
    node.launch()
    assert "of all things" in node.heard.wait(State.FAILED).failure.text


@pytest.mark.parametrize("launch_id", ["..", "a/b", "", "x" * 200])
def test_a_launch_id_that_is_a_path_is_refused(running, launch_id):
    answer, status = running.launch(launch=launch_id)
    assert (answer.kind, answer.code, status) == (AnswerKind.REFUSED, "order.invalid", None)


def engines_of(node):
    """The pids of every living engine of this node."""
    below = str(node.settings.state)
    found = []
    for process in psutil.process_iter():
        try:
            if process.cwd().startswith(below) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except psutil.Error:
            continue
    return found
