"""A process with the control plane's verbs and tables at hand, asked by lines of JSON, so that Django starts once."""

import importlib
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from tests.scenarios.cluster import Cluster


class Control:
    """Asks such a process."""

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.control"],
            env=self._cluster.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def ask(self, question: str, *arguments: Any) -> Any:
        """Ask one question and wait for its answer."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps([question, *arguments]) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


def _answer() -> None:
    """Add the timings that benchmarks need to what the scenarios' observer answers and does."""
    observer = importlib.import_module("tests.scenarios.observer")  # sets Django up, so nothing of ours comes before
    publications = importlib.import_module("apps.gateway.models").PublicationRow.objects
    replicas = importlib.import_module("apps.replicas.models")

    def timings(name: str) -> dict[str, float]:
        """Return the moments of a model's only launch, in Unix seconds."""
        shard = replicas.ShardRow.objects.get(replica__model__name=name)
        order = replicas.OrderRow.objects.get(launch_id=shard.launch_id, kind="launch")
        moves = {move.happened: move for move in shard.transitions.all()}
        return {
            "order_written": order.created_at.timestamp(),
            "order_sent": order.sent_at.timestamp(),
            "taken": moves[next(h for h in ("fetch-begun", "launch-begun") if h in moves)].node_at.timestamp(),
            "process_started": moves["process-started"].node_at.timestamp(),
            "probe_passed": moves["probe-passed"].node_at.timestamp(),
            "ready_recorded": moves["probe-passed"].at.timestamp(),
            "published": publications.get().published_at.timestamp(),
        }

    observer.QUESTIONS["timings"] = timings
    observer.main()


if __name__ == "__main__":
    _answer()
