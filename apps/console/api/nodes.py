"""Nodes: what they are, and whether new work comes to them."""

from collections.abc import Callable
from types import MappingProxyType
from typing import Final

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from apps.console.api import describing as told
from apps.console.api.authentication import asker
from apps.console.api.door import DRY, LIST, REASON, Door, kept_unless_dry, listed, reason_of
from apps.console.api.problems import Stop, not_found
from apps.console.request import clock
from apps.nodes import actions, queries
from apps.nodes.actions import NotFound
from apps.nodes.models import NodeRow
from apps.replicas import actions as replicas
from llmgw.core.world import NodeState

VIEW: Final = "nodes.view_noderow"
CHANGE: Final = "nodes.change_noderow"


class Nodes(Door):
    """The fleet."""

    needs = MappingProxyType({"get": VIEW})
    parameters = MappingProxyType({"get": (*LIST, "state")})

    @extend_schema(
        operation_id="nodes_list",
        parameters=[*told.paged(), told.query("state", "only nodes in one of these states, with commas")],
        responses=told.page_of("Node"),
        tags=["nodes"],
    )
    def get(self, request: Request) -> Response:
        """List the nodes with their devices, by name."""
        rows = queries.in_full()
        if asked := request.query_params.get("state"):
            rows = rows.filter(state__in=words(asked, [state.value for state in NodeState], "state"))
        return listed(request, rows, "name", queries.describe)


def words(asked: str, known: list[str], parameter: str) -> list[str]:
    """Read words with commas between them; one that is unknown stops, since it would find nothing in silence."""
    chosen = [word.strip() for word in asked.split(",")]
    if unknown := [word for word in chosen if word not in known]:
        raise Stop(400, "parameter.form", f"{parameter} knows no `{unknown[0]}`; known: {', '.join(known)}")
    return chosen


class OneNode(Door):
    """One machine."""

    needs = MappingProxyType({"get": VIEW})

    @extend_schema(operation_id="node_get", responses=told.one("Node"), tags=["nodes"])
    def get(self, request: Request, name: str) -> Response:
        """Tell all that is known of it."""
        row = queries.find(name) if name.isprintable() else None
        if row is None:
            raise not_found("node", name)
        return Response(queries.describe(row))


class _Verb(Door):
    needs = MappingProxyType({"post": CHANGE})
    parameters = MappingProxyType({"post": (DRY, REASON)})
    verb: Callable[..., NodeRow | NotFound]

    def act(self, request: Request, name: str) -> Response:
        """Carry it out, and tell how the node is now."""
        reason = reason_of(request)
        if not name.isprintable():
            raise not_found("node", name)
        with kept_unless_dry(request):
            done = self.verb(name, by=asker(request), now=clock(), reason=reason)
            if isinstance(done, NodeRow):
                return Response(queries.describe(done))
        raise not_found("node", name)


class Cordon(_Verb):
    """Keep new work away."""

    verb = staticmethod(actions.cordon)

    @extend_schema(
        operation_id="node_cordon",
        parameters=told.writing(),
        request=told.body("Reason"),
        responses={**told.one("Node"), **told.problems(404)},
        tags=["nodes"],
    )
    def post(self, request: Request, name: str) -> Response:
        """Keep new work away; what runs there goes on."""
        return self.act(request, name)


class Examine(_Verb):
    """Have its doctor run."""

    verb = staticmethod(replicas.examine)

    @extend_schema(
        operation_id="node_examine",
        parameters=told.writing(),
        request=told.body("Reason"),
        responses={**told.one("Node"), **told.problems(404)},
        tags=["nodes"],
    )
    def post(self, request: Request, name: str) -> Response:
        """Order a run of its doctor; what it finds stands in the node's `examination` once it is over."""
        return self.act(request, name)


class Uncordon(_Verb):
    """Let new work come."""

    verb = staticmethod(actions.uncordon)

    @extend_schema(
        operation_id="node_uncordon",
        parameters=told.writing(),
        request=told.body("Reason"),
        responses={**told.one("Node"), **told.problems(404)},
        tags=["nodes"],
    )
    def post(self, request: Request, name: str) -> Response:
        """Let new work come again."""
        return self.act(request, name)
