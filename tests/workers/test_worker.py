"""The real worker process against a real Redis: joins, obeys, answers ticks, survives outages, leaves engines."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from llmgw.core import wire
from llmgw.core.units import replica_id
from llmgw.core.wanted import Source
from llmgw.core.world import State
from tests.fakes.engine import fake_llama_server
from tests.processes import Processes
from tests.servers import Valkey, eventually, free_port
from tests.workers.control import Control
from tests.workers.silence import Silence
from workers.report import BrokerAway

LLMGW_NODE = str(Path(sys.executable).with_name("llmgw-node"))


@dataclass
class Site:
    """One node, its broker and its control plane."""

    folder: Path
    redis: Valkey
    control: Control
    processes: Processes
    ticks: int = 1000

    @property
    def environment(self):
        port = free_port()
        return {
            "LLMGW_NODE_ID": "n1",
            "LLMGW_NODE_REDIS_URL": self.redis.url,
            "LLMGW_NODE_STATE": str(self.folder / "state"),
            "LLMGW_NODE_LLAMA_SERVER": str(fake_llama_server(self.folder)),
            "LLMGW_NODE_ENGINE_PORTS": f"{port}-{min(port + 20, 65535)}",
            "DJANGO_SETTINGS_MODULE": "llmgw.settings",  # a node must not mind
        }

    @property
    def log(self):
        return (self.folder / "worker.log").read_text()

    def start(self, *words, **environment):
        with (self.folder / "worker.log").open("ab") as log:
            argv = [LLMGW_NODE, "run", *words]
            how = {"env": self.environment | environment, "stdout": log, "stderr": log}
            return self.processes.start(argv, **how)

    def start_ready(self, **environment):
        """Start a worker and return when it is registered under the control plane's epoch and hears."""
        worker = self.start(**environment)
        eventually(lambda: self.control.of(wire.Registration), timeout=20)
        hello = self.control.send(wire.HelloOrder)
        eventually(lambda: hello in self.control.answers(), timeout=20)
        return worker

    def launch(self, launch_id, *arguments, trace=""):
        weights = self.folder / "model.gguf"
        weights.write_bytes(b"GGUF")
        return self.control.send(
            wire.LaunchOrder,
            launch_id=launch_id,
            replica=replica_id("tiny", 1),
            model="tiny",
            attempt=1,
            engine="llamacpp",
            source=Source(weights.as_uri()),
            devices=("cpu",),
            arguments=arguments,
            trace=trace,
        )

    def wait_for(self, launch_id, state):
        def reached():
            return [status for status in self.control.statuses(launch_id) if status.state is state]

        return eventually(reached, timeout=20)[-1]

    def answered(self, order):
        return eventually(lambda: self.control.answers().get(order), timeout=10)

    def hears_now(self):
        """Send a tick, and tell whether one of the last few was answered."""
        self.ticks += 1
        self.control.tick(self.ticks)
        return (heard(self.redis) or 0) > 1000

    def answers_ticks(self, number):
        """Send a tick, and return when it is answered."""
        self.control.tick(number)
        eventually(lambda: heard(self.redis) == number, timeout=5)


def heard(redis):
    with redis.client() as client:
        return client.zscore(wire.HEARD_KEY, "n1")


@pytest.fixture
def site(tmp_path, own_redis, processes):
    control = Control(own_redis.url)
    yield Site(tmp_path, own_redis, control, processes)
    control.close()


# --- joining ------------------------------------------------------------------------------------------------------


def test_a_worker_registers_and_again_under_the_epoch_it_is_told(site):
    begun = time.monotonic()
    site.start()
    first = eventually(lambda: site.control.of(wire.Registration), timeout=20)[0]
    print(f"registered after {time.monotonic() - begun:.2f} s")
    assert (first.node, first.epoch, first.address) == ("n1", 0, "127.0.0.1")
    assert [device.id for device in first.inventory.devices] == ["cpu"]
    assert "llamacpp" in first.inventory.engines
    site.control.epoch = 4
    hello = site.control.send(wire.HelloOrder)
    again = eventually(lambda: [told for told in site.control.of(wire.Registration) if told.epoch == 4])[0]
    assert again.seq > first.seq
    assert eventually(lambda: site.control.answers().get(hello)).kind is wire.AnswerKind.TAKEN


def test_a_restarted_worker_is_the_same_node_with_higher_numbers(site):
    worker = site.start_ready()
    worker.terminate()
    assert worker.wait(5) == 0
    known = len(site.control.of(wire.Registration))
    site.start()
    eventually(lambda: len(site.control.of(wire.Registration)) > known, timeout=20)
    before, after = site.control.of(wire.Registration)[known - 1 : known + 1]
    assert (after.instance, after.boot_id, after.epoch) == (before.instance, before.boot_id, 1)
    assert after.seq > max(report.seq for report in site.control.reports if report is not after)


def test_a_worker_runs_where_django_is_not_installed(site):
    """Though the environment names a settings module, by which Celery would load Django if it could."""
    for package in ("django", "rest_framework", "psycopg"):
        (site.folder / package).mkdir()
        (site.folder / package / "__init__.py").write_text(f"raise ModuleNotFoundError('{package}')")
    site.start_ready(PYTHONPATH=str(site.folder), PYTHONPROFILEIMPORTTIME="1")
    imported = [line.rpartition("|")[2].strip() for line in site.log.splitlines() if line.startswith("import time:")]
    assert "workers.tasks" in imported
    assert not [name for name in imported if name.startswith(("apps.", "llmgw.settings"))]


# --- orders -------------------------------------------------------------------------------------------------------


def test_an_order_becomes_an_engine_that_serves_and_stops(site):
    site.start_ready()
    order = site.launch("launch-1", "--fake-load-s", "0.2")
    ready = site.wait_for("launch-1", State.READY)
    assert site.control.answers()[order].kind is wire.AnswerKind.TAKEN
    assert (ready.host, ready.devices) == ("127.0.0.1", ("cpu",))
    seen = [len(status.steps) for status in site.control.statuses("launch-1")]
    assert seen == sorted(seen), "news never goes back"
    site.control.send(wire.StopOrder, launch_id="launch-1")
    site.wait_for("launch-1", State.STOPPED)


def test_what_stands_in_the_way_of_readiness_is_told_at_once(site):
    site.start_ready()
    site.launch("launch-1", "--fake-name", "other")
    found = eventually(lambda: site.control.of(wire.Registration)[-1].findings, timeout=10)
    assert [(finding.code, finding.launch_id) for finding in found] == [("probe.foreign", "launch-1")]
    site.control.send(wire.StopOrder, launch_id="launch-1")
    eventually(lambda: not site.control.of(wire.Registration)[-1].findings, timeout=10)


def test_orders_that_cannot_be_read_or_are_not_for_us_are_refused(site):
    site.start_ready()
    site.control.send_raw({"v": 99, "kind": "hello", "order_id": "new-version"})
    site.control.send_raw({"v": 1, "kind": "dance", "order_id": "no-such-kind"})
    site.control.send_raw({"v": 1, "kind": "launch", "order_id": "half"})
    site.control.send_raw("nonsense")
    other = site.control.send(wire.HelloOrder, node="n2")
    stale = site.control.send(wire.HelloOrder, epoch=0)
    wanted = {"new-version", "no-such-kind", "half", other, stale}
    eventually(lambda: wanted <= site.control.answers().keys())
    answers = site.control.answers()
    assert {answers[order].kind for order in wanted} == {wire.AnswerKind.REFUSED}
    assert [answers[order].code for order in ("new-version", "no-such-kind", "half", other, stale)] == [
        "order.version",
        "order.invalid",
        "order.invalid",
        "order.other-node",
        "order.stale-epoch",
    ]


def test_every_line_about_an_order_says_which(site):
    site.start_ready()
    order = site.launch("launch-1")
    site.wait_for("launch-1", State.READY)
    line = next(line for line in site.log.splitlines() if "order answered" in line and order in line)
    for fact in ('"node": "n1"', '"model": "tiny"', '"replica": "tiny/1"', '"launch_id": "launch-1"'):
        assert fact in line


def test_the_news_of_a_launch_belong_to_the_trace_that_ordered_it(site):
    """And a collector that does not answer neither delays them nor the end of the worker."""
    worker = site.start_ready(OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9")
    trace = "a" * 32
    site.launch("launch-1", trace=f"00-{trace}-{'b' * 16}-01")
    site.wait_for("launch-1", State.READY)
    told = [
        seen.split("-")[1]
        for seen, report in zip(site.control.traces, site.control.reports, strict=False)
        if getattr(report, "shards", ())
    ]
    assert told
    assert set(told) == {trace}
    stops_within_three_seconds(worker)


# --- ticks --------------------------------------------------------------------------------------------------------


def test_ticks_are_answered_with_what_the_node_is(site):
    site.start_ready()
    site.launch("launch-1")
    site.wait_for("launch-1", State.READY)
    site.answers_ticks(7)
    with site.redis.client() as client:
        beat = client.hgetall(wire.beat_key("n1"))
    registration = site.control.of(wire.Registration)[-1]
    assert (beat["tick"], beat["epoch"], beat["instance"]) == ("7", "1", registration.instance)
    assert beat["boot_id"] == registration.boot_id
    assert beat["digest"] == wire.digest([("launch-1", "ready")])


# --- a broker that comes and goes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("times", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_a_broker_that_was_killed_is_used_again_within_two_seconds(site, times):
    site.start_ready()
    site.answers_ticks(1)
    for n in range(times):
        site.redis.kill()
        time.sleep(0.5)  # long enough for the worker to notice: the outage itself is what is tested
        site.redis.start()
        begun = time.monotonic()
        order = site.control.send(wire.HelloOrder)
        site.answered(order)
        took = time.monotonic() - begun
        print(f"order answered {took:.2f} s after the broker was back")
        assert took < 3.0
        site.answers_ticks(n + 2)


@pytest.mark.slow
def test_a_broker_that_was_away_for_long_and_has_forgotten_everything(tmp_path, processes):
    redis = Valkey(tmp_path / "redis").start()
    control = Control(redis.url)
    site = Site(tmp_path, redis, control, processes)
    site.start_ready()
    redis.kill()
    time.sleep(6)  # beyond every wait that grows
    redis.start()
    begun = time.monotonic()
    order = control.send(wire.HelloOrder)
    eventually(lambda: order in control.answers(), timeout=10)
    assert time.monotonic() - begun < 3.0
    site.answers_ticks(1)
    control.close()
    redis.kill()


def test_what_befalls_an_engine_while_the_broker_is_away_is_told_when_it_is_back(site):
    site.start_ready()
    site.launch("launch-1")
    engine = site.wait_for("launch-1", State.READY)
    site.redis.kill()
    os.kill(engine.pid, signal.SIGKILL)
    eventually(lambda: not psutil.pid_exists(engine.pid))
    site.redis.start()
    failed = site.wait_for("launch-1", State.FAILED)
    assert failed.failure.signal == signal.SIGKILL


def test_a_worker_may_be_started_before_its_broker(site):
    site.redis.kill()
    site.start()
    eventually(lambda: "broker away" in site.log, timeout=20)
    site.redis.start()
    eventually(lambda: site.control.of(wire.Registration), timeout=10)
    site.answers_ticks(1)


@pytest.mark.slow
def test_connections_that_silently_died_are_noticed_before_the_node_counts_as_lost(site):
    """As after a firewall forgot them: nobody closes them, nothing comes through, new ones work."""
    between = Silence(site.redis.port)
    site.start_ready(LLMGW_NODE_REDIS_URL=f"redis://127.0.0.1:{between.port}/0")
    site.answers_ticks(1)
    begun = time.monotonic()
    between.fall()
    eventually(site.hears_now, timeout=30, every=0.5)
    took = time.monotonic() - begun
    print(f"ticks were heard again after {took:.1f} s")
    assert took < 16
    order = site.control.send(wire.HelloOrder)
    site.answered(order)
    between.close()


# --- stopping -----------------------------------------------------------------------------------------------------


def stops_within_three_seconds(worker, how=signal.SIGTERM):
    begun = time.monotonic()
    worker.send_signal(how)
    assert worker.wait(10) == 0
    took = time.monotonic() - begun
    print(f"stopped in {took:.2f} s")
    assert took < 3.2


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_stops_in_seconds_and_leaves_engines_that_the_next_one_adopts(site, how):
    worker = site.start_ready()
    site.launch("launch-1")
    engine = site.wait_for("launch-1", State.READY)
    stops_within_three_seconds(worker, how)
    assert psutil.pid_exists(engine.pid)
    site.start()
    adopted = eventually(lambda: [told for told in site.control.statuses("launch-1") if told.adopted], timeout=20)[-1]
    assert (adopted.pid, adopted.port, adopted.state) == (engine.pid, engine.port, State.READY)


def test_a_worker_stops_in_seconds_while_its_broker_is_dead(site):
    worker = site.start_ready()
    site.redis.kill()
    eventually(lambda: "Connection" in site.log.partition("node started")[2])
    stops_within_three_seconds(worker)


def test_a_worker_stops_in_seconds_while_its_broker_hangs(site):
    worker = site.start_ready()
    broker = psutil.Process(site.redis._process.pid)
    broker.suspend()
    try:
        stops_within_three_seconds(worker)
    finally:
        broker.resume()


def test_a_second_worker_is_refused_with_the_pid_of_the_first(site):
    worker = site.start_ready()
    second = site.processes.start(
        [LLMGW_NODE, "run"], env=site.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    _, told = second.communicate(timeout=20)
    assert second.returncode == 1
    assert f"pid {worker.pid}" in told
    assert told.count("\n") == 1, "one line, no traceback"


def test_a_state_folder_that_cannot_be_made_is_told(site):
    (site.folder / "file").write_text("")
    worker = site.start(LLMGW_NODE_STATE=str(site.folder / "file" / "state"))
    assert worker.wait(20) == 1
    assert "Not a directory – correct `state`" in site.log
    assert "Traceback" not in site.log


def test_broker_away_is_said_once_and_not_at_every_try(site):
    site.start_ready()
    site.redis.kill()
    site.processes.start(["sleep", "3"]).wait()
    assert site.log.count("reports wait") <= 1
    assert issubclass(BrokerAway, Exception)
