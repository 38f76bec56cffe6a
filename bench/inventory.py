"""What a look at a machine of 8 cards and 10 adapters costs, and what a heartbeat costs.

    python bench/inventory.py [--looks 20] [--beats 500]

The machine is a recording (tests/recorded/h100-infiniband). It is looked at from the recording, which is the cost of
our own code, and with real trees and real programs that print what was recorded, which adds their processes. Baselines
of the same run: the same look at a machine without cards, as many bare processes, and a bare PING of the same Redis.
Prints medians; the last line is one JSON object.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from llmgw.core import wire
from tests.recorded.unpacked import unpack
from tests.servers import Valkey
from workers.discovery.collect import Collector
from workers.heartbeat import Heart
from workers.ports import Machine, ToolResult
from workers.recording.replay import open_folder
from workers.settings import NodeSettings, read_settings
from workers.system import RealMachine

RECORDED = Path(__file__).resolve().parent.parent / "tests" / "recorded"
BIG, SMALL = RECORDED / "h100-infiniband", RECORDED / "cpu-only"
Figures = dict[str, float]


class Counting(RealMachine):
    """A real machine that counts the processes it starts."""

    started = 0

    def output(self, argv: Sequence[str], timeout: float) -> ToolResult:
        self.started += 1
        return super().output(argv, timeout)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--looks", type=int, default=20)
    parser.add_argument("--beats", type=int, default=500)
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="llmgw-bench-") as folder:
        figures = {**recorded(wanted.looks), **real(wanted.looks, Path(folder)), **beats(wanted.beats, Path(folder))}
    for name, value in figures.items():
        sys.stderr.write(f"{name:52} {value:10.3f}\n")
    print(json.dumps(figures))


def settings_of(recording: Path) -> NodeSettings:
    """Return the settings that lie in a recording."""
    file = recording / "node.toml"
    settings = read_settings(file if file.exists() else None, {}, ())
    assert isinstance(settings, NodeSettings)
    return settings


def looks(times: int, machine: Callable[[], Machine], settings: NodeSettings) -> tuple[float, float]:
    """Return the median milliseconds of a first look, and of the one that follows it."""
    first, next_one = [], []
    for _ in range(times):
        collector = Collector(machine(), settings, {})
        first.append(taken(collector.collect))
        next_one.append(taken(collector.collect))
    return statistics.median(first), statistics.median(next_one)


def taken(what: Callable[[], object]) -> float:
    """Return how many milliseconds something takes."""
    begun = time.perf_counter()
    what()
    return (time.perf_counter() - begun) * 1000


# --- the look -----------------------------------------------------------------------------------------------------


def recorded(times: int) -> Figures:
    """Look at the recordings."""
    figures: Figures = {}
    for name, recording in (("big", BIG), ("small", SMALL)):
        settings = settings_of(recording)
        figures[f"recorded, {name}: first look, ms"], figures[f"recorded, {name}: next look, ms"] = looks(
            times, lambda recording=recording: open_folder(recording), settings
        )
    return figures


def real(times: int, folder: Path) -> Figures:
    """Look at real trees with real programs; the baseline starts as many bare processes one after the other."""
    unpack(BIG, folder / "big")
    machine = Counting(sysfs=folder / "big" / "sys", proc=folder / "big" / "proc", tools=folder / "big" / "tools")
    settings = settings_of(BIG)
    collector = Collector(machine, settings, {})
    collector.collect()
    of_first = machine.started
    collector.collect()
    of_next = machine.started - of_first
    before = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    first, next_one = looks(times, lambda: machine, settings)
    after = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    bare = statistics.median(taken(lambda: bare_processes(of_first)) for _ in range(times))
    return {
        "real, big: first look, ms": first,
        "real, big: next look, ms": next_one,
        "real, big: processes of a first look": of_first,
        "real, big: processes of a next look": of_next,
        "baseline: as many bare processes, ms": bare,
        "real, big: our CPU of both looks, ms": cpu(before[0], after[0]) / times,
        "real, big: CPU of the programs of both looks, ms": cpu(before[1], after[1]) / times,
    }


def bare_processes(many: int) -> None:
    """Start processes that do nothing, one after the other."""
    for _ in range(many):
        subprocess.run(["/bin/true"], check=True)


def cpu(before: resource.struct_rusage, after: resource.struct_rusage) -> float:
    """Return the milliseconds of CPU between two readings."""
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000


# --- heartbeats ---------------------------------------------------------------------------------------------------


def beats(times: int, folder: Path) -> Figures:
    """Answer ticks, and PING the same Redis as the baseline."""
    redis = Valkey(folder / "redis").start()
    heart = Heart(redis.url, "n1", lambda tick: wire.Beat(tick=tick, epoch=1, instance="i", boot_id="b", digest="0"))
    try:
        with redis.client() as client:
            pings = [taken(client.ping) for _ in range(times)]
        heart.answer(1, 1.0)
        begun = time.process_time()
        answers = [taken(lambda tick=tick: heart.answer(tick, float(tick))) for tick in range(2, times + 2)]
        spent = (time.process_time() - begun) * 1000
    finally:
        heart.close()
        redis.kill()
    return {
        "heartbeat, ms": statistics.median(answers),
        "heartbeat: our CPU, ms": spent / times,
        "baseline: PING, ms": statistics.median(pings),
    }


if __name__ == "__main__":
    main()
