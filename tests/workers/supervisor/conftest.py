"""A node worker's supervisor with real processes: a fake engine as `llama-server`, and ears for what it pushes."""

import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llmgw.core.units import LaunchId
from llmgw.core.wanted import Source
from llmgw.core.wire import ForgetOrder, HelloOrder
from tests.builders import a_launch_order, a_stop_order
from tests.fakes.engine import fake_llama_server
from tests.processes import MARK, Processes
from workers.fetch import Fetcher
from workers.settings import NodeSettings
from workers.supervisor import Identity, Supervisor
from workers.supervisor.surroundings import Timing
from workers.system import RealMachine

QUICK = Timing(alive=0.05, doubt=0.05, settle=0.1, busy=0.02, kill_after=0.5, log=0.05)


def head(order, epoch) -> Any:
    return {"order_id": order, "node": "n1", "epoch": epoch, "issued_at": 0.0}


class Heard:
    """Everything that was pushed."""

    def __init__(self):
        self.statuses = []
        self.findings_changed = 0
        self._news = threading.Condition()

    def push(self, status):
        with self._news:
            self.statuses.append(status)
            self._news.notify_all()

    def look_again(self):
        self.findings_changed += 1

    def wait(self, state, launch="launch-1", *, timeout=15.0, count=1):
        """Wait until a launch was in a state so many times; return that status."""

        def those():
            return [told for told in self.statuses if told.launch_id == launch and told.state == state]

        with self._news:
            assert self._news.wait_for(lambda: len(those()) >= count, timeout), self.story(launch)
            return those()[count - 1]

    def story(self, launch="launch-1"):
        return [told.state.value for told in self.statuses if told.launch_id == launch]


class Node:
    """A state folder, and the worker that has it at the moment."""

    def __init__(self, folder: Path, mark: str, ports: tuple[int, int]) -> None:
        self.weights = folder / "weights.gguf"
        self.weights.write_bytes(b"GGUF")
        program = str(fake_llama_server(folder))
        self.settings = NodeSettings(id="n1", state=folder / "state", llama_server=program, engine_ports=ports)
        self.environment = {**os.environ, MARK: mark}
        self.timing = QUICK
        self.supervisor: Supervisor | None = None

    def start(self, *, machine=None, fetcher=None, **settings) -> Supervisor:
        """Start a worker; the one before must be closed."""
        self.settings = replace(self.settings, **settings)
        self.machine = machine or RealMachine(self.environment)
        self.heard = Heard()
        self.identity = Identity.open(self.settings.state, self.machine)
        self.supervisor = Supervisor(
            machine=self.machine,
            settings=self.settings,
            identity=self.identity,
            fetcher=fetcher or Fetcher(self.settings),
            push=self.heard.push,
            findings_changed=self.heard.look_again,
            timing=self.timing,
        )
        self.supervisor.adopt()
        return self.supervisor

    def close(self) -> None:
        if self.supervisor is not None:
            self.supervisor.close()
            self.identity.close()
            self.supervisor = None

    def restart(self, **how) -> Supervisor:
        self.close()
        return self.start(**how)

    def launch(self, *arguments, launch="launch-1", **more):
        order = a_launch_order(
            order_id=f"launch {launch}",
            launch_id=launch,
            source=Source(f"file://{self.weights}"),
            arguments=arguments,
            **more,
        )
        return self.take(order)

    def stop(self, drain_s=0.0, *, launch="launch-1", order="stop"):
        return self.take(a_stop_order(order_id=f"{order} {launch}", launch_id=launch, drain_s=drain_s))

    def forget(self, launch="launch-1"):
        return self.take(ForgetOrder(launch_id=LaunchId(launch), **head("forget", 1)))

    def hello(self, epoch):
        return self.take(HelloOrder(**head("hello", epoch)))

    def take(self, order):
        assert self.supervisor is not None
        return self.supervisor.take(order)

    def folder(self, launch="launch-1") -> Path:
        return self.settings.state / "launches" / launch

    def status(self, launch="launch-1"):
        assert self.supervisor is not None
        return next(status for status in self.supervisor.statuses() if status.launch_id == launch)


@pytest.fixture
def node(tmp_path: Path, processes: Processes, worker_ports: tuple[int, int]) -> Iterator[Node]:
    """Lend a node without a worker; its engines are ended after the test."""
    node = Node(tmp_path, processes.mark, worker_ports)
    yield node
    node.close()


@pytest.fixture
def running(node: Node) -> Node:
    """Lend a node with a worker."""
    node.start()
    return node


@pytest.fixture(scope="session")
def worker_ports() -> tuple[int, int]:
    """Return a range of ports that no other xdist worker uses."""
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    return 23000 + 100 * number, 23099 + 100 * number
