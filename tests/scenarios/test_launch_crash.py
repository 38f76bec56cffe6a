"""SIGKILL of the node's worker at every point of a launch, then the same order again: exactly one engine."""

from collections.abc import Callable
from typing import Any

import pytest
from celery import Celery

from llmgw.core import wire
from tests.scenarios.cluster import Cluster, eventually

POINTS = ["order-taken", "journal-written", "process-started", "pid-file-written", "report-queued", "report-sent"]


@pytest.mark.parametrize("point", POINTS)
def test_one_engine_whatever_the_moment_of_death(
    cluster: Cluster, a_model: Callable[..., dict[str, Any]], point: str
) -> None:
    name = f"killed-at-{point}"
    cluster.stop("n1")
    dying = cluster.start_node(die_at=point)
    cluster.wait_for_node("n1")
    cluster.declare(a_model(name))
    assert dying.wait(30) == -9, "the worker died at that point"
    cluster.processes.pop("n1")

    cluster.start_node()
    cluster.wait_for(name, "ready")
    (launch,) = cluster.ask("shards", name)
    send_again(cluster, launch["launch_id"])
    eventually(lambda: cluster.chat(name).status_code == 200, f"{name} is routed", 5)
    assert [p.pid for p in cluster.engines(launch["launch_id"])] == [launch["pid"]]
    assert len(cluster.ask("shards", name)) == 1
    cluster.retire(name)


def send_again(cluster: Cluster, launch_id: str) -> None:
    """Deliver the launch order a second time and wait for the answer that says so."""
    (order,) = [o for o in cluster.ask("orders", launch_id) if o["kind"] == "launch"]
    raw = order["payload"] | {"epoch": cluster.ask("node", "n1")["epoch"], "order_id": order["order_id"]}
    before = cluster.ask("report_counts", "n1").get("taken", 0)
    Celery(broker=cluster.redis_url).send_task(wire.ORDER_TASK, kwargs={"raw": raw}, queue=wire.node_queue("n1"))
    eventually(lambda: cluster.ask("report_counts", "n1").get("taken", 0) > before, "the node answers")
