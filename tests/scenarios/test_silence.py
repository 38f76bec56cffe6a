"""Who is heard, who is not, and when the control side itself was away."""

import signal
import time
from collections.abc import Callable
from typing import Any

from tests.scenarios.cluster import Cluster, eventually

AModel = Callable[..., dict[str, Any]]


def test_a_dead_node_is_seen_within_twenty_seconds(own_cluster: Cluster) -> None:
    own_cluster.heartbeat_s = 2.0  # what is set where nobody sets anything
    own_cluster.start_all()
    own_cluster.kill("n1")
    died = time.monotonic()
    eventually(lambda: own_cluster.ask("node", "n1")["state"] != "ready", "the node is no longer ready", 20)
    assert time.monotonic() - died < 20


def test_nobody_is_lost_because_the_control_side_slept(cluster: Cluster, a_model: AModel) -> None:
    cluster.declare(a_model("awake"))
    cluster.wait_for("awake", "ready")
    before = cluster.ask("node_transitions", "n1")
    asleep = [cluster.processes["control"], cluster.processes["beat"]]
    for process in asleep:
        process.send_signal(signal.SIGSTOP)
    # There is no event to wait for: the time in which a silent node would be lost must pass.
    time.sleep(cluster.heartbeat_s * (cluster.lost_ticks + 3))
    assert cluster.chat("awake").status_code == 200, "traffic goes on meanwhile"
    for process in asleep:
        process.send_signal(signal.SIGCONT)
    heard = cluster.ask("last_tick")
    eventually(lambda: cluster.ask("last_tick") > heard + cluster.lost_ticks, "ticks go on", 20)
    assert cluster.ask("node_transitions", "n1") == before
    assert cluster.ask("replicas", "awake")[0]["state"] == "ready"


def test_a_lost_node_returns_with_its_engine_and_nothing_is_started_twice(cluster: Cluster, a_model: AModel) -> None:
    cluster.declare(a_model("kept"))
    cluster.wait_for("kept", "ready")
    (before,) = cluster.ask("shards", "kept")
    epoch = cluster.ask("node", "n1")["epoch"]
    cluster.stop("n1")
    cluster.wait_for_node("n1", "lost")
    assert cluster.ask("node", "n1")["epoch"] > epoch, "what was ordered before is fenced"
    cluster.start_node()
    cluster.wait_for_node("n1")
    cluster.wait_for("kept", "ready")
    (after,) = cluster.ask("shards", "kept")
    assert (after["launch_id"], after["pid"]) == (before["launch_id"], before["pid"])
    eventually(lambda: cluster.chat("kept").status_code == 200, "routed again", 5)
