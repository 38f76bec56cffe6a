"""What every refusal is, and the events that make one worth another look."""

from enum import StrEnum
from typing import ClassVar, Protocol, runtime_checkable


class Event(StrEnum):
    """What can happen to the fleet that makes a refused candidate worth another look."""

    NODE_JOINED = "node-joined"
    NODE_CHANGED = "node-changed"
    NODE_RETURNED = "node-returned"
    NODE_UNCORDONED = "node-uncordoned"
    REPLICA_STOPPED = "replica-stopped"
    DEVICE_HEALED = "device-healed"
    MODEL_EDITED = "model-edited"
    TIME_PASSED = "time-passed"


@runtime_checkable
class Refusal(Protocol):
    """A typed no. `code` is stable and is also the anchor of its paragraph in the reference."""

    code: ClassVar[str]
    cured_by: ClassVar[frozenset[Event]]

    def text(self) -> str:
        """Say which numbers stood against it, in one line."""
        ...

    def cure(self) -> str:
        """Say what an operator can do, in one line."""
        ...
