"""A process that has the control plane's database open and answers questions about it, a JSON line each.

Runs as `python -m tests.scenarios.observer`: a test asks often, and starting Django for each question costs a second.
"""

import json
import sys
from collections.abc import Callable
from typing import Any

import django

django.setup()

from django.db import connection  # noqa: E402  # after setup

from apps.audit.models import AuditRow  # noqa: E402
from apps.catalog.models import ModelRow  # noqa: E402
from apps.nodes.models import NodeRow, NodeTransitionRow, ReportCountRow  # noqa: E402
from apps.replicas.models import OrderRow, PassRow, ReplicaRow, ShardRow, TransitionRow  # noqa: E402


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


def node_transitions(name: str) -> list[str]:
    """The states a node went through."""
    return [row.after for row in NodeTransitionRow.objects.filter(node__name=name)]


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
    return list(AuditRow.objects.filter(verb=verb).values("actor", "door", "object_id", "reason"))


QUESTIONS: dict[str, Callable[..., Any]] = {
    f.__name__: f
    for f in (replicas, shards, transitions, orders, node, node_transitions, report_counts, passes, audit, model_source)
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
