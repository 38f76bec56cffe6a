"""The one verb of the audit: record."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from apps.audit.models import AuditRow


@dataclass(frozen=True, slots=True)
class Actor:
    """Who acts, through which door."""

    name: str
    door: str
    """console, api, cli, beat, node or system."""
    address: str = ""


SYSTEM: Final = Actor("llmgw", "system")
BEAT: Final = Actor("beat", "beat")

_LONGEST_NAME: Final = 150


def plain(name: str) -> str:
    """Make a name fit to be stored and shown: printable characters only, bounded."""
    return "".join(c if c.isprintable() else "?" for c in name)[:_LONGEST_NAME]


def record(
    by: Actor,
    verb: str,
    object_type: str,
    object_id: str,
    now: datetime,
    *,
    before: Any = None,
    after: Any = None,
    reason: str = "",
) -> AuditRow:
    """Write one audit row in the caller's transaction."""
    return AuditRow.objects.create(
        at=now,
        actor=plain(by.name),
        door=by.door,
        address=by.address,
        verb=verb,
        object_type=object_type,
        object_id=object_id,
        before=before,
        after=after,
        reason=reason[:500],
    )
