"""What would happen if this were saved: done as it would be, looked at by the planner, and taken back."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction

from apps.audit.actions import Actor
from apps.catalog import actions as catalog
from apps.catalog.actions import Declared
from apps.replicas import queries, reconcile
from llmgw.core.plan import Plan, refused_to_json
from llmgw.core.wanted import Model, Problem


@dataclass(frozen=True, slots=True)
class Refused:
    """A replica that would have no place."""

    replica: str
    groups: Sequence[Mapping[str, Any]]
    """Why, counted by reason."""
    refusals: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What the next pass would do because of the edit; what it would do anyway is left out."""

    more: tuple[str, ...]
    """Actions that the edit brings about."""
    fewer: tuple[str, ...]
    """Actions that it makes unnecessary."""
    refused: tuple[Refused, ...]


def foresee(model: Model, *, by: Actor, now: datetime) -> Foreseen | tuple[Problem, ...]:
    """Compare what the next pass would do with this entry and without it."""
    with transaction.atomic():
        without = reconcile.look(now)
        done = catalog.declare(model, by=by, now=now)
        seen = _between(without, reconcile.look(now)) if isinstance(done, Declared) else done
        transaction.set_rollback(True)
    return seen


def _between(without: Plan, after: Plan) -> Foreseen:
    anyway = {refused.replica for refused in without.refusals}
    return Foreseen(
        more=_beyond(after, without),
        fewer=_beyond(without, after),
        refused=tuple(
            _refused(refused.replica, map(refused_to_json, refused.refusals))
            for refused in after.refusals
            if refused.replica not in anyway
        ),
    )


def _beyond(plan: Plan, other: Plan) -> tuple[str, ...]:
    """Return what one plan does that the other does not, in its order."""
    rest = Counter(action.text() for action in other.actions)
    beyond = []
    for text in (action.text() for action in plan.actions):
        if rest[text]:
            rest[text] -= 1
        else:
            beyond.append(text)
    return tuple(beyond)


def _refused(replica: str, refusals: Iterable[Mapping[str, Any]]) -> Refused:
    told = list(refusals)
    return Refused(replica, queries.grouped(told), told)
