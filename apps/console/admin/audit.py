"""The audit: who did what, by which door, and what it was before. Read only, for everybody."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.utils.safestring import SafeString

from apps.audit.models import AuditRow
from apps.console.admin.base import ReadOnlyAdmin
from apps.console.difference import changes
from apps.console.templatetags.console import when


@admin.register(AuditRow)
class AuditAdmin(ReadOnlyAdmin):
    """Every entry, the newest first."""

    list_display = ("moment", "actor", "door", "verb", "object_id", "reason")
    list_display_links = ("moment",)
    list_filter = ("door", "verb")
    search_fields = ("actor", "object_id", "verb", "reason")
    ordering = ("-id",)
    template = "console/audit.html"
    part = "console/audit_live.html"

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest) -> bool:
        """Let other pages link to the entries of one object."""
        return lookup == "object_id" or super().lookup_allowed(lookup, value, request)

    @admin.display(description="when", ordering="at")
    def moment(self, row: AuditRow) -> SafeString | str:
        return when(row.at)

    def facts(self, request: HttpRequest, row: AuditRow) -> dict[str, Any]:
        """Show what changed, place by place."""
        return {"row": row, "changes": changes(row.before, row.after)}
