"""What the router is to know, read from the rows of the apps below."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import msgspec
from django.conf import settings
from django.db.models import F

from apps.accounts.models import InferenceKeyRow
from apps.catalog.models import ModelRow
from apps.gateway.models import PublicationRow
from apps.replicas.models import ShardRow
from llmgw.core.routing import Endpoint, Key, Route, Table, encode
from llmgw.core.units import replica_id
from llmgw.core.world import NodeState, State

# A node that has missed some ticks may well serve: the router sees for itself. One that is given up is not asked.
_ASKED = (NodeState.READY, NodeState.UNREACHABLE)


def table(revision: int = 0) -> Table:
    """Build the routing table from what is declared, what is ready and who may ask: three queries."""
    return Table(revision=revision, routes=_routes(), keys=_keys(), open=settings.LLMGW_ROUTER_OPEN)


def published() -> Table:
    """Return the table as it was last published; the empty one before that."""
    row = PublicationRow.objects.filter(pk=1).first()
    return Table(0) if row is None else table_of(row)


def table_of(row: PublicationRow) -> Table:
    """Return the table that a publication holds."""
    return msgspec.convert({**row.content, "revision": row.revision}, Table)


def content_of(table: Table) -> dict[str, Any]:
    """Return what is compared and kept of a table: all but its revision."""
    told: dict[str, Any] = msgspec.json.decode(encode(table))  # as JSON gives it back, lists for tuples
    del told["revision"]
    return told


def _routes() -> Mapping[str, Route]:
    """Map each served name and alias to its route, in a fixed order; no ready replica is a route without endpoints."""
    ready = _endpoints()
    routes: dict[str, Route] = {}
    declared = ModelRow.objects.filter(retired_at__isnull=True).order_by("name")
    for pk, name, aliases, created_at in declared.values_list("pk", "name", "aliases", "created_at"):
        route = Route(model=name, endpoints=tuple(ready[pk]), created=int(created_at.timestamp()))
        routes |= dict.fromkeys((name, *aliases), route)
    return routes


def _endpoints() -> Mapping[int, list[Endpoint]]:
    """Return the endpoints by model: where the first shard of a ready replica's present attempt takes requests."""
    serving = ShardRow.objects.filter(
        state=State.READY,
        rank=0,
        port__isnull=False,
        node__state__in=_ASKED,
        attempt=F("replica__attempt"),
        replica__state=State.READY,
        replica__gone_at__isnull=True,
    ).order_by("replica__ordinal", "pk")
    found = defaultdict(list)
    fields = (
        "launch_id",
        "host",
        "port",
        "node__address",
        "replica__ordinal",
        "replica__model",
        "replica__model__name",
    )
    for launch, host, port, address, ordinal, model, name in serving.values_list(*fields):
        found[model].append(Endpoint(replica_id(name, ordinal), launch, host or address, port))
    return found


def _keys() -> Mapping[str, Key]:
    """Map the hash of each key that was not revoked to what it allows; the router itself sees that one expires."""
    rows = InferenceKeyRow.objects.filter(revoked_at__isnull=True).order_by("name")
    return {
        row.sha256: Key(
            id=row.name,
            models=None if row.allowed_models is None else tuple(row.allowed_models),
            expires_at=row.expires_at.timestamp() if row.expires_at else None,
        )
        for row in rows
    }
