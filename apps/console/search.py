"""What the search box finds: nodes, models, replicas and launches by their names."""

from collections.abc import Iterator
from typing import Final

from django.http import HttpRequest
from unfold.dataclasses import SearchResult

from apps.catalog.models import ModelRow
from apps.console import look
from apps.nodes.models import NodeRow
from apps.replicas.models import ReplicaRow, ShardRow

MOST: Final = 10


def found(request: HttpRequest, term: str) -> list[SearchResult]:
    """Return what this person may look at and goes by such a name."""
    kinds = (
        ("nodes.view_noderow", _nodes),
        ("catalog.view_modelrow", _models),
        ("replicas.view_replicarow", _replicas),
        ("replicas.view_replicarow", _launches),
    )
    allowed = (find for permission, find in kinds if request.user.has_perm(permission))
    return [one for find in allowed for one in find(term)] if "\0" not in term else []


def _nodes(term: str) -> Iterator[SearchResult]:
    for name in NodeRow.objects.filter(name__icontains=term).values_list("name", flat=True)[:MOST]:
        yield SearchResult(name, "node", look.node_url(name), "dns")


def _models(term: str) -> Iterator[SearchResult]:
    declared = ModelRow.objects.filter(retired_at__isnull=True, name__icontains=term)
    for name in declared.values_list("name", flat=True)[:MOST]:
        yield SearchResult(name, "model", look.model_url(name), "deployed_code")


def _replicas(term: str) -> Iterator[SearchResult]:
    model, _, ordinal = term.partition("/")
    rows = ReplicaRow.objects.filter(gone_at__isnull=True, model__name__icontains=model).select_related("model")
    if ordinal.isdecimal():
        rows = rows.filter(ordinal=min(int(ordinal[:9]), 2**31 - 1))
    for row in rows.order_by("model__name", "ordinal")[:MOST]:
        yield SearchResult(row.name, "replica", look.replica_url(row.pk), "stacks")


def _launches(term: str) -> Iterator[SearchResult]:
    rows = ShardRow.objects.filter(launch_id__icontains=term, replica__isnull=False).select_related("node")
    for row in rows.order_by("-id")[:MOST]:
        url = look.replica_url(row.replica_id or 0)
        yield SearchResult(row.launch_id, f"launch on {row.node.name}", url, "rocket_launch")
