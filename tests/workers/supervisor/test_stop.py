"""Draining, stopping, forgetting; orders that come twice, late, or for what nobody knows."""

import http.client
import json
import os
import signal
import threading
import time
from contextlib import closing

import psutil
import pytest

from llmgw.core.lifecycle import Happened
from llmgw.core.units import Bytes
from llmgw.core.wire import AnswerKind, Progress
from llmgw.core.world import State
from workers.supervisor.journal import TOMBSTONE_LASTS
from workers.system import RealMachine


def happenings(status):
    return [step.happened for step in status.steps]


def open_stream(status, tokens):
    """Begin a completion and return its connection once the first piece of it is here."""
    connection = http.client.HTTPConnection(status.host, status.port, timeout=10)
    body = json.dumps({"stream": True, "max_tokens": tokens})
    connection.request("POST", "/v1/chat/completions", body)
    answer = connection.getresponse()
    answer.readline()
    return connection, answer


def test_an_idle_engine_drains_and_ends(running):
    running.launch()
    running.heard.wait(State.READY)
    answer, status = running.stop(drain_s=30)
    assert (answer.kind, status.state) == (AnswerKind.TAKEN, State.DRAINING)
    stopped = running.heard.wait(State.STOPPED)
    assert happenings(stopped)[-3:] == [Happened.DRAIN_ASKED, Happened.STOP_ASKED, Happened.EXITED]
    assert stopped.failure is None
    assert "exit code 0" in stopped.steps[-1].why


def test_a_drain_gives_routers_time_to_hear_of_it(running):
    running.launch()
    running.heard.wait(State.READY)
    running.stop(drain_s=30)
    stopped = running.heard.wait(State.STOPPED)
    asked, drained = (step.at for step in stopped.steps[-3:-1])
    assert drained - asked >= running.timing.settle


def test_a_drain_waits_for_what_is_under_way(running):
    running.launch("--fake-token-s", "0.05")
    connection, answer = open_stream(running.heard.wait(State.READY), tokens=16)
    with closing(connection):
        running.stop(drain_s=30)
        assert answer.read().rstrip().endswith(b"[DONE]")
    assert running.heard.wait(State.STOPPED).steps[-2].why == "no request is left"


def test_a_drain_has_an_end(running):
    running.launch("--fake-token-s", "10")
    ready = running.heard.wait(State.READY)
    busy = threading.Thread(target=ask_in_vain, args=(ready,), daemon=True)
    busy.start()
    running.stop(drain_s=0.5)
    assert running.heard.wait(State.STOPPED).steps[-2].why == "the time to drain is over"
    busy.join(5)


def ask_in_vain(status):
    with closing(http.client.HTTPConnection(status.host, status.port, timeout=10)) as connection:
        try:
            connection.request("POST", "/v1/chat/completions", "{}")
            connection.getresponse()
        except (OSError, http.client.HTTPException):
            return


def test_a_second_order_may_shorten_the_drain(running):
    running.launch("--fake-token-s", "10")
    busy = threading.Thread(target=ask_in_vain, args=(running.heard.wait(State.READY),), daemon=True)
    busy.start()
    running.stop(drain_s=600)
    answer, _ = running.stop(order="now")
    assert answer.kind is AnswerKind.TAKEN
    running.heard.wait(State.STOPPED)
    busy.join(5)


def test_the_same_stop_again_changes_nothing(running):
    running.launch()
    running.heard.wait(State.READY)
    running.stop(drain_s=30)
    assert running.stop(drain_s=30)[0].kind is AnswerKind.REPEATED
    running.heard.wait(State.STOPPED)
    answer, status = running.stop(drain_s=30)
    assert (answer.kind, status.state) == (AnswerKind.REPEATED, State.STOPPED)


def test_an_engine_that_ignores_sigterm_is_killed(running):
    running.launch("--fake-ignore-term", "--fake-child")
    engine = psutil.Process(running.heard.wait(State.READY).pid)
    (child,) = engine.children()
    running.stop()
    assert "SIGKILL" in running.heard.wait(State.STOPPED).steps[-1].why
    assert psutil.wait_procs([child], timeout=5)[0]


def test_a_frozen_engine_is_stopped_too(running):
    running.launch()
    ready = running.heard.wait(State.READY)
    os.kill(ready.pid, signal.SIGSTOP)
    running.stop()
    running.heard.wait(State.STOPPED)
    assert not psutil.pid_exists(ready.pid)


def test_what_loads_is_stopped_without_a_drain(running):
    running.launch("--fake-load-s", "60")
    running.heard.wait(State.LOADING)
    _, status = running.stop(drain_s=600)
    assert status.state is State.STOPPING
    running.heard.wait(State.STOPPED)


class SlowFetcher:
    """Fetches until it is told to end."""

    def __init__(self, path):
        self.path = path
        self.began = threading.Event()
        self.given_up = threading.Event()
        self.finish = threading.Event()

    def fetch(self, source, progress):
        self.began.set()
        done = 0
        try:
            while not self.finish.wait(0.01):
                done += 1
                progress(Progress(Bytes(done), Bytes(1000)))
        except Exception:
            self.given_up.set()
            raise
        return self.path


@pytest.fixture
def slow(node):
    fetcher = SlowFetcher(node.weights)
    node.start(fetcher=fetcher)
    node.launch()
    assert fetcher.began.wait(5)
    yield fetcher
    fetcher.finish.set()


def test_a_fetch_tells_how_far_it_is(node, slow, eventually):
    told = eventually(lambda: [s.progress for s in node.heard.statuses if s.progress])
    assert told[0].total == 1000
    slow.finish.set()
    assert node.heard.wait(State.READY).progress is None


def test_a_fetch_that_nobody_wants_any_more_is_given_up(node, slow):
    _, status = node.stop(drain_s=600)
    assert status.state is State.STOPPED
    assert slow.given_up.wait(5)
    assert node.heard.story()[-1] == "stopped"


def test_a_worker_that_stops_does_not_wait_for_a_fetch(node, slow):
    before = time.monotonic()
    node.close()
    assert time.monotonic() - before < 2
    assert slow.given_up.wait(5)


def test_a_stop_before_its_launch_overtakes_it(running):
    answer, status = running.stop()
    assert (answer.kind, status.state) == (AnswerKind.TAKEN, State.STOPPED)
    answer, status = running.launch()
    assert (answer.kind, answer.code, status) == (AnswerKind.REFUSED, "order.overtaken", None)
    running.restart()
    assert running.launch()[0].code == "order.overtaken"
    assert running.stop()[0].kind is AnswerKind.REPEATED


def test_what_is_at_rest_can_be_forgotten(running):
    running.launch("--fake-exit", "1")
    running.heard.wait(State.FAILED)
    assert running.forget()[0].kind is AnswerKind.TAKEN
    assert running.supervisor.statuses() == ()
    assert not running.folder().exists()
    assert running.launch()[0].code == "order.overtaken"
    assert running.forget()[0].kind is AnswerKind.REPEATED


def test_what_runs_is_not_forgotten(running):
    running.launch()
    running.heard.wait(State.READY)
    answer, status = running.forget()
    assert (answer.kind, answer.code, status.state) == (AnswerKind.REFUSED, "order.invalid", State.READY)
    assert running.folder().exists()


class LaterMachine(RealMachine):
    """This machine, at another time."""

    def __init__(self, environment, at):
        super().__init__(environment)
        self.at = at

    def now(self):
        return self.at


def test_a_tombstone_is_kept_for_a_week(running):
    running.stop()
    in_a_week = running.machine.now() + TOMBSTONE_LASTS + 1
    running.restart(machine=LaterMachine(running.environment, in_a_week))
    assert not list((running.settings.state / "tombstones").iterdir())


def test_a_stop_for_what_has_failed_leaves_its_failure(running):
    running.launch("--fake-exit", "4")
    running.heard.wait(State.FAILED)
    answer, status = running.stop()
    assert (answer.kind, status.state, status.failure.exit_code) == (AnswerKind.REPEATED, State.FAILED, 4)


def test_orders_of_an_older_epoch_are_refused(running):
    assert running.hello(epoch=7)[0].kind is AnswerKind.TAKEN
    assert running.identity.epoch == 7
    answer, _ = running.launch(epoch=6)
    assert (answer.kind, answer.code) == (AnswerKind.REFUSED, "order.stale-epoch")
    assert "epoch 7" in answer.text
    assert running.launch(epoch=7)[0].kind is AnswerKind.TAKEN


def test_orders_for_another_node_are_refused(running):
    assert running.launch(node="n2")[0].code == "order.other-node"


def test_orders_for_another_state_folder_of_this_name_are_refused(running):
    answer, _ = running.launch(instance="somebody-else")
    assert (answer.kind, answer.code) == (AnswerKind.REFUSED, "order.other-instance")
    assert running.launch(instance=running.identity.instance)[0].kind is AnswerKind.TAKEN


def test_the_digest_tells_live_launches_apart(running):
    empty = running.supervisor.digest()
    running.launch()
    running.heard.wait(State.READY)
    serving = running.supervisor.digest()
    running.stop()
    running.heard.wait(State.STOPPED)
    assert len({empty, serving}) == 2
    assert running.supervisor.digest() == empty
