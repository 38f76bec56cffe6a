"""One message of every kind in version 1 with every field filled, under the name of its file in golden/.

The files are what yesterday's version sent, so none of them is ever changed: a new field that has a default needs
nothing here, a message that gains an optional field may get a second file.
"""

from types import MappingProxyType
from typing import Final

from llmgw.core.hardware.findings import Finding
from llmgw.core.lifecycle import Happened
from llmgw.core.routing import Endpoint, Key, Route, Table
from llmgw.core.units import GIB, Bytes, LaunchId, NodeName, OrderId, ReplicaId, Seconds
from llmgw.core.wanted import Source
from llmgw.core.wire import (
    Answer,
    AnswerKind,
    AnyOrder,
    AnyReport,
    Beat,
    DoctorReport,
    ExamineOrder,
    Failure,
    ForgetOrder,
    HelloOrder,
    Inventory,
    InventoryChanged,
    LaunchOrder,
    Progress,
    Registration,
    ShardReport,
    ShardStatus,
    Step,
    StopOrder,
)
from llmgw.core.world import Device, DeviceKind, State
from tests.builders import EXAMINATION, NO_DRIVER

AT: Final = Seconds(1_800_000_000.25)
_N1: Final = NodeName("n1")
_FOLDER: Final = "c4f1d2"
_ORDER: Final = OrderId("order-1")
_LAUNCH: Final = LaunchId("launch-1")
_REPLICA: Final = ReplicaId("smollm2/1")

ORDERS: Final = MappingProxyType[str, AnyOrder](
    {
        "order-hello": HelloOrder(order_id=_ORDER, node=_N1, epoch=3, issued_at=AT, instance=_FOLDER),
        "order-launch": LaunchOrder(
            order_id=_ORDER,
            node=_N1,
            epoch=3,
            issued_at=AT,
            instance=_FOLDER,
            launch_id=_LAUNCH,
            replica=_REPLICA,
            model="smollm2",
            attempt=2,
            engine="llamacpp",
            source=Source("hf://owner/repo@main/w.gguf", Bytes(98_362_432), "a" * 64),
            devices=("GPU-1", "GPU-2"),
            rank=1,
            context_length=4096,
            quantization="Q4_1",
            tensor_parallel=2,
            pipeline_parallel=1,
            arguments=("--parallel", "4"),
            trace="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        ),
        "order-stop": StopOrder(
            order_id=_ORDER,
            node=_N1,
            epoch=3,
            issued_at=AT,
            instance=_FOLDER,
            launch_id=_LAUNCH,
            drain_s=30.0,
            why="1 wanted, 2 there",
        ),
        "order-forget": ForgetOrder(
            order_id=_ORDER, node=_N1, epoch=3, issued_at=AT, instance=_FOLDER, launch_id=_LAUNCH
        ),
        "order-examine": ExamineOrder(order_id=_ORDER, node=_N1, epoch=3, issued_at=AT, instance=_FOLDER),
    }
)

_SERVING: Final = ShardStatus(
    launch_id=_LAUNCH,
    replica=_REPLICA,
    attempt=2,
    state=State.READY,
    steps=(
        Step(Happened.FETCH_BEGUN, AT),
        Step(Happened.LAUNCH_BEGUN, AT),
        Step(Happened.PROCESS_STARTED, AT, "pid 4711"),
        Step(Happened.PROBE_PASSED, AT),
    ),
    rank=0,
    devices=("cpu",),
    host="10.0.0.1",
    port=40001,
    pid=4711,
    adopted=True,
    tail=("all slots are idle",),
)
_FAILED: Final = ShardStatus(
    launch_id=LaunchId("launch-2"),
    replica=_REPLICA,
    attempt=1,
    state=State.FAILED,
    steps=(Step(Happened.FETCH_BEGUN, AT), Step(Happened.FAILED, AT, "out of memory")),
    progress=Progress(Bytes(10), Bytes(20)),
    failure=Failure("out-of-memory", "the device's memory was not enough", 1, 9, ("first", "last")),
)
INVENTORY: Final = Inventory(
    devices=(
        Device("cpu", DeviceKind.CPU, "cpu", Bytes(64 * GIB), 4),
        Device("GPU-1", DeviceKind.GPU, "h100-80g", Bytes(80 * GIB), 1, "Xid 79"),
        Device("MIG-1", DeviceKind.MIG, "a100-80g-mig-3g.40gb", Bytes(40 * GIB)),
    ),
    cpu_count=16,
    memory_total=Bytes(64 * GIB),
    memory_available=Bytes(32 * GIB),
    disk_total=Bytes(1000 * GIB),
    disk_free=Bytes(500 * GIB),
    engines={"llamacpp": "llama-server at /usr/bin/llama-server"},
    os="Debian GNU/Linux 12",
    python="3.11.2",
    llmgw="0.1.0",
    problems=(NO_DRIVER,),
)
_SHARDS: Final = (_SERVING, _FAILED)
_ANSWERS: Final = (
    Answer(_ORDER, AnswerKind.TAKEN),
    Answer(OrderId("order-2"), AnswerKind.REPEATED),
    Answer(OrderId("order-3"), AnswerKind.REFUSED, "order.stale-epoch", "epoch 2 is over, 3 is known"),
)

REPORTS: Final = MappingProxyType[str, AnyReport](
    {
        "report-registration": Registration(
            node=_N1,
            instance="instance-1",
            boot_id="boot-1",
            epoch=3,
            seq=4 << 32 | 7,
            sent_at=AT,
            address="10.0.0.1",
            inventory=INVENTORY,
            shards=_SHARDS,
            labels={"zone": "a"},
            answers=_ANSWERS,
            findings=(Finding("pidfile.torn", "a pid file cannot be read", _LAUNCH), Finding("x", "y")),
        ),
        "report-inventory": InventoryChanged(
            node=_N1,
            instance="instance-1",
            boot_id="boot-1",
            epoch=3,
            seq=4 << 32 | 8,
            sent_at=AT,
            inventory=INVENTORY,
        ),
        "report-shards": ShardReport(
            node=_N1,
            instance="instance-1",
            boot_id="boot-1",
            epoch=3,
            seq=4 << 32 | 9,
            sent_at=AT,
            shards=_SHARDS,
            answers=_ANSWERS,
        ),
        "report-doctor": DoctorReport(
            node=_N1,
            instance="instance-1",
            boot_id="boot-1",
            epoch=3,
            seq=4 << 32 | 10,
            sent_at=AT,
            examination=EXAMINATION,
        ),
    }
)

BEAT: Final = Beat(tick=12, epoch=3, instance="instance-1", boot_id="boot-1", digest="0a1b2c3d")

TABLE: Final = Table(
    revision=9,
    routes={
        "smollm2": Route("smollm2", (Endpoint("smollm2/1", "launch-1", "10.0.0.1", 40001),), 1_800_000_000),
        "waiting": Route("waiting"),
    },
    keys={"b" * 64: Key("key-1", ("smollm2",), 1_900_000_000.0), "c" * 64: Key("key-2")},
    open=True,
)
