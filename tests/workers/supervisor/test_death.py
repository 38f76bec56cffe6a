"""A worker that is killed at any step of a launch: the next one goes on, and the engine is started exactly once."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import msgspec
import psutil
import pytest

from llmgw.core import wire
from llmgw.core.wanted import Source
from tests.builders import a_launch_order, a_stop_order
from tests.fakes.engine import fake_llama_server
from workers.system import DIE_AT


class Worker:
    """A worker in a process of its own, and what it says."""

    def __init__(self, processes, folder, ports, die_at=""):
        self.state = folder / "state"
        program = folder / "llama-server"
        argv = [sys.executable, "-m", "tests.fakes.node", self.state, program, *ports]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self.process = processes.start([str(word) for word in argv], env={DIE_AT: die_at}, **pipes)
        self.said = []
        self._news = threading.Condition()
        self._ears = threading.Thread(target=self._listen, daemon=True)
        self._ears.start()

    def _listen(self):
        for line in self.process.stdout:
            with self._news:
                self.said.append(json.loads(line))
                self._news.notify_all()

    def hear(self, key, value=None):
        """Wait for something said with this key, and this value if one is given."""

        def found():
            return [told for told in self.said if key in told and value in (None, told[key])]

        with self._news:
            assert self._news.wait_for(found, 20), self.said
            return found()[0]

    def order(self, order):
        self.process.stdin.write(msgspec.json.encode(wire.to_wire(order)) + b"\n")
        self.process.stdin.flush()

    def kill(self):
        self.process.kill()
        self.wait()

    def wait(self):
        code = self.process.wait(20)
        self._ears.join(5)
        return code

    def close(self):
        self.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            pipe.close()

    def engines(self):
        """The pids of all leaders that belong to the launch."""
        return [p.pid for p in psutil.process_iter() if self._is_engine(p)]

    def _is_engine(self, process):
        try:
            return process.cwd().startswith(str(self.state)) and os.getsid(process.pid) == process.pid
        except (psutil.Error, OSError):
            return False


@pytest.fixture
def worker(processes, tmp_path, worker_ports) -> Iterator:
    """Start workers one after the other over one state folder."""
    fake_llama_server(tmp_path)
    (tmp_path / "weights.gguf").write_bytes(b"GGUF")
    started = []

    def start(die_at=""):
        started.append(Worker(processes, tmp_path, worker_ports, die_at))
        return started[-1]

    yield start
    for one in started:
        one.close()


def launch(tmp_path, **more):
    return a_launch_order(source=Source(f"file://{tmp_path}/weights.gguf"), **more)


STEPS = ("order-taken", "journal-written", "process-started", "pid-file-written")


@pytest.mark.parametrize("step", STEPS)
def test_killed_at_any_step_the_engine_is_started_exactly_once(worker, tmp_path, step):
    first = worker(step)
    first.hear("kept")
    first.order(launch(tmp_path))
    assert first.wait() == -9
    second = worker()
    adopted = second.hear("kept")
    assert adopted["findings"] == []
    # The order was never acknowledged, so it comes again.
    second.order(launch(tmp_path))
    answer = second.hear("order_id", "order-1")
    assert answer["kind"] == ("taken" if step == "order-taken" else "repeated")
    ready = second.hear("state", "ready")
    assert second.engines() == [ready["pid"]]


def test_killed_while_it_serves_the_engine_is_adopted(worker, tmp_path):
    first = worker()
    first.hear("kept")
    first.order(launch(tmp_path))
    pid = first.hear("state", "ready")["pid"]
    first.kill()
    second = worker()
    (status,) = second.hear("kept")["kept"]
    assert (status["state"], status["pid"], status["adopted"]) == ("ready", pid, True)
    psutil.Process(pid).kill()
    failure = second.hear("state", "failed")["failure"]
    # Nobody tells a stranger's exit code; it is said that it is not known.
    assert (failure["exit_code"], failure["signal"]) == (None, None)
    assert "not seen" in failure["text"]


def test_killed_while_it_loads_it_gets_ready_all_the_same(worker, tmp_path):
    first = worker()
    first.hear("kept")
    first.order(launch(tmp_path, arguments=("--fake-load-s", "2")))
    pid = first.hear("state", "loading")["pid"]
    first.kill()
    assert worker().hear("state", "ready")["pid"] == pid


def test_killed_while_it_drains_the_drain_goes_on(worker, tmp_path):
    first = worker()
    first.hear("kept")
    first.order(launch(tmp_path))
    first.hear("state", "ready")
    first.order(a_stop_order(drain_s=60.0))
    first.hear("state", "draining")
    first.kill()
    second = worker()
    second.hear("state", "stopped")
    assert second.engines() == []


def test_a_worker_that_ends_in_order_leaves_its_engines(worker, tmp_path):
    first = worker()
    first.hear("kept")
    first.order(launch(tmp_path))
    pid = first.hear("state", "ready")["pid"]
    first.process.stdin.close()
    assert first.wait() == 0
    assert psutil.pid_exists(pid)


def test_two_workers_never_share_a_folder(worker):
    first = worker()
    first.hear("kept")
    second = worker()
    refused = second.hear("refused")["refused"]
    assert f"pid {first.process.pid}" in refused
    assert second.wait() == 3


def test_a_killed_worker_does_not_keep_the_folder(worker):
    first = worker()
    first.hear("kept")
    first.kill()
    assert worker().hear("kept")
