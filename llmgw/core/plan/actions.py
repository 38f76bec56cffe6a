"""What a reconcile pass may do, each as a value: printed, stored and carried out in the same words."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from llmgw.core import refusals
from llmgw.core.placement import Part, Refused
from llmgw.core.units import LaunchId, ModelName, NodeName, ReplicaId, replica_id
from llmgw.core.world import ClusterSnapshot, Replica, Shard, State


class _Action:
    """What all actions share."""

    __slots__ = ()
    code: ClassVar[str]

    def text(self) -> str:
        """Say it in one line."""
        raise NotImplementedError

    def to_json(self) -> dict[str, Any]:
        """Return the stored and printed shape: `code`, `text`, and the fields."""
        return {"code": self.code, "text": self.text(), **refusals.plain(self)}


@dataclass(frozen=True, slots=True)
class Lose(_Action):
    """Give a replica up whose node is lost; it may be started elsewhere."""

    code: ClassVar[str] = "lose"
    replica: ReplicaId
    why: str

    def text(self) -> str:
        return f"lose {self.replica}: {self.why}"


@dataclass(frozen=True, slots=True)
class Archive(_Action):
    """Put a slot away that is at rest and wanted no more; its history stays."""

    code: ClassVar[str] = "archive"
    replica: ReplicaId
    why: str

    def text(self) -> str:
        return f"archive {self.replica}: {self.why}"


@dataclass(frozen=True, slots=True)
class Drain(_Action):
    """Take a serving replica out of the routing table, let it finish its requests, then stop it."""

    code: ClassVar[str] = "drain"
    replica: ReplicaId
    why: str

    def text(self) -> str:
        return f"drain {self.replica}: {self.why}"


@dataclass(frozen=True, slots=True)
class Stop(_Action):
    """Stop a replica that serves nobody."""

    code: ClassVar[str] = "stop"
    replica: ReplicaId
    why: str

    def text(self) -> str:
        return f"stop {self.replica}: {self.why}"


@dataclass(frozen=True, slots=True)
class Reap(_Action):
    """Stop an engine that no replica owns, or that is a part of one whose other parts have ended."""

    code: ClassVar[str] = "reap"
    node: NodeName
    launch_id: LaunchId
    why: str

    def text(self) -> str:
        return f"reap {self.launch_id} on {self.node}: {self.why}"


@dataclass(frozen=True, slots=True)
class Queue(_Action):
    """Open a slot that has no place yet."""

    code: ClassVar[str] = "queue"
    model: ModelName
    ordinal: int

    @property
    def replica(self) -> ReplicaId:
        """Name the slot."""
        return replica_id(self.model, self.ordinal)

    def text(self) -> str:
        return f"queue {self.replica}: wanted, and there is no place for it now"


@dataclass(frozen=True, slots=True)
class Start(_Action):
    """Start a replica, in a slot that is at rest or, when there is none of that ordinal, in a new one."""

    code: ClassVar[str] = "start"
    model: ModelName
    ordinal: int
    replica: ReplicaId
    attempt_before: int
    """The slot's attempt as the plan saw it: 0 for a new slot. The start is attempt `attempt_before + 1`."""
    profile: str
    fingerprint: str
    shards: tuple[Part, ...]
    """`(node, devices, rank)` each."""
    why: str
    fabric: str = ""
    """What its shards reach each other over; empty on one node, and in an NVLink domain."""

    def text(self) -> str:
        on = " and ".join(f"{part.node} ({', '.join(part.devices)})" for part in self.shards)
        over = f" over {self.fabric}" if self.fabric else ""
        return f"start {self.replica} by profile {self.profile} on {on}{over}: {self.why}"


Action = Lose | Archive | Drain | Stop | Reap | Queue | Start


@dataclass(frozen=True, slots=True)
class RefusedReplica:
    """A slot that is wanted and does not run, with every reason."""

    replica: ReplicaId
    refusals: tuple[Refused, ...]
    """`(node, profile, refusal)` each."""

    def text(self) -> str:
        """Say it in a line for the slot and one for each reason."""
        return "\n".join([f"{self.replica} does not start:", *(f"  {_refused_text(no)}" for no in self.refusals)])

    def to_json(self) -> dict[str, Any]:
        """Return the stored and printed shape."""
        return {"replica": self.replica, "refusals": [refused_to_json(no) for no in self.refusals]}


def _started(start: Start) -> Replica:
    shards = tuple(
        Shard(LaunchId(f"{start.replica}/{rank}"), node, devices, State.PLACED, rank)
        for node, devices, rank in start.shards
    )
    return Replica(
        start.replica,
        start.model,
        start.ordinal,
        State.PLACED,
        profile=start.profile,
        fingerprint=start.fingerprint,
        attempt=start.attempt_before + 1,
        shards=shards,
    )


def refused_to_json(no: Refused) -> dict[str, Any]:
    """Return one reason's shape: `{"node", "profile", "code", "text", "cure", "facts"}`."""
    return {"node": no.node, "profile": no.profile, **refusals.to_json(no.refusal)}


def _refused_text(no: Refused) -> str:
    by = f" by profile {no.profile}" if no.profile else ""
    where = f"{no.node}{by}: " if no.node else ""
    return f"{where}{no.refusal.text()} [{no.refusal.code}] – {no.refusal.cure()}"


@dataclass(frozen=True, slots=True)
class Plan:
    """What one look at wanted against actual comes to."""

    actions: tuple[Action, ...] = ()
    """In the order in which they are to be carried out."""
    refusals: tuple[RefusedReplica, ...] = ()

    def carried_out(self, snapshot: ClusterSnapshot) -> ClusterSnapshot:
        """Return the fleet with all that this plan starts; what it stops is still there, and holds its devices."""
        starts = [action for action in self.actions if isinstance(action, Start)]
        begun = {start.replica for start in starts}
        rest = (one for one in snapshot.replicas if one.id not in begun)
        return replace(snapshot, replicas=(*rest, *(_started(start) for start in starts)))

    def text(self) -> str:
        """Say it as people read it."""
        lines = [*(action.text() for action in self.actions), *(refused.text() for refused in self.refusals)]
        return "\n".join(lines) or "nothing to do"

    def to_json(self) -> dict[str, Any]:
        """Return the stored and printed shape."""
        return {
            "actions": [action.to_json() for action in self.actions],
            "refusals": [refused.to_json() for refused in self.refusals],
        }
