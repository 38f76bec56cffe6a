"""Replicas: the list, and the page with every start, what it took, and how it ended."""

from typing import Any, Final

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from apps.console import look, timeline
from apps.console.admin.base import ReadOnlyAdmin, Refused, Verb
from apps.console.request import clock, operator
from apps.console.templatetags.console import state, when
from apps.replicas import actions, queries
from apps.replicas.models import ReplicaRow
from llmgw.core.lifecycle import NotAllowed, state_word
from llmgw.core.world import State

CHANGE: Final = "replicas.change_replicarow"
MOST_ATTEMPTS: Final = 10


@admin.register(ReplicaRow)
class ReplicaAdmin(ReadOnlyAdmin):
    """Every running copy of a model, and those that should run."""

    list_display = ("named", "word", "since", "profile", "placed", "attempt", "restarts", "reason")
    list_display_links = None
    list_filter = ("state", ("gone_at", admin.EmptyFieldListFilter))
    search_fields = ("model__name",)
    ordering = ("model__name", "ordinal", "-id")
    template = "console/replica.html"
    part = "console/replica_live.html"

    def get_queryset(self, request: HttpRequest) -> QuerySet[ReplicaRow]:
        """Those that are not archived, unless the archived ones are asked for."""
        if "gone_at__isempty" in request.GET:
            return ReplicaRow.objects.select_related("model").prefetch_related("shards__node")
        return queries.shown()

    def page_rows(self, request: HttpRequest) -> QuerySet[ReplicaRow]:
        """Archived ones have pages, too."""
        return ReplicaRow.objects.select_related("model")

    @admin.display(description="replica", ordering="model__name")
    def named(self, row: ReplicaRow) -> SafeString:
        return format_html('<a href="{}">{}</a>', look.replica_url(row.pk), row.name)

    @admin.display(description="state", ordering="state")
    def word(self, row: ReplicaRow) -> SafeString:
        return state(state_word(State(row.state), row.failures))

    @admin.display(description="since", ordering="state_since")
    def since(self, row: ReplicaRow) -> SafeString | str:
        return when(row.state_since)

    @admin.display(description="node")
    def placed(self, row: ReplicaRow) -> str:
        shards = getattr(row, "present", ())
        names = [(look.node_url(shard.node.name), shard.node.name) for shard in shards]
        return format_html_join(", ", '<a href="{}">{}</a>', names) or "–"

    @admin.display(description="why")
    def reason(self, row: ReplicaRow) -> str:
        if row.refusals:
            return ", ".join(f"{group['count']} × {group['code']}" for group in queries.grouped(row.refusals))
        return row.why or "–"

    def facts(self, request: HttpRequest, row: ReplicaRow) -> dict[str, Any]:
        """Gather every start, the present shards, and why there is no place."""
        history = queries.timeline(row)
        return {
            "row": row,
            "word": state_word(State(row.state), row.failures),
            "shards": queries.shards_of(row),
            "groups": queries.grouped(row.refusals),
            "refusals": row.refusals,
            "attempts": [timeline.draw(attempt) for attempt in history.attempts[:MOST_ATTEMPTS]],
            "hidden": max(len(history.attempts) - MOST_ATTEMPTS, 0),
            "first_failure": history.first_failure,
            "moves": row.transitions.filter(shard__isnull=True).order_by("-id")[:20],
        }

    def permissions(self, request: HttpRequest) -> dict[str, bool]:
        """Return who may drain and restart."""
        return {"change": request.user.has_perm(CHANGE)}

    def verbs(self) -> dict[str, tuple[str, Verb]]:
        """Drain, restart."""
        return {"drain": (CHANGE, drain), "restart": (CHANGE, restart)}


def drain(request: HttpRequest, row: ReplicaRow, reason: str) -> str:
    """Let it finish its requests, then stop it."""
    _checked(actions.drain(row, by=operator(request), now=clock(), reason=_needed(reason)))
    return f"{row.name} takes no new requests and stops when it has answered those that it has"


def restart(request: HttpRequest, row: ReplicaRow, reason: str) -> str:
    """Stop it and start it anew."""
    _checked(actions.restart(row, by=operator(request), now=clock(), reason=_needed(reason)))
    return f"{row.name} is restarted"


def _needed(reason: str) -> str:
    if not reason:
        raise Refused("say why: something stops, and the audit keeps the reason")
    return reason


def _checked(done: object) -> None:
    if isinstance(done, NotAllowed):
        raise Refused(done.text())
