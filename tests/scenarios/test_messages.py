"""Reports twice, out of order and of an older epoch; a broker that lost everything; a node that was away."""

from collections.abc import Callable
from typing import Any

from celery import Celery

from llmgw.core import wire
from tests.scenarios.cluster import Cluster, eventually

AModel = Callable[..., dict[str, Any]]


def _report(cluster: Cluster, **fields: Any) -> dict[str, Any]:
    node = cluster.ask("node", "n1")
    base = {"node": "n1", "instance": node["instance"], "boot_id": node["boot_id"], "epoch": node["epoch"]}
    return {"v": 1, "kind": "shards", "seq": node["last_seq"], "sent_at": 0.0} | base | fields


def _send(cluster: Cluster, raw: dict[str, Any]) -> None:
    Celery(broker=cluster.redis_url).send_task(wire.REPORT_TASK, kwargs={"raw": raw}, queue=wire.CONTROL_QUEUE)


def _counted(cluster: Cluster, outcome: str) -> int:
    count: int = cluster.ask("report_counts", "n1").get(outcome, 0)
    return count


def test_old_reports_are_ignored_and_counted(cluster: Cluster, a_model: AModel) -> None:
    cluster.declare(a_model("told"))
    cluster.wait_for("told", "ready")
    (shard,) = cluster.ask("shards", "told")
    lie = {"launch_id": shard["launch_id"], "replica": "told/1", "attempt": 1, "state": "failed"}
    lie["steps"] = [{"happened": "failed", "at": 1.0}] * 20

    stale = _counted(cluster, "stale-epoch")
    _send(cluster, _report(cluster, epoch=cluster.ask("node", "n1")["epoch"] - 1, shards=[lie]))
    eventually(lambda: _counted(cluster, "stale-epoch") > stale, "counted as of an older epoch")

    out_of_order = _counted(cluster, "stale-seq")
    _send(cluster, _report(cluster, seq=shard["seq"] - 1, shards=[lie]))
    eventually(lambda: _counted(cluster, "stale-seq") > out_of_order, "counted as out of order")

    again = _counted(cluster, "repeated") + _counted(cluster, "stale-seq")
    _send(cluster, _report(cluster, seq=shard["seq"], shards=[lie]))
    eventually(lambda: _counted(cluster, "repeated") + _counted(cluster, "stale-seq") > again, "counted as repeated")

    unreadable = sum(v for k, v in cluster.ask("report_counts", "n1").items() if k == "unreadable")
    _send(cluster, _report(cluster, v=99))
    eventually(
        lambda: sum(v for k, v in cluster.ask("report_counts", "n1").items() if k == "unreadable") > unreadable,
        "counted as unreadable",
    )
    assert [r["state"] for r in cluster.ask("replicas", "told")] == ["ready"]
    assert cluster.chat("told").status_code == 200


def test_orders_are_sent_again_when_the_broker_lost_them(cluster: Cluster, a_model: AModel) -> None:
    cluster.stop("n1")
    cluster.declare(a_model("lost-order"))
    eventually(lambda: cluster.ask("shards", "lost-order"), "the order is written")
    cluster.kill("valkey")
    for file in (cluster.folder / "valkey").rglob("*"):
        if file.is_file():
            file.unlink()
    cluster.start_valkey()
    cluster.start_node()
    cluster.wait_for("lost-order", "ready")
    (launch,) = cluster.ask("shards", "lost-order")
    assert len(cluster.engines(launch["launch_id"])) == 1
    eventually(lambda: cluster.chat("lost-order").status_code == 200, "routed again from an empty Redis", 10)


def test_a_model_deleted_while_its_node_is_away_is_stopped_when_it_returns(cluster: Cluster, a_model: AModel) -> None:
    cluster.declare(a_model("forgotten"))
    cluster.wait_for("forgotten", "ready")
    (launch,) = cluster.ask("shards", "forgotten")
    cluster.stop("n1")
    cluster.wait_for_node("n1", "lost")
    cluster.ask("retire", "forgotten")
    assert len(cluster.engines(launch["launch_id"])) == 1, "nobody is there to stop it"
    cluster.start_node()
    cluster.wait_for_node("n1")
    eventually(lambda: not cluster.engines(launch["launch_id"]), "the engine is gone", 10)


def test_a_drained_replica_finishes_its_stream_and_gets_nothing_new(cluster: Cluster, a_model: AModel) -> None:
    cluster.declare(a_model("drained", "--fake-token-s", "0.05", "--fake-tokens", "60"))
    cluster.wait_for("drained", "ready")
    (launch,) = cluster.ask("shards", "drained")
    eventually(lambda: cluster.chat("drained", max_tokens=1).status_code == 200, "routed", 5)
    with cluster.stream("drained") as lines:
        seen = [next(lines) for _ in range(3)]
        cluster.declare(a_model("drained", "--fake-token-s", "0.05", "--fake-tokens", "60", replicas=0))
        eventually(lambda: cluster.chat("drained", max_tokens=1).status_code == 503, "nothing new is let in", 2, 0.02)
        assert cluster.engines(launch["launch_id"]), "the engine waits for the stream"
        seen += list(lines)
    assert "data: [DONE]" in seen
    assert sum(line.startswith("data: {") for line in seen) >= 60
    cluster.wait_for("drained")
    assert not cluster.engines(launch["launch_id"])
