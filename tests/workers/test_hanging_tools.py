"""A worker on a machine on which every outside tool hangs: it joins, and answers every tick in time."""

import statistics
import sys
import time
from pathlib import Path

import pytest

from llmgw.core import wire
from tests.servers import eventually
from tests.workers.control import Control
from workers.tools import TOOLS

LLMGW_NODE = str(Path(sys.executable).with_name("llmgw-node"))
BEAT_S = 0.25
BEATS = 50


@pytest.fixture
def hanging_tools(tmp_path):
    """A folder with every tool that there is, none of which ever answers."""
    folder = tmp_path / "tools"
    folder.mkdir()
    for name in (*TOOLS, "uname"):
        tool = folder / name
        tool.write_text("#!/bin/sh\nexec sleep 600\n")
        tool.chmod(0o755)
    return folder


@pytest.fixture
def control(own_redis):
    control = Control(own_redis.url)
    yield control
    control.close()


@pytest.mark.slow
def test_heartbeats_keep_their_period_while_every_tool_hangs(tmp_path, own_redis, control, processes, hanging_tools):
    settings = {"ID": "n1", "REDIS_URL": own_redis.url, "STATE": str(tmp_path / "state"), "TOOLS": str(hanging_tools)}
    settings |= {"NVML": "off", "PROC": str(tmp_path), "SYSFS": str(tmp_path)}
    environment = {f"LLMGW_NODE_{name}": value for name, value in settings.items()}
    begun = time.monotonic()
    with (tmp_path / "worker.log").open("wb") as log:
        worker = processes.start([LLMGW_NODE, "run"], env=environment, stdout=log, stderr=log)
        with own_redis.client() as client:
            eventually(lambda: _answers(control, client, 1), timeout=20)
            waits = [_answer_time(control, client, number) for number in range(2, BEATS)]
    first = eventually(lambda: control.of(wire.Registration), timeout=15)[0]
    joined = time.monotonic() - begun
    worst = max(waits)
    print(
        f"{len(waits)} ticks answered after {statistics.median(waits) * 1000:.1f} ms, the latest {worst * 1000:.0f} ms"
    )
    print(f"registered {joined:.1f} s after the start")
    assert worst < 1.0, "a tick is due every few seconds, and a node is lost only after several"
    assert [problem for problem in first.inventory.problems if problem.code.endswith((".held-up", ".timeout"))]
    worker.terminate()
    assert worker.wait(5) == 0
    assert not _children_of(hanging_tools), "no tool is left behind"


def _answers(control, client, number):
    control.tick(number)
    return (client.zscore(wire.HEARD_KEY, "n1") or 0) >= number


def _answer_time(control, client, number):
    """Send a tick and return how long its answer took."""
    begun = time.monotonic()
    control.tick(number)
    eventually(lambda: (client.zscore(wire.HEARD_KEY, "n1") or 0) >= number, timeout=5, every=0.002)
    took = time.monotonic() - begun
    time.sleep(max(0.0, BEAT_S - took))  # the period of the ticks, which is what is tested
    return took


def _children_of(folder):
    """Find the processes that were started from this folder."""
    shown = [entry / "cmdline" for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [each for each in shown if str(folder) in _read(each)]


def _read(path):
    try:
        return path.read_text()
    except OSError:
        return ""
