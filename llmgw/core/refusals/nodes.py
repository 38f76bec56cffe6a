"""Why a node as a whole does not take a replica."""

from dataclasses import dataclass
from typing import ClassVar

from llmgw.core.refusals.base import Event
from llmgw.core.units import Bytes, NodeName, gib


@dataclass(frozen=True, slots=True)
class NodeNotJoined:
    """The node has not told yet what it has."""

    code: ClassVar[str] = "node.joining"
    cured_by: ClassVar[frozenset[Event]] = frozenset({Event.NODE_JOINED})
    node: NodeName

    def text(self) -> str:
        return "has not reported its inventory yet"

    def cure(self) -> str:
        return f"wait for its first report, or look at the worker's log on {self.node}"


@dataclass(frozen=True, slots=True)
class NodeUnreachable:
    """The node has missed heartbeats; what runs there is left alone."""

    code: ClassVar[str] = "node.unreachable"
    cured_by: ClassVar[frozenset[Event]] = frozenset({Event.NODE_RETURNED})
    node: NodeName

    def text(self) -> str:
        return "has missed its heartbeats"

    def cure(self) -> str:
        return f"look at the worker on {self.node}: `systemctl status llmgw-node`"


@dataclass(frozen=True, slots=True)
class NodeLost:
    """The node has been silent for so long that it is given up."""

    code: ClassVar[str] = "node.lost"
    cured_by: ClassVar[frozenset[Event]] = frozenset({Event.NODE_RETURNED})
    node: NodeName

    def text(self) -> str:
        return "has been silent too long and is given up"

    def cure(self) -> str:
        return f"bring {self.node} back; its engines are kept if they still serve"


@dataclass(frozen=True, slots=True)
class NodeCordoned:
    """An operator keeps new work away from the node."""

    code: ClassVar[str] = "node.cordoned"
    cured_by: ClassVar[frozenset[Event]] = frozenset({Event.NODE_UNCORDONED})
    node: NodeName

    def text(self) -> str:
        return "is cordoned"

    def cure(self) -> str:
        return f"uncordon {self.node}"


@dataclass(frozen=True, slots=True)
class EngineMissing:
    """The node cannot start the engine that the profile asks for."""

    code: ClassVar[str] = "node.engine-missing"
    cured_by: ClassVar[frozenset[Event]] = frozenset({Event.NODE_CHANGED, Event.MODEL_EDITED})
    engine: str
    installed: tuple[str, ...]

    def text(self) -> str:
        has = ", ".join(self.installed) or "none"
        return f"needs engine {self.engine}, has {has}"

    def cure(self) -> str:
        return f"install {self.engine} on the node, or add a profile with an engine it has"


@dataclass(frozen=True, slots=True)
class LabelsMissing:
    """The model asks for labels that the node does not carry."""

    code: ClassVar[str] = "policy.label"
    cured_by: ClassVar[frozenset[Event]] = frozenset({Event.NODE_CHANGED, Event.MODEL_EDITED})
    missing: tuple[str, ...]
    """`key=value` each."""

    def text(self) -> str:
        return f"lacks the labels {', '.join(self.missing)}"

    def cure(self) -> str:
        return "label the node, or take the label from the model"


@dataclass(frozen=True, slots=True)
class DiskShort:
    """The disk where weights are kept cannot take this model's."""

    code: ClassVar[str] = "node.disk"
    cured_by: ClassVar[frozenset[Event]] = frozenset({Event.NODE_CHANGED})
    needed: Bytes
    free: Bytes

    def text(self) -> str:
        return f"needs {gib(self.needed)} of disk for the weights, {gib(self.free)} free"

    def cure(self) -> str:
        return "delete weights that nobody uses, or give the node's state folder a larger disk"


@dataclass(frozen=True, slots=True)
class NoNodes:
    """There is no node at all to look at."""

    code: ClassVar[str] = "fleet.empty"
    cured_by: ClassVar[frozenset[Event]] = frozenset({Event.NODE_JOINED})

    def text(self) -> str:
        return "no node has joined"

    def cure(self) -> str:
        return "start a node worker: `llmgw-node run`"
