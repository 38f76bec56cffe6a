"""What would happen if this were saved: done as it would be, looked at by the planner, and taken back."""

from datetime import datetime

from django.db import transaction

from apps.audit.actions import Actor
from apps.catalog import actions as catalog
from apps.catalog.actions import Declared
from apps.replicas import reconcile
from llmgw.core.plan import Plan
from llmgw.core.wanted import Model, Problem


def foresee(model: Model, *, by: Actor, now: datetime) -> Plan | tuple[Problem, ...]:
    """Return what the next pass would do with this entry in the catalog."""
    with transaction.atomic():
        done = catalog.declare(model, by=by, now=now)
        plan = reconcile.look(now) if isinstance(done, Declared) else None
        transaction.set_rollback(True)
    return plan if plan is not None else done  # type: ignore[return-value]  # no plan means problems
