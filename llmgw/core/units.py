"""The small vocabulary of ids and quantities that every other module speaks."""

from datetime import UTC, datetime
from typing import Final, NewType

NodeName = NewType("NodeName", str)
"""A node's id as the operator reads it; also the tail of its queue's name, `node.<id>`."""

ModelName = NewType("ModelName", str)
"""The name a model is served under; what a client puts into `model`."""

ReplicaId = NewType("ReplicaId", str)
"""`<model>/<ordinal>`, for example `smollm2/1`: the slot, which outlives its starts."""

LaunchId = NewType("LaunchId", str)
"""One start of one shard, for ever unique: what an order, a pid file and a report agree on."""

OrderId = NewType("OrderId", str)
"""One row of the outbox."""

Bytes = NewType("Bytes", int)
"""An amount of memory or disk, in bytes."""

Seconds = NewType("Seconds", float)
"""A duration, or a moment as seconds since 1970-01-01 UTC."""

MIB: Final = 1024**2
GIB: Final = 1024**3


def gib(amount: int) -> str:
    """Say an amount of bytes in GiB, to one decimal: `gib(5 * GIB) == "5.0 GiB"`."""
    return f"{amount / GIB:.1f} GiB"


def duration(seconds: float) -> str:
    """Say how long something took or lasts, in its largest unit: `duration(240) == "4 min"`."""
    whole = max(int(seconds), 0)
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if whole >= 2 * size:
            return f"{whole // size} {unit}"
    return f"{whole} s"


def moment(at: float) -> str:
    """Say when something was, for a sentence: `moment(0) == "1970-01-01 00:00:00 UTC"`."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def counted(many: int, word: str) -> str:
    """Say how many there are of something: `counted(1, "key") == "1 key"`, `counted(2, "key") == "2 keys"`."""
    return f"{many} {word}" if many == 1 else f"{many} {word}s"


def in_a_row(many: int) -> str:
    """Say how often something happened without a break: `once`, `3 times in a row`."""
    return "once" if many == 1 else f"{many} times in a row"


def replica_id(model: str, ordinal: int) -> ReplicaId:
    """Name the slot `ordinal` of a model."""
    return ReplicaId(f"{model}/{ordinal}")
