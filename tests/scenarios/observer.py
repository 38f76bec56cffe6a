"""A process that has the control plane's database open and answers questions about it, a JSON line each.

Runs as `python -m tests.scenarios.observer`: a test asks often, and starting Django for each question costs a second.
"""

import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import django

from llmgw import celery, logs  # noqa: F401  # celery: names the app that tasks are sent by

django.setup()
logs.configure("observer")

from django.conf import settings  # noqa: E402  # after setup
from django.db import connection  # noqa: E402
from redis import Redis  # noqa: E402

from apps.audit.actions import Actor  # noqa: E402
from apps.audit.models import AuditRow  # noqa: E402
from apps.catalog import actions as catalog  # noqa: E402
from apps.catalog.models import ModelRow  # noqa: E402
from apps.nodes import queries as nodes  # noqa: E402
from apps.nodes.models import NodeRow, NodeTransitionRow, ReportCountRow  # noqa: E402
from apps.replicas.models import OrderRow, PassRow, ReplicaRow, ShardRow, TransitionRow  # noqa: E402
from llmgw.core import wire  # noqa: E402
from llmgw.core.validation import model_from_document  # noqa: E402
from llmgw.core.wanted import Model  # noqa: E402

BY = Actor("scenario", "cli")


def replicas(model: str) -> list[dict[str, Any]]:
    """Every slot of a model that is not archived."""
    rows = ReplicaRow.objects.filter(model__name=model, gone_at__isnull=True).select_related("model")
    fields = ("ordinal", "state", "attempt", "failures", "restarts", "profile", "refusals", "why")
    return [{"name": row.name} | {field: getattr(row, field) for field in fields} for row in rows]


def shards(model: str) -> list[dict[str, Any]]:
    """Every launch of a model, the oldest first."""
    fields = ("launch_id", "attempt", "state", "host", "port", "pid", "adopted", "failure", "tail", "seq")
    rows = ShardRow.objects.filter(replica__model__name=model).order_by("id")
    return [{field: getattr(row, field) for field in fields} for row in rows]


def transitions(model: str) -> list[dict[str, Any]]:
    """Every move of a model's shards and replicas, in the order they were written."""
    rows = TransitionRow.objects.filter(replica__model__name=model).select_related("shard").order_by("id")
    return [
        {
            "launch_id": row.shard.launch_id if row.shard else None,
            "attempt": row.attempt,
            "happened": row.happened,
            "before": row.before,
            "after": row.after,
            "why": row.why,
            "by": row.by,
        }
        for row in rows
    ]


def orders(launch_id: str) -> list[dict[str, Any]]:
    """Every order about a launch."""
    fields = ("order_id", "kind", "state", "sends", "payload", "answer")
    return [{f: getattr(row, f) for f in fields} for row in OrderRow.objects.filter(launch_id=launch_id)]


def node(name: str) -> dict[str, Any] | None:
    """One node."""
    fields = ("name", "state", "epoch", "instance", "boot_id", "last_seq", "findings", "cordoned")
    row = NodeRow.objects.filter(name=name).first()
    return {f: getattr(row, f) for f in fields} if row else None


def examination(name: str) -> bool:
    """Whether what a node's doctor found has come."""
    return nodes.examination_of(NodeRow.objects.get(name=name)) is not None


def node_transitions(name: str) -> list[str]:
    """The states a node went through."""
    return [row.after for row in NodeTransitionRow.objects.filter(node__name=name)]


def last_tick() -> int:
    """Return the number of the last tick that was sent."""
    return int(Redis.from_url(settings.REDIS_URL).get(wire.TICK_KEY) or 0)


def report_counts(name: str) -> dict[str, int]:
    """How many reports of a node had which outcome."""
    return dict(ReportCountRow.objects.filter(node_name=name).values_list("outcome", "count"))


def passes() -> int:
    """How many passes were stored."""
    return PassRow.objects.count()


def model_source(name: str) -> str:
    """Where a declared model's weights come from."""
    return ModelRow.objects.get(name=name, retired_at__isnull=True).source_uri


def audit(verb: str) -> list[dict[str, Any]]:
    """The audit rows of one verb."""
    fields = ("actor", "door", "object_id", "reason")
    return [{f: getattr(row, f) for f in fields} for row in AuditRow.objects.filter(verb=verb)]


def declare(document: dict[str, Any]) -> str:
    """Declare a model at once, where starting `manage.py apply` would take a second."""
    model = model_from_document(document)
    assert isinstance(model, Model), model
    return repr(catalog.declare(model, by=BY, now=datetime.now(UTC)))


def retire(name: str) -> bool:
    """Retire a model at once."""
    return catalog.retire(name, by=BY, now=datetime.now(UTC), reason="the test is over")


QUESTIONS: dict[str, Callable[..., Any]] = {
    name: value for name, value in globals().items() if getattr(value, "__module__", "") == __name__ and callable(value)
}


def main() -> None:
    """Answer until standard input ends."""
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        answer = QUESTIONS[name](*arguments)
        connection.close()
        sys.stdout.write(json.dumps(answer, default=str) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
