"""Outside tools as children: those that hang, print without end, leave children, and those that nothing can end."""

import os
import signal
import sys
import threading
import time
from contextlib import suppress

import pytest

from llmgw.core.units import Seconds
from tests.servers import eventually
from workers.children import Children
from workers.ports import ToolResult
from workers.tools import name_of

NOW = Seconds(1_000_000.0)


@pytest.fixture
def children():
    return Children(dict(os.environ))


def test_a_tool_that_has_ended_is_not_waited_for_though_its_child_keeps_the_output_open(children):
    before = time.monotonic()
    result = children.run(("/bin/sh", "-c", "echo done; sleep 30 & echo $!"), 20, NOW)
    os.kill(int(result.out.split()[1]), signal.SIGKILL)
    assert (result.code, result.out.split()[0]) == (0, "done")
    assert time.monotonic() - before < 10


def test_a_tool_is_told_no_secret_of_the_worker():
    secrets = {
        "LLMGW_NODE_REDIS_URL": "redis://:word@h",
        "HF_TOKEN": "hf_1",
        "db_password": "p",
        "AWS_SECRET_ACCESS_KEY": "k",
    }
    children = Children({**os.environ, **secrets, "http_proxy": "http://proxy:1"})
    told = dict(line.split("=", 1) for line in children.run(("/usr/bin/env",), 20, NOW).out.splitlines() if "=" in line)
    assert not set(secrets) & set(told)
    assert (told["http_proxy"], told["LC_ALL"]) == ("http://proxy:1", "C")


def test_what_a_mad_tool_prints_is_cut_and_it_is_not_held_up():
    children = Children(dict(os.environ), most_bytes=100_000)
    result = children.run(("/bin/sh", "-c", "head -c 1000000 /dev/zero; echo end >&2"), 20, NOW)
    assert (result.code, len(result.out), result.err) == (0, 100_000, "end\n")


def test_tools_that_run_are_ended_when_the_process_is_about_to(children):
    results = []
    asking = threading.Thread(target=lambda: results.append(children.run(("/bin/sleep", "600"), 60, NOW)))
    asking.start()
    eventually(lambda: children._running)
    children.end_all()
    asking.join(10)
    assert [result.code for result in results] == [-signal.SIGKILL]


def test_a_tool_that_a_person_breaks_off_is_ended(children):
    asked: list[int] = []

    def break_off():
        (tool,) = eventually(lambda: children._running)
        asked.append(tool.pid)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=break_off).start()
    with pytest.raises(KeyboardInterrupt):
        children.run(("/bin/sleep", "600"), 60, NOW)
    with pytest.raises(ProcessLookupError):
        os.kill(asked[0], 0)


# --- a tool that the kernel holds: no signal reaches it, which a test can only play by sending none


@pytest.fixture
def unkillable():
    """Children that no signal reaches until the test is over, and the pids that it was sent to."""
    spared = []
    yield Children({"PATH": os.environ["PATH"]}, kill=lambda pid, _: spared.append(pid)), spared
    for pid in spared:
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)


def test_a_tool_that_the_kernel_holds_is_not_started_again_before_it_has_gone(unkillable):
    children, spared = unkillable
    hangs = ("/bin/sh", "-c", "echo begun; sleep 600")
    assert children.run(hangs, 0.2, NOW) == ToolResult(None, "begun\n", problem="no answer within 0.2 s")
    for _ in range(3):
        again = children.run(("/bin/sh", "-c", "echo again"), 5, Seconds(NOW + 60))
        assert again == ToolResult(None, problem="held up since 1970-01-12 13:46:40 UTC")
    assert children.run(("/bin/echo", "another tool"), 5, Seconds(NOW + 60)).ok
    assert len(spared) == 1
    os.killpg(spared[0], signal.SIGKILL)
    eventually(lambda: children.run(("/bin/sh", "-c", "echo again"), 5, Seconds(NOW + 60)).out == "again\n")


def test_a_module_that_python_runs_is_a_tool_of_its_own():
    assert name_of((sys.executable, "-m", "workers.discovery.nvidia.nvml", "/lib/libnvidia-ml.so.1")) == "nvml"
    assert name_of(("/usr/sbin/sminfo", "-C", "mlx5_0")) == "sminfo"
    assert name_of(("dmesg",)) == "dmesg"
