"""Sends what is written in the outbox; a broker that is away costs a moment and loses nothing."""

import time
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, Final

import structlog
from celery import current_app
from django.conf import settings
from django.db.models import Exists, F, OuterRef
from kombu.exceptions import OperationalError

from apps.nodes.models import NodeRow
from apps.replicas.models import OrderRow, OrderState, ShardRow
from llmgw import telemetry
from llmgw.core import wire
from llmgw.core.lifecycle import AT_REST
from llmgw.core.wire import OrderKind
from llmgw.core.world import NodeState

RECONCILE_TASK: Final = "llmgw.replicas.reconcile"
TIDY_TASK: Final = "llmgw.replicas.tidy"
BY_REQUEST: Final = "request"

OPEN: Final = (OrderState.PENDING, OrderState.SENT)
HEARS: Final = (NodeState.READY, NodeState.JOINING)
"""In these states a node is sent orders."""
ABOUT_A_RUN: Final = (OrderKind.LAUNCH, OrderKind.STOP)
"""What is ordered of a launch for as long as it has not ended."""

_EXPIRES_S: Final = 600.0
_LONGEST_RESEND_S: Final = 60.0
_BROKER_AWAY_S: Final = 1.0
_BATCH: Final = 500

log = structlog.get_logger(__name__)


def send(order: OrderRow, now: datetime) -> bool:
    """Send one order, unless somebody else just did; False when it was not sent and is still to be."""
    if order.node.state not in HEARS:
        return False
    wait = timedelta(seconds=resend_after(order.sends))
    mine = OrderRow.objects.filter(pk=order.pk, state__in=OPEN, sends=order.sends)
    if not mine.update(state=OrderState.SENT, sends=F("sends") + 1, sent_at=now, next_send_at=now + wait):
        return True
    order.sends += 1
    with telemetry.continue_trace(order.trace):
        if _publish(wire.ORDER_TASK, wire.node_queue(order.node.name), {"raw": raw_of(order)}, expires=_EXPIRES_S):
            return True
    soon = now + timedelta(seconds=_BROKER_AWAY_S)
    OrderRow.objects.filter(pk=order.pk, state=OrderState.SENT).update(state=OrderState.PENDING, next_send_at=soon)
    return False


def raw_of(order: OrderRow) -> wire.Json:
    """Return the order as it travels: to the worker that its node has now, under the epoch that it has now."""
    return {**order.payload, "epoch": order.node.epoch, "instance": order.node.instance}


def resend_after(sends: int) -> float:
    """Return how many seconds an order that was sent so often before waits for its answer."""
    return float(min(settings.LLMGW_ORDER_RESEND_S * 2 ** min(sends, 10), _LONGEST_RESEND_S))


def resend_due(now: datetime) -> int:
    """Send what has waited long enough for its answer, or was never sent; return how many went out."""
    expire_overtaken(now)
    due = OrderRow.objects.filter(state__in=OPEN, next_send_at__lte=now, node__state__in=HEARS)
    return _send_all(due.select_related("node").order_by("id")[:_BATCH], now)


def resend_to(node: NodeRow, now: datetime) -> int:
    """Send a node at once all that it has not answered."""
    expire_overtaken(now)
    due = OrderRow.objects.filter(state__in=OPEN, node=node)
    return _send_all(due.select_related("node").order_by("id")[:_BATCH], now)


def _send_all(orders: Iterable[OrderRow], now: datetime) -> int:
    sent = 0
    for order in orders:
        if not send(order, now):
            log.warning("broker away, orders wait", order_id=order.order_id)
            break
        sent += 1
    return sent


def expire_overtaken(now: datetime) -> None:
    """Take back orders about launches that have ended; a stop of one that is only given up as lost goes, too."""
    ended = ShardRow.objects.filter(launch_id=OuterRef("launch_id"), state__in=AT_REST)
    overtaken = OrderRow.objects.filter(Exists(ended), state__in=OPEN, kind__in=ABOUT_A_RUN)
    overtaken.update(state=OrderState.EXPIRED, answered_at=now, next_send_at=None)


def call_pass(by: str = BY_REQUEST, *, wait: float | None = None) -> bool:
    """Send the control worker the task that runs a pass, to be begun after `wait` seconds."""
    return _publish(RECONCILE_TASK, wire.CONTROL_QUEUE, {"by": by}, countdown=wait)


class _Outage:
    """Remembers for a second that the broker was away, so that a hundred orders do not wait for it one by one."""

    def __init__(self) -> None:
        self.until = 0.0

    def begins(self) -> None:
        self.until = time.monotonic() + _BROKER_AWAY_S

    def lasts(self) -> bool:
        return time.monotonic() < self.until


outage = _Outage()


def _publish(task: str, queue: str, kwargs: dict[str, Any], **options: Any) -> bool:
    """Hand one message to the broker, once: what was not taken is found again by the next tick."""
    if outage.lasts():
        return False
    try:
        # Celery would write all of it into the headers once more, for people to read.
        current_app.send_task(task, kwargs=kwargs, kwargsrepr="{…}", queue=queue, retry=False, **options)
    except OperationalError as away:
        log.warning("broker away, task not sent", task=task, queue=queue, error=str(away))
        outage.begins()
        return False
    return True
