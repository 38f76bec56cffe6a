"""Audit rows as the doors show them."""

from typing import Any

from django.db.models import QuerySet

from apps.audit.models import AuditRow


def latest(*, limit: int = 100, verb: str = "", object_id: str = "", actor: str = "") -> QuerySet[AuditRow]:
    """Return the newest entries first, narrowed to what was asked for."""
    asked = {"verb": verb, "object_id": object_id, "actor": actor}
    return AuditRow.objects.filter(**{field: value for field, value in asked.items() if value})[:limit]


def describe(row: AuditRow) -> dict[str, Any]:
    """Return the shape that the API and `--json` print."""
    return {
        "id": row.pk,
        "at": row.at.isoformat(),
        "actor": row.actor,
        "door": row.door,
        "address": row.address,
        "verb": row.verb,
        "object_type": row.object_type,
        "object_id": row.object_id,
        "before": row.before,
        "after": row.after,
        "reason": row.reason,
    }
