"""Why nodes cannot be joined for a replica over several of them."""

from dataclasses import dataclass
from typing import ClassVar

from llmgw.core.refusals.base import Event
from llmgw.core.units import counted


@dataclass(frozen=True, slots=True)
class FabricNone:
    """A replica over several nodes needs a fabric, and this node is on none."""

    code: ClassVar[str] = "fabric.none"
    cured_by: ClassVar[frozenset[Event]] = frozenset({Event.NODE_CHANGED, Event.MODEL_EDITED})
    nodes: int

    def text(self) -> str:
        return f"a replica over {self.nodes} nodes needs a fabric, the node is attached to none"

    def cure(self) -> str:
        return "use a profile with nodes = 1"


@dataclass(frozen=True, slots=True)
class FabricUnusable:
    """A replica over several nodes needs a fabric, and nothing can go over those that this node was told of."""

    code: ClassVar[str] = "fabric.unusable"
    cured_by: ClassVar[frozenset[Event]] = frozenset({Event.NODE_CHANGED, Event.DEVICE_HEALED})
    fabrics: tuple[str, ...]
    findings: tuple[str, ...]
    """Of each fabric, the code of what was found."""
    reasons: tuple[str, ...]
    """Of each fabric, why."""

    def text(self) -> str:
        told = zip(self.fabrics, self.findings, self.reasons, strict=True)
        return "; ".join(f"fabric {name} cannot be used: {code}: {why}" for name, code, why in told)

    def cure(self) -> str:
        return "`llmgw-node doctor` on the node says how to cure each"


@dataclass(frozen=True, slots=True)
class FabricOther:
    """The profile names a fabric that this node is not on."""

    code: ClassVar[str] = "fabric.other"
    cured_by: ClassVar[frozenset[Event]] = frozenset({Event.NODE_CHANGED, Event.MODEL_EDITED})
    wanted: str
    attached: tuple[str, ...]

    def text(self) -> str:
        return f"wants fabric {self.wanted}, the node is on {', '.join(self.attached) or 'none'}"

    def cure(self) -> str:
        return f"declare {self.wanted} in the node's settings, or leave `fabric` out of the profile"


@dataclass(frozen=True, slots=True)
class FabricShort:
    """The node could take a shard, but too few others that it reaches could, too."""

    code: ClassVar[str] = "fabric.count"
    cured_by: ClassVar[frozenset[Event]] = frozenset(
        {Event.REPLICA_STOPPED, Event.NODE_CHANGED, Event.NODE_JOINED, Event.NODE_RETURNED, Event.DEVICE_HEALED}
    )
    fabric: str
    identity: str
    needed: int
    able: int

    def text(self) -> str:
        which = f"{self.fabric} ({self.identity})" if self.identity else self.fabric
        return f"needs {self.needed} nodes together, {self.able} on {which} could take a part now"

    def cure(self) -> str:
        return "free devices on other nodes of it, or use a profile with fewer nodes"


@dataclass(frozen=True, slots=True)
class FabricIdentity:
    """Nodes give one name to several physical networks."""

    code: ClassVar[str] = "fabric.identity"
    cured_by: ClassVar[frozenset[Event]] = frozenset({Event.NODE_CHANGED})
    fabric: str
    identity: str
    others: tuple[str, ...]

    def text(self) -> str:
        there = ", ".join(other or "unknown" for other in self.others)
        return f"its fabric {self.fabric} is {self.identity or 'unknown'}, on other nodes that name is {there}"

    def cure(self) -> str:
        return (
            "give each physical network a name of its own in the nodes' settings; `llmgw-node doctor` tells which it is"
        )


@dataclass(frozen=True, slots=True)
class RailsApart:
    """Only ports of one number reach each other, and no number is free on enough nodes."""

    code: ClassVar[str] = "fabric.rails"
    cured_by: ClassVar[frozenset[Event]] = frozenset({Event.REPLICA_STOPPED, Event.NODE_CHANGED})
    fabric: str
    nodes: int
    devices: int

    def text(self) -> str:
        rails = counted(self.devices, "rail")
        return f"needs {rails} of {self.fabric} free on {self.nodes} nodes alike, other ones are free on each"

    def cure(self) -> str:
        return "free devices so that the same rails are free, or use all devices of each node"
