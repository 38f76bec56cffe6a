"""Every "no" that placement and the node can give, with its numbers, what cures it, and its text."""

from types import MappingProxyType
from typing import Any, Final

import msgspec

from llmgw.core.refusals.base import Event, Refusal
from llmgw.core.refusals.devices import (
    CapabilityShort,
    ClassMismatch,
    DeviceClaimed,
    DevicesShort,
    DeviceUnhealthy,
    MemoryShort,
    MemoryUnknown,
)
from llmgw.core.refusals.fabrics import FabricIdentity, FabricNone, FabricOther, FabricShort, FabricUnusable, RailsApart
from llmgw.core.refusals.nodes import (
    DiskShort,
    EngineMissing,
    LabelsMissing,
    NodeCordoned,
    NodeLost,
    NodeNotJoined,
    NodeUnreachable,
    NoNodes,
)
from llmgw.core.refusals.waiting import WaitingForRetry, WaitingForRollout, WaitingForRoom

__all__ = [
    "EASIEST_FIRST",
    "REFUSALS",
    "CapabilityShort",
    "ClassMismatch",
    "DeviceClaimed",
    "DeviceUnhealthy",
    "DevicesShort",
    "DiskShort",
    "EngineMissing",
    "Event",
    "FabricIdentity",
    "FabricNone",
    "FabricOther",
    "FabricShort",
    "FabricUnusable",
    "LabelsMissing",
    "MemoryShort",
    "MemoryUnknown",
    "NoNodes",
    "NodeCordoned",
    "NodeLost",
    "NodeNotJoined",
    "NodeUnreachable",
    "RailsApart",
    "Refusal",
    "WaitingForRetry",
    "WaitingForRollout",
    "WaitingForRoom",
    "hardness",
    "plain",
    "to_json",
]

REFUSALS: Final[tuple[type[Refusal], ...]] = (
    NoNodes,
    NodeNotJoined,
    NodeUnreachable,
    NodeLost,
    NodeCordoned,
    EngineMissing,
    LabelsMissing,
    DiskShort,
    ClassMismatch,
    DeviceUnhealthy,
    MemoryUnknown,
    CapabilityShort,
    MemoryShort,
    DeviceClaimed,
    DevicesShort,
    FabricNone,
    FabricUnusable,
    FabricOther,
    FabricShort,
    FabricIdentity,
    RailsApart,
    WaitingForRetry,
    WaitingForRollout,
    WaitingForRoom,
)
EASIEST_FIRST: Final[tuple[type[Refusal], ...]] = (
    WaitingForRoom,
    WaitingForRetry,
    WaitingForRollout,
    DeviceClaimed,
    DevicesShort,
    FabricShort,
    RailsApart,
    NodeCordoned,
    NodeNotJoined,
    NodeUnreachable,
    LabelsMissing,
    DiskShort,
    DeviceUnhealthy,
    MemoryUnknown,
    EngineMissing,
    MemoryShort,
    CapabilityShort,
    ClassMismatch,
    FabricUnusable,
    FabricIdentity,
    FabricOther,
    FabricNone,
    NodeLost,
    NoNodes,
)
"""By how much it takes to cure one: of two candidates with as many reasons against them, the easier one is nearer."""

_HARDNESS: Final = MappingProxyType({kind.code: rank for rank, kind in enumerate(EASIEST_FIRST)})


def hardness(code: str) -> int:
    """Rank a reason by how hard it is to cure; one of another version, which nobody here knows, is the hardest."""
    return _HARDNESS.get(code, len(_HARDNESS))


def to_json(refusal: Refusal) -> dict[str, Any]:
    """Return the stored and printed shape: `{"code", "text", "cure", "facts": {…}}`."""
    return {
        "code": refusal.code,
        "text": refusal.text(),
        "cure": refusal.cure(),
        "facts": plain(refusal),
    }


def plain(value: object) -> Any:
    """Return what JSON would give back for a value, lists for tuples, so that what is stored equals what is made."""
    return msgspec.json.decode(msgspec.json.encode(value))
