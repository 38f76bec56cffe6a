"""What a replica waits for that will have a place."""

from dataclasses import dataclass
from typing import ClassVar

from llmgw.core.refusals.base import Event
from llmgw.core.units import in_a_row


@dataclass(frozen=True, slots=True)
class WaitingForRetry:
    """The replica failed and its next start is not due yet."""

    code: ClassVar[str] = "replica.back-off"
    cured_by: ClassVar[frozenset[Event]] = frozenset({Event.TIME_PASSED, Event.MODEL_EDITED})
    failures: int
    wait: float
    """Seconds still to wait."""

    def text(self) -> str:
        return f"failed {in_a_row(self.failures)}, next start in {max(self.wait, 0):.0f} s"

    def cure(self) -> str:
        return "read its last failure; editing the model starts it at once"


@dataclass(frozen=True, slots=True)
class WaitingForRollout:
    """The model was edited, and as many replicas are up as may be while the ones from before are replaced."""

    code: ClassVar[str] = "replica.rollout"
    cured_by: ClassVar[frozenset[Event]] = frozenset({Event.REPLICA_STOPPED, Event.MODEL_EDITED})
    old: int
    """Replicas of the version before that are still up."""

    def text(self) -> str:
        return f"waits for its turn: {self.old} from before the edit still up, and they are replaced one by one"

    def cure(self) -> str:
        return "wait; if it does not go on, see why the model's other replicas do not start"


@dataclass(frozen=True, slots=True)
class WaitingForRoom:
    """What is on the devices that the replica will get has been asked to go, and has not gone yet."""

    code: ClassVar[str] = "policy.priority"
    cured_by: ClassVar[frozenset[Event]] = frozenset({Event.REPLICA_STOPPED, Event.MODEL_EDITED})
    waits_for: tuple[str, ...]
    """Replica ids, or launch ids of what is still being stopped."""

    def text(self) -> str:
        return f"waits until {', '.join(self.waits_for)} has gone, then takes its place"

    def cure(self) -> str:
        return "nothing: they finish their requests first; `manage.py replicas stop` ends one at once"
