"""What llmgw did by itself: reconcile passes, and the orders it sent."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.console import look
from apps.console.admin.base import ReadOnlyAdmin
from apps.console.templatetags.console import state, when
from apps.replicas.models import OrderRow, PassRow


@admin.register(PassRow)
class PassAdmin(ReadOnlyAdmin):
    """Every pass that did something, or refused something new."""

    list_display = ("numbered", "at", "took", "by", "did", "refused")
    list_display_links = ("numbered",)
    search_fields = ("by",)
    search_help_text = "who ran it"
    ordering = ("-token",)
    lookup = "token"
    template = "console/pass.html"
    part = "console/pass_live.html"

    @admin.display(description="pass", ordering="token")
    def numbered(self, row: PassRow) -> int:
        return row.token

    @admin.display(description="when", ordering="started_at")
    def at(self, row: PassRow) -> SafeString | str:
        return when(row.started_at)

    @admin.display(description="took", ordering="duration_ms")
    def took(self, row: PassRow) -> str:
        return f"{row.duration_ms:.0f} ms"

    @admin.display(description="did")
    def did(self, row: PassRow) -> str:
        told = [str(action.get("text", action.get("code", "?"))) for action in row.actions]
        return _shortly(told)

    @admin.display(description="refused")
    def refused(self, row: PassRow) -> str:
        return _shortly([str(each.get("replica", "?")) for each in row.refusals])


def _shortly(told: list[str]) -> str:
    more = len(told) - 2
    return ("; ".join(told[:2]) + (f"; and {more} more" if more > 0 else "")) or "–"


@admin.register(OrderRow)
class OrderAdmin(ReadOnlyAdmin):
    """The outbox."""

    list_display = ("kind", "word", "to", "launch_id", "created", "sends", "answered")
    list_display_links = ("kind",)
    list_filter = ("state", "kind")
    search_fields = ("order_id", "launch_id", "node__name")
    list_select_related = ("node",)
    ordering = ("-id",)
    template = "console/order.html"
    part = "console/order_live.html"

    def page_rows(self, request: HttpRequest) -> QuerySet[OrderRow]:
        """Fetch the node along."""
        return OrderRow.objects.select_related("node")

    def facts(self, request: HttpRequest, row: OrderRow) -> dict[str, Any]:
        """Say the order as it is kept: it holds no secret."""
        return {"row": row, "payload": sorted(row.payload.items()), "answer": row.answer or {}}

    @admin.display(description="state", ordering="state")
    def word(self, row: OrderRow) -> SafeString:
        return state(row.state)

    @admin.display(description="node", ordering="node__name")
    def to(self, row: OrderRow) -> SafeString:
        return format_html('<a href="{}">{}</a>', look.node_url(row.node.name), row.node.name)

    @admin.display(description="created", ordering="created_at")
    def created(self, row: OrderRow) -> SafeString | str:
        return when(row.created_at)

    @admin.display(description="answered", ordering="answered_at")
    def answered(self, row: OrderRow) -> SafeString | str:
        return when(row.answered_at)
