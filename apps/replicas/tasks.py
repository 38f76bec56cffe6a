"""What the control worker does for replicas; each task may arrive twice."""

from datetime import UTC, datetime
from typing import Any, Final

import structlog
from celery import shared_task
from django.db import OperationalError

from apps.audit.actions import Actor
from apps.nodes import actions as nodes
from apps.replicas import actions, dispatch
from apps.replicas import reconcile as passes
from apps.replicas.ids import new_id
from llmgw.core import wire

log = structlog.get_logger(__name__)

# A lock waited for too long, a deadlock, a database that starts again: tried a few times, then left to the nets.
_TRY_AGAIN: Final[dict[str, Any]] = {
    "autoretry_for": (OperationalError,),
    "max_retries": 6,
    "retry_backoff": 1,
    "retry_backoff_max": 10,
}
# Sent again, or overtaken by a later one, which has said all that it says.
_HARMLESS: Final = frozenset({nodes.REPEATED, nodes.STALE_SEQ})


def utc_now() -> datetime:
    """Read the clock."""
    return datetime.now(UTC)


@shared_task(name=dispatch.RECONCILE_TASK, **_TRY_AGAIN)
def reconcile(by: str = "beat") -> None:
    """Run the passes that are wanted; unless it was sent by a request, look whether one is due."""
    if by != dispatch.BY_REQUEST:
        actions.request_if_due(utc_now())
    passes.run(by=Actor(by, "system"), clock=utc_now, ids=new_id)


@shared_task(name=wire.REPORT_TASK, **_TRY_AGAIN)
def report(raw: Any) -> None:
    """Take a node's report in."""
    now = utc_now()
    raw = _storable(raw)
    told = wire.report_from_wire(raw)
    if isinstance(told, wire.Unreadable):
        node = str(raw.get("node", "")) if isinstance(raw, dict) else ""
        nodes.count_report(node, nodes.UNREADABLE, now=now, detail=told.text())
        log.warning("a report cannot be read", node=node, why=told.text())
        return
    outcome = actions.record_report(told, now=now)
    if outcome == nodes.NEW_EPOCH:
        log.info("a node has registered, and is told the epoch that it has here", node=told.node)
    elif outcome in _HARMLESS:
        log.debug("a report said nothing new", node=told.node, outcome=outcome, seq=told.seq)
    elif outcome != nodes.TAKEN:
        log.info("a report was not applied", node=told.node, outcome=outcome, seq=told.seq)


@shared_task(name=dispatch.TIDY_TASK, **_TRY_AGAIN)
def tidy() -> None:
    """Delete what is past keeping."""
    log.debug("tidied", **actions.tidy(utc_now()))


def _storable(raw: Any) -> Any:
    """Replace what no database keeps as text: an engine may print anything, and its last lines are reported."""
    if isinstance(raw, str):
        return raw.encode(errors="replace").decode().replace("\x00", "\N{REPLACEMENT CHARACTER}")
    if isinstance(raw, dict):
        return {_storable(key): _storable(value) for key, value in raw.items()}
    return [_storable(value) for value in raw] if isinstance(raw, list | tuple) else raw
