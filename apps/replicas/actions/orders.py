"""Writes orders into the outbox, in the caller's transaction; they are sent when it has committed."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models import QuerySet

from apps.nodes.models import NodeRow
from apps.replicas import dispatch
from apps.replicas.models import OrderRow, OrderState, ShardRow
from llmgw import telemetry
from llmgw.core import wire
from llmgw.core.units import LaunchId, NodeName, OrderId, ReplicaId, Seconds
from llmgw.core.wanted import Model, Profile
from llmgw.core.wire import OrderKind

NewId = Callable[[], str]
"""Makes an id that was never used before."""


def launch(
    shard: ShardRow, replica: ReplicaId, model: Model, profile: Profile, *, order_id: str, now: datetime
) -> OrderRow:
    """Order a shard's start, with all that its node needs to know."""
    return _order(
        wire.LaunchOrder(
            **_head(shard.node, order_id, now),
            launch_id=LaunchId(shard.launch_id),
            replica=replica,
            model=model.name,
            attempt=shard.attempt,
            engine=profile.engine,
            source=model.source,
            devices=tuple(shard.devices),
            rank=shard.rank,
            context_length=profile.context_length,
            quantization=profile.quantization,
            tensor_parallel=profile.tensor_parallel,
            pipeline_parallel=profile.pipeline_parallel,
            arguments=profile.arguments,
            trace=telemetry.current_traceparent(),
        ),
        shard.node,
        now,
    )


def stop(shard: ShardRow, *, drain_s: float, why: str, order_id: str, now: datetime) -> OrderRow:
    """Order a launch's end. What was ordered of it before and is not answered goes no more: this overtakes it."""
    take_back([shard.launch_id], now)
    head = _head(shard.node, order_id, now)
    return _order(
        wire.StopOrder(**head, launch_id=LaunchId(shard.launch_id), drain_s=drain_s, why=why), shard.node, now
    )


def take_back(launch_ids: Sequence[str], now: datetime) -> None:
    """Let no more start or end by an order that was not answered: something else was decided, or has happened."""
    _open().filter(launch_id__in=launch_ids, kind__in=dispatch.ABOUT_A_RUN).update(
        state=OrderState.EXPIRED, answered_at=now, next_send_at=None
    )


def unanswered(launch_ids: Sequence[str]) -> set[str]:
    """Return those of these launches whose start or end was ordered and is not answered yet."""
    about = _open().filter(launch_id__in=launch_ids, kind__in=dispatch.ABOUT_A_RUN)
    return set(about.values_list("launch_id", flat=True))


def forget(launch_id: str, node: NodeRow, *, order_id: str, now: datetime) -> OrderRow | None:
    """Let a node delete what it keeps of a launch that has ended, unless it was told already."""
    if _open().filter(launch_id=launch_id, kind=OrderKind.FORGET).exists():
        return None
    return _order(wire.ForgetOrder(**_head(node, order_id, now), launch_id=LaunchId(launch_id)), node, now)


def hello(node: NodeRow, *, order_id: str, now: datetime) -> OrderRow | None:
    """Ask a node to take its epoch and to register again, unless it was asked just that and has not answered yet."""
    asked = _open().filter(node=node, kind=OrderKind.HELLO)
    if any(order.payload["epoch"] == node.epoch for order in asked):
        return None
    asked.update(state=OrderState.EXPIRED, answered_at=now, next_send_at=None)
    return _order(wire.HelloOrder(**_head(node, order_id, now)), node, now)


def hello_answered(node: NodeRow, now: datetime) -> None:
    """Note that a node has registered under its epoch: that is the answer to a hello."""
    _open().filter(node=node, kind=OrderKind.HELLO).update(
        state=OrderState.ACKNOWLEDGED, answered_at=now, next_send_at=None, answer={"kind": "registration"}
    )


def examine(node: NodeRow, *, order_id: str, now: datetime) -> OrderRow | None:
    """Have a node's doctor run now, unless that was ordered and is not answered yet."""
    if _open().filter(node=node, kind=OrderKind.EXAMINE).exists():
        return None
    return _order(wire.ExamineOrder(**_head(node, order_id, now)), node, now)


def _open() -> QuerySet[OrderRow]:
    return OrderRow.objects.filter(state__in=dispatch.OPEN)


def _head(node: NodeRow, order_id: str, now: datetime) -> dict[str, Any]:
    return {
        "order_id": OrderId(order_id),
        "node": NodeName(node.name),
        "epoch": node.epoch,
        "issued_at": Seconds(now.timestamp()),
    }


def _order(order: wire.AnyOrder, node: NodeRow, now: datetime) -> OrderRow:
    payload = wire.to_wire(order)
    row = OrderRow.objects.create(
        order_id=order.order_id,
        node=node,
        kind=payload["kind"],
        launch_id=payload.get("launch_id", ""),
        payload=payload,
        trace=telemetry.current_traceparent(),
        created_at=now,
        # If we die between commit and sending, this is when somebody notices.
        next_send_at=now + timedelta(seconds=dispatch.resend_after(0)),
    )
    transaction.on_commit(partial(dispatch.send, row, now))
    return row
