"""Replicas: where each stands, every start that it had, and what may be asked of it."""

from collections.abc import Callable
from types import MappingProxyType
from typing import Any, Final

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from apps.console.api import describing as told
from apps.console.api.authentication import asker
from apps.console.api.door import DRY, LIST, REASON, Door, kept_unless_dry, listed, reason_of
from apps.console.api.nodes import words
from apps.console.api.problems import Stop, not_found
from apps.console.request import clock
from apps.replicas import actions, queries
from apps.replicas.explain import NotFound, explain
from apps.replicas.models import ReplicaRow
from apps.replicas.queries import Attempt, Launch, Timeline
from llmgw.core.lifecycle import NotAllowed
from llmgw.core.units import replica_id
from llmgw.core.world import State

VIEW: Final = "replicas.view_replicarow"
CHANGE: Final = "replicas.change_replicarow"


class Replicas(Door):
    """All slots that are not archived."""

    needs = MappingProxyType({"get": VIEW})
    parameters = MappingProxyType({"get": (*LIST, "model", "state")})

    @extend_schema(
        operation_id="replicas_list",
        parameters=[
            *told.paged(),
            told.query("model", "only those of this model"),
            told.query("state", "only those in one of these states, with commas"),
        ],
        responses=told.page_of("Replica"),
        tags=["replicas"],
    )
    def get(self, request: Request) -> Response:
        """List the replicas with their shards, by age."""
        rows = queries.shown()
        if model := request.query_params.get("model"):
            rows = rows.filter(model__name=model)
        if asked := request.query_params.get("state"):
            rows = rows.filter(state__in=words(asked, [state.value for state in State], "state"))
        return listed(request, rows, "pk", queries.describe_replica, numbered=True)


class OneReplica(Door):
    """One slot."""

    needs = MappingProxyType({"get": VIEW})

    @extend_schema(operation_id="replica_get", responses=told.one("ReplicaWithTimeline"), tags=["replicas"])
    def get(self, request: Request, model: str, ordinal: int) -> Response:
        """Tell where it stands, and every start that it had, the newest first."""
        row = find(model, ordinal)
        return Response({**queries.describe_replica(row), "timeline": timeline_to_json(queries.timeline(row))})


class Explained(Door):
    """Why one slot is not running."""

    needs = MappingProxyType({"get": VIEW})

    @extend_schema(operation_id="replica_explain", responses=told.one("Explanation"), tags=["replicas"])
    def get(self, request: Request, model: str, ordinal: int) -> Response:
        """Say what the explanation of its model says of this one."""
        row = find(model, ordinal)
        whole = explain(row.model.name, clock())
        told_of = [] if isinstance(whole, NotFound) else whole.to_json()["replicas"]
        mine = next((each for each in told_of if each["name"] == row.name), None)
        if mine is None:  # its model is retired, so that nobody wants it any more
            raise Stop(404, "replica.unwanted", f"{row.name} ends, since {row.model.name} is retired")
        return Response(mine)


class _Verb(Door):
    needs = MappingProxyType({"post": CHANGE})
    parameters = MappingProxyType({"post": (DRY, REASON)})
    verb: Callable[..., NotAllowed | None]

    def act(self, request: Request, model: str, ordinal: int) -> Response:
        """Ask for it, and tell how the replica is now."""
        reason = reason_of(request, needed=True)
        with kept_unless_dry(request):
            row = find(model, ordinal)
            no = self.verb(row, by=asker(request), now=clock(), reason=reason)
            if no is None:
                return Response(queries.describe_replica(find(model, ordinal)), status=202)
        refusal = {"code": no.code, "text": no.text()}
        raise Stop(409, no.code, f"{row.name}: {no.text()}", refusals=[refusal])


class Drain(_Verb):
    """Let it finish and end."""

    verb = staticmethod(actions.drain)

    @extend_schema(
        operation_id="replica_drain",
        parameters=told.writing(),
        request=told.body("NeededReason"),
        responses={202: told.ref("Replica"), **told.problems(404, 409, 422)},
        tags=["replicas"],
    )
    def post(self, request: Request, model: str, ordinal: int) -> Response:
        """Let it finish its requests and stop; as long as it is wanted, its slot starts again."""
        return self.act(request, model, ordinal)


class Restart(_Verb):
    """Start it anew."""

    verb = staticmethod(actions.restart)

    @extend_schema(
        operation_id="replica_restart",
        parameters=told.writing(),
        request=told.body("NeededReason"),
        responses={202: told.ref("Replica"), **told.problems(404, 409, 422)},
        tags=["replicas"],
    )
    def post(self, request: Request, model: str, ordinal: int) -> Response:
        """Start it anew: after its requests if it serves, without its wait if it has failed."""
        return self.act(request, model, ordinal)


def find(model: str, ordinal: int) -> ReplicaRow:
    """Return a slot that is not archived, or stop."""
    name = replica_id(model, ordinal)
    row = queries.find(name) if name.isprintable() else None
    if row is None:
        raise not_found("replica", name)
    return row


# --- shapes -------------------------------------------------------------------------------------------------------


def timeline_to_json(timeline: Timeline) -> dict[str, Any]:
    """Return every start, the newest first, and which was the first to fail."""
    first = timeline.first_failure
    return {
        "first_failure": None if first is None else {"attempt": first.number, **dict(first.failure or {})},
        "attempts": [_attempt(attempt) for attempt in timeline.attempts],
    }


def _attempt(attempt: Attempt) -> dict[str, Any]:
    return {"attempt": attempt.number, "launches": [_launch(launch) for launch in attempt.launches]}


def _launch(launch: Launch) -> dict[str, Any]:
    steps = [
        {
            "state": step.state.value,
            "at": step.at.isoformat(),
            "seconds": step.seconds,
            "happened": step.happened,
            "why": step.why,
            "by": step.by,
        }
        for step in launch.steps
    ]
    return {
        "launch_id": launch.launch_id,
        "node": launch.node,
        "state": launch.state.value,
        "steps": steps,
        "failure": None if launch.failure is None else dict(launch.failure),
        "tail": list(launch.tail),
    }
