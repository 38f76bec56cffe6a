"""Pid files that name somebody else, or are damaged: no signal is sent, and the operator is told."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.scenarios.cluster import Cluster, eventually

AModel = Callable[..., dict[str, Any]]


def _start_ticks(pid: int) -> int:
    stat = Path(f"/proc/{pid}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[19])


def _edit(document: dict[str, Any], kind: str, stranger: int) -> str:
    """Damage a pid file in one way. The stranger's pid stands in it, so that a careless kill would hit him."""
    document |= {"pid": stranger, "pgid": stranger}
    ticks, argv = _start_ticks(stranger), Path(f"/proc/{stranger}/cmdline").read_text().split("\0")[:-1]
    right = {"start_ticks": ticks, "argv": argv}
    if kind == "start-time":
        document |= right | {"start_ticks": ticks - 1}
    elif kind == "boot-id":
        document |= right | {"boot_id": "00000000-0000-0000-0000-000000000000"}
    elif kind == "argv":
        document |= {"start_ticks": ticks}
    elif kind == "version":
        document |= right | {"v": 0}
    text = json.dumps(document)
    return text[: len(text) // 2] if kind == "torn" else text


@pytest.mark.parametrize("kind", ["start-time", "boot-id", "argv", "torn", "version"])
def test_a_stranger_gets_no_signal(cluster: Cluster, a_model: AModel, kind: str) -> None:
    name = f"pid-{kind}"
    cluster.declare(a_model(name))
    cluster.wait_for(name, "ready")
    (launch,) = cluster.ask("shards", name)
    stranger = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    try:
        cluster.stop("n1")
        (pid_file,) = cluster.folder.joinpath("n1").rglob(f"*{launch['launch_id']}*/pid.json")
        pid_file.write_text(_edit(json.loads(pid_file.read_text()), kind, stranger.pid))
        cluster.start_node()
        cluster.wait_for_node("n1")
        eventually(
            lambda: any(f["code"] == f"pidfile.{kind}" for f in cluster.ask("node", "n1")["findings"]),
            "the node's findings name it",
        )
        cluster.retire(name)
        assert stranger.poll() is None, "the stranger lives"
    finally:
        stranger.kill()
        stranger.wait(10)
        _end_left_over(launch["pid"], launch["launch_id"])


def _end_left_over(pid: int, launch_id: str) -> None:
    """End the engine whose pid file the test took away: ours, by the pid it was started with."""
    try:
        mine = f"LLMGW_LAUNCH_ID={launch_id}" in Path(f"/proc/{pid}/environ").read_text()
    except OSError:
        return
    if mine:
        os.kill(pid, signal.SIGKILL)
