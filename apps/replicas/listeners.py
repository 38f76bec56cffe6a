"""What replicas do when something happens elsewhere: catalog and nodes tell it by signals."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.conf import settings
from django.db import transaction

from apps.nodes import actions as nodes
from apps.nodes.models import NodeRow
from apps.replicas import actions, dispatch, queries
from apps.replicas.ids import new_id
from llmgw.core import wire
from llmgw.core.world import NodeState


def look_again(**_: Any) -> None:
    """Something that a pass decides by has changed."""
    actions.request_pass()


def welcome(node: NodeRow, was: NodeState, now: datetime, **_: Any) -> None:
    """Say hello to a node that comes back from the dead; give one that was only not heard what it missed."""
    if node.state == NodeState.JOINING:
        actions.hello(node, order_id=new_id(), now=now)
    transaction.on_commit(partial(dispatch.resend_to, node, now), robust=True)
    actions.request_pass()


def after_tick(beats: Mapping[str, wire.Beat], now: datetime, **_: Any) -> None:
    """Send again what was not answered, ask who tells otherwise than we know, and wake those whose wait is over."""
    dispatch.resend_due(now)
    told_since = now - timedelta(seconds=2 * settings.LLMGW_HEARTBEAT_S)
    for node in nodes.compare(beats, queries.digests(told_since)):
        actions.hello(node, order_id=new_id(), now=now)
    actions.call_when_due(now, within=settings.LLMGW_HEARTBEAT_S)
