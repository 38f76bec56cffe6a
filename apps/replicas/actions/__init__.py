"""All that can be done to replicas, shards, orders and passes; whoever changes a row comes through here."""

from apps.replicas.actions.asked import drain, examine, restart, stop
from apps.replicas.actions.moves import Raced
from apps.replicas.actions.orders import NewId, hello
from apps.replicas.actions.passes import (
    Overtaken,
    Turn,
    call_when_due,
    finish,
    hold,
    release,
    release_if_done,
    request_if_due,
    request_pass,
    take,
)
from apps.replicas.actions.planned import Pass, apply
from apps.replicas.actions.refused import keep_refusals
from apps.replicas.actions.reports import record_report
from apps.replicas.actions.retention import tidy

__all__ = [
    "NewId",
    "Overtaken",
    "Pass",
    "Raced",
    "Turn",
    "apply",
    "call_when_due",
    "drain",
    "examine",
    "finish",
    "hello",
    "hold",
    "keep_refusals",
    "record_report",
    "release",
    "release_if_done",
    "request_if_due",
    "request_pass",
    "restart",
    "stop",
    "take",
    "tidy",
]
