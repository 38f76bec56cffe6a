"""Runs passes: one at a time, as long as one is wanted, each a snapshot, a plan, and its actions."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import structlog
from django.conf import settings

from apps.audit.actions import Actor
from apps.replicas import actions, dispatch, queries
from apps.replicas.actions import NewId, Overtaken, Pass, Turn
from llmgw import telemetry
from llmgw.core.plan import Action, Plan, plan
from llmgw.core.refusals import WaitingForRetry
from llmgw.core.units import Seconds

Clock = Callable[[], datetime]

MOST_IN_A_ROW: Final = 5
"""More than these would keep the worker from its reports; another task runs the rest."""
_BREATH_S: Final = 1.0
_MARGIN_S: Final = 0.02

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class PassResult:
    """What one pass decided, and what came of it."""

    token: int
    plan: Plan
    done: list[Action] = field(default_factory=list)
    news: list[dict[str, Any]] = field(default_factory=list)
    """Refusals that no pass before has found: `{"replica", "refusals"}`, counted by code."""
    lost_races: int = 0
    overtaken: bool = False
    """Somebody else took over before it was done; what was done until then holds."""
    duration_ms: float = 0.0

    @property
    def is_kept(self) -> bool:
        """Tell whether it did something, or refused something new."""
        return bool(self.done or self.news or self.lost_races)

    @property
    def shortest_wait(self) -> float | None:
        """Return how many seconds it is until the next failed replica may start again."""
        every = (no.refusal for each in self.plan.refusals for no in each.refusals)
        return min((no.wait for no in every if isinstance(no, WaitingForRetry)), default=None)


def look(now: datetime) -> Plan:
    """Plan, and carry nothing out."""
    return plan(queries.view().snapshot, Seconds(now.timestamp()))


def run(*, by: Actor, clock: Clock, ids: NewId) -> tuple[PassResult, ...]:
    """Run passes while any is wanted; none if none is, or if somebody else is at it and will see to it."""
    holder = ids()
    results: list[PassResult] = []
    done = False
    try:
        while not done and len(results) < MOST_IN_A_ROW and (turn := actions.take(holder, clock())):
            results.append(_one_pass(turn, by, clock, ids))
            done = actions.release_if_done(holder)
    finally:
        actions.release(holder)
    if len(results) == MOST_IN_A_ROW and not done:
        dispatch.call_pass("again", wait=_BREATH_S)
    _come_back(results)
    return tuple(results)


def _come_back(results: list[PassResult]) -> None:
    """Have the next pass run at the moment a failed replica may start again; long waits are left to the ticks."""
    wait = results[-1].shortest_wait if results else None
    if wait is not None and wait <= settings.LLMGW_HEARTBEAT_S:
        dispatch.call_pass("retry", wait=wait + _MARGIN_S)


def _one_pass(turn: Turn, by: Actor, clock: Clock, ids: NewId) -> PassResult:
    now = clock()
    view = queries.view()
    result = PassResult(turn.token, plan(view.snapshot, Seconds(now.timestamp())))
    under = Pass(turn, view, f"pass {turn.token}", now, clock, ids)
    traced = telemetry.span("reconcile.pass", token=turn.token, by=by.name) if result.plan.actions else nullcontext()
    try:
        with traced:
            _carry_out(result, under)
        result.duration_ms = (clock() - now).total_seconds() * 1000
        actions.finish(turn, kept=_row(result, by, now), again=bool(result.lost_races), looked_at=now, now=clock())
    except Overtaken:
        result.overtaken = True
        log.warning("another worker has taken the passes over", token=turn.token)
    return result


def _carry_out(result: PassResult, under: Pass) -> None:
    for action in result.plan.actions:
        if actions.apply(action, under):
            result.done.append(action)
            log.info(action.text(), code=action.code, token=result.token)
        else:
            result.lost_races += 1
    result.news = actions.keep_refusals(result.plan.refusals, under)


def _row(result: PassResult, by: Actor, now: datetime) -> dict[str, Any] | None:
    """Return what is kept of a pass; None when there is nothing to keep."""
    if not result.is_kept:
        return None
    return {
        "started_at": now,
        "duration_ms": round(result.duration_ms, 1),
        "by": by.name,
        "actions": [action.to_json() for action in result.done],
        "refusals": result.news,
        "lost_races": result.lost_races,
    }
