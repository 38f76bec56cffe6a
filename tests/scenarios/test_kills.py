"""SIGKILL of each process in turn while a stream runs: the stream ends whole, and nothing runs twice."""

import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from tests.scenarios.cluster import PYTHON, ROOT, Cluster, eventually

SLOW = ("--fake-token-s", "0.05", "--fake-tokens", "120")  # six seconds of stream: outlasts every restart below


def _restart(cluster: Cluster, victim: str) -> None:
    cluster.kill(victim)
    starts: dict[str, Callable[[], object]] = {
        "n1": cluster.start_node,
        "control": cluster.start_control,
        "beat": cluster.start_beat,
        "web": cluster.start_web,
        "valkey": cluster.start_valkey,
    }
    starts[victim]()


@pytest.fixture(scope="module")
def serving(cluster: Cluster, weights: str) -> Cluster:
    """Return the cluster with one model that streams slowly."""
    cluster.start_web()
    profile = {"name": "cpu", "engine": "llamacpp", "arguments": list(SLOW)}
    cluster.declare({"name": "slow", "source": weights, "profiles": [profile]})
    cluster.wait_for("slow", "ready")
    return cluster


@pytest.mark.parametrize("victim", ["n1", "control", "beat", "web", "valkey"])
def test_a_stream_ends_whole_when_a_process_is_killed_beside_it(serving: Cluster, victim: str) -> None:
    before = serving.ask("shards", "slow")
    with serving.stream("slow") as lines:
        seen = [next(lines) for _ in range(4)]
        _restart(serving, victim)
        seen += list(lines)
    assert "data: [DONE]" in seen
    assert sum(line.startswith("data: {") for line in seen) >= 120

    serving.wait_for_node("n1")
    serving.wait_for("slow", "ready")
    after = serving.ask("shards", "slow")
    assert [s["launch_id"] for s in after] == [s["launch_id"] for s in before], "nothing was started a second time"
    assert [p.pid for p in serving.engines(after[-1]["launch_id"])] == [after[-1]["pid"]]
    # and the whole is alive: a change still goes all the way
    probe = f"after-{victim}"
    profile = {"name": "cpu", "engine": "llamacpp"}
    serving.declare({"name": probe, "source": serving.ask("model_source", "slow"), "profiles": [profile]})
    serving.wait_for(probe, "ready")
    eventually(lambda: serving.chat(probe).status_code == 200, f"{probe} is routed", 5)
    serving.retire(probe)


def test_a_killed_worker_finds_its_engine_and_says_so(serving: Cluster) -> None:
    _restart(serving, "n1")
    eventually(lambda: serving.ask("shards", "slow")[-1]["adopted"], "the engine is reported as adopted")
    assert serving.ask("shards", "slow")[-1]["state"] == "ready"


AModel = Callable[..., dict[str, Any]]


def test_an_engine_that_the_operator_ended_on_the_machine_starts_again_without_a_failure(
    serving: Cluster, a_model: AModel
) -> None:
    serving.declare(a_model("paused"))
    serving.wait_for("paused", "ready")
    serving.stop("n1")
    settings = ["--settings", str(serving.folder / "n1.toml")]
    done = subprocess.run([PYTHON, "-m", "workers.cli", "stop-engines", *settings], cwd=ROOT, check=False, timeout=60)
    assert done.returncode == 0
    assert not serving.engines()
    serving.start_node()
    eventually(lambda: len(serving.ask("shards", "paused")) == 2, "it is started again")
    (row,) = serving.wait_for("paused", "ready")
    assert (row["failures"], row["restarts"]) == (0, 0)
    old, new = serving.ask("shards", "paused")
    assert (old["state"], old["failure"], new["state"]) == ("stopped", None, "ready")
    why = [move["why"] for move in serving.ask("transitions", "paused") if move["launch_id"] == old["launch_id"]]
    assert "stopped on the machine by the operator" in why
    serving.retire("paused")
    serving.wait_for("slow", "ready")


def test_an_engine_killed_from_outside_is_out_of_the_table_at_once_and_restarted(
    serving: Cluster, a_model: AModel
) -> None:
    serving.declare(a_model("victim", "--fake-say", "the last words of this engine"))
    serving.wait_for("victim", "ready")
    first = serving.ask("shards", "victim")[0]
    (engine,) = serving.engines(first["launch_id"])
    engine.kill()
    eventually(lambda: serving.chat("victim").status_code == 503, "the router says it is not ready", 2, 0.01)
    eventually(lambda: len(serving.ask("shards", "victim")) == 2, "a new launch is ordered")
    rows = serving.wait_for("victim", "ready")
    assert rows[0]["restarts"] == 1
    old, new = serving.ask("shards", "victim")
    assert old["launch_id"] != new["launch_id"]
    assert old["failure"]["failure_class"] == "killed"
    assert any("the last words" in line for line in old["failure"]["tail"])


def test_an_engine_that_always_dies_is_started_ever_more_slowly_and_the_first_failure_stays(
    serving: Cluster, a_model: AModel
) -> None:
    serving.declare(a_model("dying", "--fake-exit", "3", "--fake-say", "cannot go on"))
    eventually(lambda: any(r["failures"] >= 3 for r in serving.ask("replicas", "dying")), "three failures in a row")
    row = serving.ask("replicas", "dying")[0]
    assert row["restarts"] >= 2
    launches = serving.ask("shards", "dying")
    assert launches[0]["failure"]["exit_code"] == 3
    assert "cannot go on" in " ".join(launches[0]["failure"]["tail"])
    said = serving.manage("explain", "dying", expect=3)
    assert "cannot go on" in said
    assert "crash-looping" in said
    serving.retire("dying")
