"""How long from an order to its process, and from an engine that is ready to the first request routed to it.

    python bench/latency.py [--launches 30]

Real processes on loopback: valkey, control worker, beat, router, one node worker, and an engine that loads for a set
time and notes when it was ready and when it was asked. Prints the share of each part, and as baselines of the same run
what a bare `Popen` of that engine and a direct request to it take. The last line is one JSON object.
"""

import argparse
import http.client
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.control import Control
from tests.scenarios.cluster import Cluster, eventually

LOAD_S = 0.4
Row = dict[str, float]


def main() -> None:
    """Run it and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--launches", type=int, default=30)
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="llmgw-bench-") as folder:
        cluster = Cluster(Path(folder) / "cluster", heartbeat_s=2.0)
        try:
            cluster.start_all()
            rows, baselines = run(cluster, wanted.launches)
        finally:
            cluster.close()
    figures = summary(rows, baselines)
    for name, value in figures.items():
        sys.stderr.write(f"{name:42} {value:10.2f}\n")
    print(json.dumps(figures))


def run(cluster: Cluster, launches: int) -> tuple[list[Row], dict[str, list[float]]]:
    """Launch one model after the other and take the time of each."""
    weights = cluster.folder / "tiny.gguf"
    weights.write_bytes(b"GGUF" + bytes(1020))
    with Control(cluster) as control:
        one_launch(cluster, control, weights, 0)  # connections, caches and imports are warm from here on
        rows = [one_launch(cluster, control, weights, number) for number in range(1, launches + 1)]
    return rows, {"popen": bare_popen(cluster, launches), "redis": redis_round_trips(cluster)}


def one_launch(cluster: Cluster, control: Control, weights: Path, number: int) -> Row:
    """Declare one model, wait until it answers through the router, and retire it."""
    name, stamps = f"bench-{number}", cluster.folder / f"stamps-{number}"
    arguments = ["--fake-load-s", str(LOAD_S), "--fake-stamps", str(stamps)]
    profile = {"name": "cpu", "engine": "llamacpp", "arguments": arguments}
    control.ask("declare", {"name": name, "source": weights.as_uri(), "profiles": [profile]})
    ask_until_answered(cluster, name)
    told = control.ask("timings", name)
    noted = [json.loads(line) for line in stamps.read_text().splitlines()]
    ready = next(n["at"] for n in noted if n["what"] == "started") + LOAD_S
    asked = next(n["at"] for n in noted if n["what"] == "asked")
    control.ask("retire", name)
    eventually(lambda: control.ask("replicas", name) == [], f"{name} is gone", 20)
    return parts(told, ready, asked)


def parts(told: dict[str, float], ready: float, asked: float) -> Row:
    """Cut both ways into their parts, in milliseconds."""
    moments = {
        "order_to_sent": (told["order_written"], told["order_sent"]),
        "sent_to_taken": (told["order_sent"], told["taken"]),
        "taken_to_process": (told["taken"], told["process_started"]),
        "order_to_process": (told["order_written"], told["process_started"]),
        "ready_to_probed": (ready, told["probe_passed"]),
        "probed_to_recorded": (told["probe_passed"], told["ready_recorded"]),
        "recorded_to_published": (told["ready_recorded"], told["published"]),
        "published_to_routed": (told["published"], asked),
        "ready_to_routed": (ready, asked),
    }
    return {name: (end - start) * 1000 for name, (start, end) in moments.items()}


def ask_until_answered(cluster: Cluster, model: str) -> None:
    """Send requests one after the other, a millisecond apart, until one is answered by the engine."""
    body = json.dumps({"model": model, "messages": [], "max_tokens": 1})
    connection = http.client.HTTPConnection("127.0.0.1", cluster.router_port, timeout=10)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        connection.request("POST", "/v1/chat/completions", body, cluster.headers)
        answer = connection.getresponse()
        answer.read()
        if answer.status == 200:
            connection.close()
            return
        time.sleep(0.001)
    raise SystemExit(f"{model} was not routed within 30 s")


def bare_popen(cluster: Cluster, count: int) -> list[float]:
    """Start the same program without llmgw: the floor of order to process."""
    taken = []
    for _ in range(count):
        start = time.perf_counter()
        process = subprocess.Popen([cluster.engine, "--fake-exit", "0"], stdout=subprocess.DEVNULL)
        taken.append((time.perf_counter() - start) * 1000)
        process.wait()
    return taken


def redis_round_trips(cluster: Cluster, count: int = 200) -> list[float]:
    """Ask the broker for nothing: the floor of each hop between two processes."""
    import redis  # only this baseline needs it

    client = redis.Redis.from_url(cluster.redis_url)
    taken = []
    for _ in range(count):
        start = time.perf_counter()
        client.ping()
        taken.append((time.perf_counter() - start) * 1000)
    return taken


def summary(rows: Sequence[Row], baselines: dict[str, list[float]]) -> dict[str, float]:
    """Take the median of each part, the 99th percentile of the two whole ways, and ratios to the baselines."""
    figures: dict[str, float] = {"launches": len(rows)}
    for name in rows[0]:
        values = [row[name] for row in rows]
        figures[f"{name}_ms_p50"] = round(statistics.median(values), 2)
        if name in ("order_to_process", "ready_to_routed"):
            figures[f"{name}_ms_p99"] = round(percentile(values, 99), 2)
    for name, values in baselines.items():
        figures[f"baseline_{name}_ms_p50"] = round(statistics.median(values), 3)
    figures["order_to_process_per_popen"] = round(
        figures["order_to_process_ms_p50"] / figures["baseline_popen_ms_p50"], 2
    )
    figures["ready_to_routed_per_redis_round_trip"] = round(
        figures["ready_to_routed_ms_p50"] / figures["baseline_redis_ms_p50"], 1
    )
    return figures


def percentile(values: Sequence[float], percent: int) -> float:
    """Return the value below which `percent` of a hundred lie, by nearest rank."""
    ranked: list[Any] = sorted(values)
    return float(ranked[max(0, -(-len(ranked) * percent // 100) - 1)])


if __name__ == "__main__":
    main()
