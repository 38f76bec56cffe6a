"""Why a device does not take a shard."""

from dataclasses import dataclass
from typing import ClassVar

from llmgw.core.refusals.base import Event
from llmgw.core.units import Bytes, gib


@dataclass(frozen=True, slots=True)
class ClassMismatch:
    """No device of the node is of a class that the profile names."""

    code: ClassVar[str] = "class.mismatch"
    cured_by: ClassVar[frozenset[Event]] = frozenset({Event.NODE_CHANGED, Event.MODEL_EDITED})
    wanted: tuple[str, ...]
    present: tuple[str, ...]

    def text(self) -> str:
        return f"wants class {' or '.join(self.wanted)}, the node has {', '.join(self.present) or 'no devices'}"

    def cure(self) -> str:
        return "add a profile for a class this node has"


@dataclass(frozen=True, slots=True)
class DeviceUnhealthy:
    """A device of the right class may not be used."""

    code: ClassVar[str] = "device.unhealthy"
    cured_by: ClassVar[frozenset[Event]] = frozenset({Event.DEVICE_HEALED})
    device: str
    reason: str
    finding: str = ""
    """Code of what was found on the node, where it told: `device.unhealthy.ecc`, `device.foreign-memory`."""
    label: str = ""
    """What a person calls the device: `3`, `3/mig1`."""

    def text(self) -> str:
        called = f"device {self.label} ({self.device})" if self.label else f"device {self.device}"
        told = f"{self.finding}: {self.reason}" if self.finding else self.reason
        return f"{called} is unhealthy: {told}"

    def cure(self) -> str:
        return "repair it; `llmgw-node inventory` on the node shows when it may be used again"


@dataclass(frozen=True, slots=True)
class MemoryUnknown:
    """How much memory the model needs is not known, and a card is not given on a guess."""

    code: ClassVar[str] = "weights.unknown-size"
    cured_by: ClassVar[frozenset[Event]] = frozenset({Event.MODEL_EDITED})
    missing: tuple[str, ...]
    """`weights`, `cache`."""

    def text(self) -> str:
        return f"how much memory it needs is not known: {' and '.join(self.missing)} cannot be worked out"

    def cure(self) -> str:
        return "give `memory` in the profile, the source's `size`, or `facts` as `manage.py inspect` prints them"


@dataclass(frozen=True, slots=True)
class CapabilityShort:
    """A card of the right class is too old for the engine or for how the weights are stored."""

    code: ClassVar[str] = "class.compute-capability"
    cured_by: ClassVar[frozenset[Event]] = frozenset({Event.MODEL_EDITED, Event.NODE_CHANGED})
    device: str
    needed: str
    has: str
    what: str
    """`fp8`, or the engine."""

    def text(self) -> str:
        return f"device {self.device} has compute capability {self.has}, {self.what} needs {self.needed}"

    def cure(self) -> str:
        return "use weights that are stored otherwise, or a class of newer cards"


@dataclass(frozen=True, slots=True)
class MemoryShort:
    """A device of the right class is too small for the model."""

    code: ClassVar[str] = "class.memory"
    cured_by: ClassVar[frozenset[Event]] = frozenset({Event.MODEL_EDITED, Event.NODE_CHANGED})
    device: str
    needed: Bytes
    has: Bytes

    def text(self) -> str:
        return f"device {self.device} needs {gib(self.needed)} of memory, has {gib(self.has)}"

    def cure(self) -> str:
        return "use a smaller quantisation or context length, more devices, or a class with more memory"


@dataclass(frozen=True, slots=True)
class DeviceClaimed:
    """A device that would do is taken."""

    code: ClassVar[str] = "device.claimed"
    cured_by: ClassVar[frozenset[Event]] = frozenset({Event.REPLICA_STOPPED})
    device: str
    slots: int
    holders: tuple[str, ...]
    """Replica ids, or launch ids of what is still being stopped."""

    def text(self) -> str:
        return f"device {self.device} is taken ({len(self.holders)} of {self.slots}) by {', '.join(self.holders)}"

    def cure(self) -> str:
        return "wait for one of them to stop, ask for fewer replicas, or add a node"


@dataclass(frozen=True, slots=True)
class DevicesShort:
    """Single devices would do, but there are not enough of them on one node."""

    code: ClassVar[str] = "class.count"
    cured_by: ClassVar[frozenset[Event]] = frozenset({Event.REPLICA_STOPPED, Event.NODE_CHANGED})
    needed: int
    free: int

    def text(self) -> str:
        return f"needs {self.needed} devices together, {self.free} free"

    def cure(self) -> str:
        return "lower devices and their split, or free devices on this node"
