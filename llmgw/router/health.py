"""Whether this router can take requests, and how fresh its table is."""

from llmgw.core.units import Seconds
from llmgw.router import replies
from llmgw.router.replies import Reply
from llmgw.router.shared import Shared


def report(shared: Shared, now: Seconds) -> Reply:
    """Answer 200 when there is a table, however old, and 503 with the reason when there is none."""
    why = _why_not(shared)
    told = {"status": "unavailable" if why else "ok", "why": why, "table": shared.keeper.describe(now)}
    return replies.as_json(told, 503 if why else 200)


def _why_not(shared: Shared) -> str | None:
    if shared.draining:
        return "stopping: open requests are being finished, no new ones are taken"
    if shared.table is None:
        return f"no routing table yet: {shared.keeper.problem or 'none has come'}"
    return None
