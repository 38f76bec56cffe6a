"""What a pass of the planner costs, as ratios of one run.

    python bench/planner.py [--nodes 1000] [--times 5] [--json] [--profile]

1,000 nodes of 8 cards in four classes, 2,000 replicas of 50 models that want 1, 2, 4 or 8 cards of one class or of
either of two. `full_speedup`: a pass from an empty fleet, against a plain filter-and-score over all nodes for each
replica (the baseline below). `one_change_share`: a pass in which one replica has failed and starts again, of a full
pass. `noop_share`: a pass that finds nothing to do, of a full pass. `growth_1000_to_4000`: a full pass with four
times as many of everything, by one. `explain_share`: what a pass over a fleet that gets full costs more when each
model wants replicas that have no place, and says for every node and card why. Each is the median of pairs that ran
one right after the other.
"""

import argparse
import cProfile
import gc
import json
import pstats
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from llmgw.core.plan import Plan, Start, plan
from llmgw.core.units import GIB, Bytes, LaunchId, ModelName, NodeName, Seconds
from llmgw.core.wanted import Demand, Model, Profile, Source
from llmgw.core.world import ClusterSnapshot, Device, DeviceKind, Node, NodeState, Replica, Shard, State

NOW = Seconds(1_800_000_000.0)
MODELS, CARDS, REPLICAS_OF_A_NODE = 50, 8, 2
CLASSES = {"h100-80g": 80, "h200-141g": 141, "l40s-45g": 45, "a100-40g": 40}
WANTS = (1, 2, 4, 8, 2, 4, 1, 8, 2, 8)
"""Devices of the models, in turns: 4 each, so that nine cards in ten are taken."""
AIMS = {
    "full_speedup": (">=", 8.0),
    "one_change_share": ("<=", 1 / 20),
    "noop_share": ("<=", 1 / 100),
    "growth_1000_to_4000": ("<=", 5.0),
    "explain_share": ("<=", 1 / 3),
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--times", type=int, default=5, help="pairs of each ratio (%(default)s)")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.add_argument("--profile", action="store_true", help="show where a full pass spends its time, and end")
    asked = parser.parse_args()
    if asked.profile:
        profile(asked.nodes)
        return
    figures = measure(asked.nodes, asked.times)
    if not asked.json:
        for name, value in figures.items():
            aim = " {} {:.3f}".format(*AIMS[name]) if name in AIMS else ""
            sys.stderr.write(f"{name:24} {value:10.4f}{aim}\n")
    print(json.dumps(figures))


def measure(nodes: int, times: int) -> dict[str, float]:
    """Return all figures; seconds for orientation, ratios for judging."""
    empty = a_fleet(nodes)
    placed = plan(empty, NOW)
    assert not placed.refusals, "the fleet is to take them all"
    running = after(empty, placed)
    assert not plan(running, NOW).actions
    changed, larger, crowded = one_failed(running), a_fleet(nodes * 4), with_more_than_fit(empty)
    assert len(plan(changed, NOW).actions) == 1
    fitting = what_fits(crowded)

    def full(snapshot: ClusterSnapshot = empty) -> Callable[[], Plan]:
        return lambda: plan(snapshot, NOW)

    return {
        "full_s": statistics.median(taken(full()) for _ in range(times)),
        "full_speedup": ratio(lambda: filter_and_score(empty), full(), times=min(times, 2)),
        "one_change_share": ratio(full(changed), full(), times=times),
        "noop_share": ratio(full(running), full(), times=times),
        "growth_1000_to_4000": ratio(full(larger), full(), times=min(times, 3)),
        "explain_share": ratio(full(crowded), full(fitting), times=times) - 1,
    }


def ratio(one: Callable[[], object], other: Callable[[], object], *, times: int) -> float:
    """Return how long one thing takes in units of another, the two in turns."""
    return statistics.median(taken(one) / taken(other) for _ in range(times))


def taken(what: Callable[[], object]) -> float:
    """Return how many seconds something takes, without the garbage of what was before."""
    gc.collect()
    begun = time.perf_counter()
    what()
    return time.perf_counter() - begun


def profile(nodes: int) -> None:
    """Show where a pass from an empty fleet, one that does nothing, and one that refuses spend their time."""
    empty = a_fleet(nodes)
    for snapshot in (empty, after(empty, plan(empty, NOW)), with_more_than_fit(empty)):
        profiler = cProfile.Profile()
        profiler.runcall(plan, snapshot, NOW)
        pstats.Stats(profiler).sort_stats("tottime").print_stats(14)


# --- fleets -------------------------------------------------------------------------------------------------------


def a_fleet(nodes: int) -> ClusterSnapshot:
    """Nodes of four classes in turns, and models of which all replicas have a place."""
    classes = list(CLASSES)
    return ClusterSnapshot(
        nodes=tuple(a_node(f"n{n:05}", classes[n % len(classes)]) for n in range(nodes)),
        models=tuple(a_model(n, nodes * REPLICAS_OF_A_NODE // MODELS) for n in range(MODELS)),
    )


def a_node(name: str, device_class: str) -> Node:
    """A node of eight cards and a CPU."""
    cards = (a_card(n, device_class) for n in range(CARDS))
    cpu = Device("cpu", DeviceKind.CPU, "cpu", Bytes(512 * GIB), 4)
    return Node(NodeName(name), NodeState.READY, "::1", 1, (cpu, *cards), frozenset({"vllm"}), Bytes(4000 * GIB))


def a_card(number: int, device_class: str) -> Device:
    """One card."""
    return Device(f"GPU-{number}", DeviceKind.GPU, device_class, Bytes(CLASSES[device_class] * GIB))


def a_model(number: int, replicas: int) -> Model:
    """A model for one class; every fifth takes the next class, too."""
    classes = list(CLASSES)
    wanted = tuple(classes[(number + n) % len(classes)] for n in range(2 if number % 5 == 0 else 1))
    devices = WANTS[number // len(classes) % len(WANTS)]
    profile = Profile("gpu", "vllm", wanted, devices, tensor_parallel=devices)
    source = Source(f"hf://o/m{number}/w", Bytes(20 * GIB * devices))
    return Model(ModelName(f"model-{number:02}"), source, (profile,), replicas, priority=number % 3)


def with_more_than_fit(empty: ClusterSnapshot) -> ClusterSnapshot:
    """The same fleet with a half more of each model wanted, so that none of them gets all."""
    return replace(empty, models=tuple(replace(model, replicas=model.replicas * 3 // 2) for model in empty.models))


def what_fits(crowded: ClusterSnapshot) -> ClusterSnapshot:
    """The same fleet with as many replicas of each model wanted as have a place: the same starts, and no refusal."""
    done = plan(crowded, NOW)
    counts = Counter(action.model for action in done.actions if isinstance(action, Start))
    fitting = replace(crowded, models=tuple(replace(one, replicas=counts[one.name]) for one in crowded.models))
    assert places(plan(fitting, NOW)) == places(done), "other starts"
    assert done.refusals
    return fitting


def places(done: Plan) -> list[object]:
    """Return who was started where."""
    return [(one.replica, one.shards) for one in done.actions if isinstance(one, Start)]


def after(snapshot: ClusterSnapshot, done: Plan) -> ClusterSnapshot:
    """Return the fleet once all that was started serves."""
    return replace(snapshot, replicas=tuple(started(one) for one in done.actions if isinstance(one, Start)))


def started(start: Start) -> Replica:
    """Return a slot that serves."""
    shards = tuple(
        Shard(LaunchId(f"{start.replica}.{part.rank}"), part.node, part.devices, State.READY, part.rank)
        for part in start.shards
    )
    slot = Replica(start.replica, start.model, start.ordinal, State.READY, start.profile, start.fingerprint, 1)
    return replace(slot, shards=shards)


def one_failed(running: ClusterSnapshot) -> ClusterSnapshot:
    """The same fleet with one replica that has ended and is due again."""
    middle = len(running.replicas) // 2
    one = running.replicas[middle]
    shards = tuple(replace(shard, state=State.FAILED) for shard in one.shards)
    failed = replace(one, state=State.FAILED, failures=1, next_try_at=NOW, shards=shards)
    return replace(running, replicas=(*running.replicas[:middle], failed, *running.replicas[middle + 1 :]))


# --- the baseline -------------------------------------------------------------------------------------------------


def filter_and_score(snapshot: ClusterSnapshot) -> int:
    """Place every replica by looking at every node: those that may, then the tightest; count those with a place."""
    taken_by: dict[tuple[str, str], int] = {}
    placed = 0
    for model in sorted(snapshot.models, key=lambda one: (-one.priority, one.name)):
        demand = Demand(model, model.profiles[0])
        for _ in range(model.replicas):
            candidates = [
                (len(free), node.name, free)
                for node in snapshot.nodes
                if may(node, demand) and len(free := free_devices(node, demand, taken_by)) >= demand.profile.devices
            ]
            if candidates:
                _, name, free = min(candidates, key=lambda one: one[:2])
                for device in free[: demand.profile.devices]:
                    taken_by[name, device] = taken_by.get((name, device), 0) + 1
                placed += 1
    return placed


def may(node: Node, demand: Demand) -> bool:
    """Filter a node as a whole."""
    source = demand.model.source
    return (
        node.state is NodeState.READY
        and not node.cordoned
        and demand.profile.engine in node.engines
        and all(node.labels.get(key) == value for key, value in demand.model.labels.items())
        and (node.disk_free is None or source.size is None or source.size * 1.05 <= node.disk_free)
    )


def free_devices(node: Node, demand: Demand, taken_by: Mapping[tuple[str, str], int]) -> list[str]:
    """Filter a node's devices by the first class that has any."""
    memory = demand.memory
    for device_class in demand.profile.device_classes:
        free = [
            device.id
            for device in node.devices
            if device.device_class == device_class
            and not device.unhealthy
            and device.memory >= memory
            and taken_by.get((node.name, device.id), 0) < device.slots
        ]
        if free:
            return free
    return []


if __name__ == "__main__":
    main()
