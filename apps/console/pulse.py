"""Whether what stands behind the console is alive: Redis, the ticks, the passes."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from django.conf import settings
from redis import RedisError

from apps.nodes import heartbeats
from apps.replicas import queries as replicas

# So many ticks may be late before anybody is told; a busy machine skips one now and then.
LATE_TICKS: Final = 4
LATE_AT_LEAST_S: Final = 10.0
LATE_PASSES: Final = 6
LATE_PASS_AT_LEAST_S: Final = 60.0
"""A pass over a large fleet takes its time."""


@dataclass(frozen=True, slots=True)
class Pulse:
    """The last signs of life, and what their absence means."""

    tick_at: datetime | None
    """When the last tick was sent; None when there was none, or Redis does not answer."""
    pass_at: datetime | None
    """When the last pass was finished."""
    pass_token: int
    """Its number."""
    pass_due: bool
    """Something has changed that no pass has looked at yet."""
    troubles: tuple[str, ...]
    """What is silent, each with what that means and what to do; empty when all is alive."""


def take(now: datetime) -> Pulse:
    """Ask Redis for the last tick and the database for the last pass."""
    row = replicas.passes()
    try:
        ticks = heartbeats.read_heard().ticks
    except RedisError as away:
        return Pulse(None, row.finished_at, row.token, row.requested > row.done, (_redis_away(away),))
    last = max((tick.sent_at for tick in ticks), default=None)
    tick_at = None if last is None else datetime.fromtimestamp(last, UTC)
    troubles = (_silence(tick_at, now), _idle(row.finished_at, now))
    told = tuple(trouble for trouble in troubles if trouble)
    return Pulse(tick_at, row.finished_at, row.token, row.requested > row.done, told)


def _redis_away(away: RedisError) -> str:
    return (
        f"Redis does not answer ({type(away).__name__}): no ticks are sent, no node is judged and orders wait. What "
        "is shown here is what was last stored. Engines and routers go on. Start Redis again, or correct REDIS_URL."
    )


def _silence(tick_at: datetime | None, now: datetime) -> str:
    check = "Look whether beat and the control worker run, and at their logs."
    if tick_at is None:
        return f"No tick has been sent since Redis started: nothing here is being kept up to date. {check}"
    age = (now - tick_at).total_seconds()
    if age <= max(LATE_TICKS * settings.LLMGW_HEARTBEAT_S, LATE_AT_LEAST_S):
        return ""
    return (
        f"No tick for {age:.0f} s, and one is due every {settings.LLMGW_HEARTBEAT_S:g} s: what is shown here is what "
        f"was last stored. {check}"
    )


def _idle(pass_at: datetime | None, now: datetime) -> str:
    """Say that ticks are sent and yet nothing is decided; one pass at least is due in every period."""
    if pass_at is None:
        return ""
    age = (now - pass_at).total_seconds()
    if age <= max(LATE_PASSES * settings.LLMGW_RECONCILE_S, LATE_PASS_AT_LEAST_S):
        return ""
    return (
        f"No pass for {age:.0f} s, and one is due every {settings.LLMGW_RECONCILE_S:g} s: nothing is started or "
        "replaced. Look at the control worker's log, or run `manage.py reconcile` by hand."
    )
