"""The one contract between the control plane and its nodes: orders down, reports up, and the names they travel under.

Everything is JSON. Both ends build and read these types; unknown fields are ignored, an unknown version or kind is
answered with an `Unreadable`. Orders and reports may arrive twice, late, out of order or never: an order is fenced by
the node's epoch and known by its id and launch id, a report by the node's instance, its sequence number and epoch.
"""

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Final, cast

import msgspec

from llmgw.core.hardware.examination import Examination
from llmgw.core.hardware.fabrics import Attachment, Proposal
from llmgw.core.hardware.findings import Finding, Problem
from llmgw.core.hardware.gpus import Driver, Gpu, Imex, NvSwitch, Topology
from llmgw.core.hardware.network import Port as NetworkPort
from llmgw.core.lifecycle import Happened
from llmgw.core.units import Bytes, LaunchId, NodeName, OrderId, ReplicaId, Seconds
from llmgw.core.wanted import Source
from llmgw.core.world import Device, State

VERSION: Final = 1

# No database keeps larger ones; an epoch beyond its bound would be kept by a node and never be caught up with.
Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Serial = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]

# --- names ------------------------------------------------------------------------------------------------------

ORDER_TASK: Final = "llmgw.node.order"
"""Runs on a node: one keyword, `raw`, an order."""
TICK_TASK: Final = "llmgw.node.tick"
"""Runs on every node that hears the broadcast: keywords `tick` (int) and `at` (control's clock, Unix seconds)."""
REPORT_TASK: Final = "llmgw.control.report"
"""Runs on the control plane: one keyword, `raw`, a report."""

CONTROL_QUEUE: Final = "control"
TICK_EXCHANGE: Final = "llmgw.ticks"
TICK_ROUTING_KEY: Final = "tick"
"""Said on both ends: where it is left out, Celery puts a default of its own and Redis' channels no longer match."""

HEARD_KEY: Final = "llmgw:heard"
"""Sorted set: node name → number of the last tick it answered."""
TICK_KEY: Final = "llmgw:tick"
"""Counter: the last tick sent."""
ROUTES_KEY: Final = "llmgw:routes"
"""String: the routing table, JSON (`llmgw.core.routing`)."""
ROUTES_CHANNEL: Final = "llmgw:routes:changed"
"""Channel: says that the table at `ROUTES_KEY` is new; the message is its version."""


def node_queue(node: str) -> str:
    """Return the queue that only this node's worker reads."""
    return f"node.{node}"


def beat_key(node: str) -> str:
    """Return the key of the hash with a node's last `Beat`; it lives a few ticks."""
    return f"llmgw:beat:{node}"


# --- orders down ------------------------------------------------------------------------------------------------


class OrderKind(StrEnum):
    """What is ordered: `kind` of an order, here and in the outbox."""

    HELLO = "hello"
    LAUNCH = "launch"
    STOP = "stop"
    FORGET = "forget"
    EXAMINE = "examine"


class OrderRefusal(StrEnum):
    """Why a node does not carry out an order."""

    STALE_EPOCH = "order.stale-epoch"
    OVERTAKEN = "order.overtaken"
    VERSION = "order.version"
    INVALID = "order.invalid"
    OTHER_NODE = "order.other-node"
    OTHER_INSTANCE = "order.other-instance"
    NOT_KEPT = "order.not-kept"


class Order(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """What every order carries."""

    order_id: OrderId
    node: NodeName
    epoch: Count
    """The node's epoch as the control plane knows it; a node that has seen a higher one refuses the order."""
    issued_at: Seconds
    instance: str = ""
    """The state folder it is for; two workers under one name read one queue, and only one of them is meant."""
    v: int = VERSION


class HelloOrder(Order, frozen=True, kw_only=True, tag=OrderKind.HELLO.value):
    """Take this epoch and register again, with everything that runs."""


class LaunchOrder(Order, frozen=True, kw_only=True, tag=OrderKind.LAUNCH.value):
    """Start one shard. Carries all that the node needs, so that it never has to ask back."""

    launch_id: LaunchId
    replica: ReplicaId
    model: str
    """The name the engine must serve under, and the one that readiness asks for."""
    attempt: Count
    engine: str
    source: Source
    devices: tuple[str, ...]
    rank: Count = 0
    context_length: int | None = None
    quantization: str | None = None
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    arguments: tuple[str, ...] = ()
    trace: str = ""
    """W3C `traceparent` of the pass that ordered this, so that a repeated order stays in its trace."""


class StopOrder(Order, frozen=True, kw_only=True, tag=OrderKind.STOP.value):
    """Stop one launch: drain it for at most `drain_s` seconds, then end it. A launch nobody knows counts as stopped."""

    launch_id: LaunchId
    drain_s: float = 0.0
    why: str = ""


class ForgetOrder(Order, frozen=True, kw_only=True, tag=OrderKind.FORGET.value):
    """The control plane has kept this launch's end: the node may delete its journal and logs."""

    launch_id: LaunchId


class ExamineOrder(Order, frozen=True, kw_only=True, tag=OrderKind.EXAMINE.value):
    """Run the doctor now and report what it finds."""


AnyOrder = HelloOrder | LaunchOrder | StopOrder | ForgetOrder | ExamineOrder

# --- reports up -------------------------------------------------------------------------------------------------


class Step(msgspec.Struct, frozen=True):
    """One thing that befell a launch, as the node saw it."""

    happened: Happened
    at: Seconds
    """The node's own clock: good for durations on one node, never for liveness."""
    why: str = ""


class Failure(msgspec.Struct, frozen=True):
    """How a launch ended that nobody asked to end."""

    failure_class: str
    """A code of `llmgw.core.engines.failures`, for example `out-of-memory`."""
    text: str
    """One sentence for the operator: what happened, on which machine's behalf, what to do."""
    exit_code: int | None = None
    """None when it could not be known: the engine was adopted, or never started."""
    signal: int | None = None
    tail: tuple[str, ...] = ()
    """The engine's last lines, oldest first; at most 50 lines of 500 characters."""


class Progress(msgspec.Struct, frozen=True):
    """How far a fetch is, in bytes; `total` None when the source does not say."""

    done: Bytes
    total: Bytes | None = None


class ShardStatus(msgspec.Struct, frozen=True, kw_only=True):
    """All there is to say of one launch; each status replaces the one before it."""

    launch_id: LaunchId
    replica: ReplicaId
    attempt: Count
    state: State
    steps: tuple[Step, ...]
    """The history of the launch, so that a lost report loses nothing; very many changes of mind are left out."""
    rank: Count = 0
    devices: tuple[str, ...] = ()
    host: str | None = None
    port: Port | None = None
    """Where the engine takes requests; None until a port was chosen."""
    pid: Count | None = None
    adopted: bool = False
    """True when the present worker found the engine instead of starting it."""
    progress: Progress | None = None
    failure: Failure | None = None
    tail: tuple[str, ...] = ()
    """The engine's last lines when this status was made, oldest first; at most 20 lines of 500 characters."""


class AnswerKind(StrEnum):
    """What a node did with an order."""

    TAKEN = "taken"
    REPEATED = "repeated"
    REFUSED = "refused"


class Answer(msgspec.Struct, frozen=True):
    """A node's answer to one order."""

    order_id: OrderId
    kind: AnswerKind
    code: str = ""
    """For a refusal: `order.stale-epoch`, `order.overtaken`, `order.version`, `order.invalid`, `order.other-node`,
    `order.other-instance`, `order.not-kept`."""
    text: str = ""


class Inventory(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename={name: f"{name}_bytes" for name in ("memory_total", "memory_available", "disk_total", "disk_free")},
):
    """What a node has: what placement hands out, the facts behind it, and what is wrong or unknown."""

    devices: tuple[Device, ...]
    cpu_count: int
    memory_total: Bytes
    memory_available: Bytes | None = None
    disk_total: Bytes | None = None
    disk_free: Bytes | None = None
    engines: Mapping[str, str] = {}
    """Engine name → how it would be started, in words: `llama-server at /usr/bin/llama-server`."""
    os: str = ""
    kernel: str = ""
    architecture: str = ""
    python: str = ""
    llmgw: str = ""
    driver: Driver | None = None
    """The NVIDIA driver; null where there is none."""
    gpus: tuple[Gpu, ...] = ()
    gpus_stale_since: Seconds | None = None
    """Since when the driver has not told of the cards: what is said of them is what it told last."""
    topology: Topology | None = None
    nvswitch: NvSwitch | None = None
    imex: Imex | None = None
    ports: tuple[NetworkPort, ...] = ()
    fabrics: tuple[Attachment, ...] = ()
    proposals: tuple[Proposal, ...] = ()
    """Where no fabric is declared."""
    findings: tuple[Finding, ...] = ()
    """What is wrong with the hardware, the most serious first."""
    problems: tuple[Problem, ...] = ()
    """Facts that could not be had."""


class Report(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """What every report carries."""

    node: NodeName
    instance: str
    """Identity of the node's state folder; another one under the same node name is another node's history."""
    boot_id: str
    epoch: Count
    seq: Serial
    """Rises with every report of this instance, over restarts of the worker too."""
    sent_at: Seconds
    v: int = VERSION


class Registration(Report, frozen=True, kw_only=True, tag="registration"):
    """A worker has started, or was told hello: everything there is to know of its node."""

    address: str
    inventory: Inventory
    shards: tuple[ShardStatus, ...] = ()
    """Every launch that the node still keeps: what is missing here does not exist there."""
    labels: Mapping[str, str] = {}
    answers: tuple[Answer, ...] = ()
    findings: tuple[Finding, ...] = ()


class InventoryChanged(Report, frozen=True, kw_only=True, tag="inventory"):
    """The hardware, or what is installed, is not what was last told."""

    inventory: Inventory


class ShardReport(Report, frozen=True, kw_only=True, tag="shards"):
    """News of some launches, answers to orders, or both; a launch not named here is unchanged."""

    shards: tuple[ShardStatus, ...] = ()
    answers: tuple[Answer, ...] = ()


class DoctorReport(Report, frozen=True, kw_only=True, tag="doctor"):
    """The doctor has run, on order or by itself."""

    examination: Examination


AnyReport = Registration | InventoryChanged | ShardReport | DoctorReport

# --- heartbeats (Redis, not a message) --------------------------------------------------------------------------


class Beat(msgspec.Struct, frozen=True, kw_only=True):
    """A node's answer to one tick: the fields of its hash at `beat_key`."""

    tick: Serial
    epoch: Count
    instance: str
    boot_id: str
    digest: str
    """`digest` of all launches the node keeps: if it stays other than the control plane's own, a report was lost."""


def digest(launches: Iterable[tuple[str, str]]) -> str:
    """Condense (launch id, state) pairs of a node's live launches to eight hexadecimal digits; their order is free."""
    told = "\n".join(f"{launch} {state}" for launch, state in sorted(launches))
    return f"{zlib.crc32(told.encode()):08x}"


# --- both ways ---------------------------------------------------------------------------------------------------

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Unreadable:
    """This message is not for this version, or not a message at all."""

    code: ClassVar[str] = "wire.unreadable"
    what: str
    """`version`, `kind` or `shape`."""
    detail: str

    def text(self) -> str:
        """Say it in one line."""
        if self.what == "version":
            return f"message version {self.detail}, this side speaks {VERSION}: update the older side"
        return f"unreadable message: {self.detail}"


def to_wire(message: Order | Report) -> Json:
    """Return the JSON object that travels."""
    raw: Json = msgspec.to_builtins(message)
    return raw


def order_from_wire(raw: object) -> AnyOrder | Unreadable:
    """Read an order."""
    return cast("AnyOrder | Unreadable", _read(raw, AnyOrder))


def report_from_wire(raw: object) -> AnyReport | Unreadable:
    """Read a report."""
    return cast("AnyReport | Unreadable", _read(raw, AnyReport))


def _read(raw: object, kind: Any) -> Any:
    if not isinstance(raw, Mapping):
        return Unreadable("shape", "not a JSON object")
    if raw.get("v") != VERSION:
        return Unreadable("version", str(raw.get("v")))
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as wrong:
        return Unreadable("shape", str(wrong))
