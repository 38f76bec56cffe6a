"""Print what a pass would do: with the fleet and the catalog that are there, or with those of files."""

import time
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from django.core.management.base import BaseCommand

from apps.audit.management.output import as_json, as_table
from apps.replicas.management.imagined import add_files, imagined
from llmgw.core.plan import Plan, RefusedReplica, plan
from llmgw.core.plan.alternatives import Alternative, alternatives, to_json
from llmgw.core.plan.capacity import Capacity, capacity
from llmgw.core.units import Seconds, counted
from llmgw.core.world import ClusterSnapshot


class Command(BaseCommand):
    """`manage.py plan [--fleet FILE] [--catalog FILE] [--json]`."""

    help = (
        "Print what a pass would start and stop, why the rest has no place and what would give it one, and how much of "
        "each class is left. Nothing is changed. With --fleet and --catalog neither a database nor a node is needed. "
        "Exit code 1: a wanted replica has no place; 2: a file cannot be read; 3: a file is refused."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_files(parser)
        parser.add_argument("--json", action="store_true", help="print one JSON document")

    def handle(self, *args: Any, fleet: str | None, catalog: str | None, json: bool, **options: Any) -> None:
        snapshot = imagined(fleet, catalog)
        begun = time.perf_counter()
        found = plan(snapshot, Seconds(datetime.now(UTC).timestamp()))
        took_s = time.perf_counter() - begun
        others = _alternatives(snapshot, found)
        left = capacity(snapshot, found)
        if json:
            self.stdout.write(as_json(_document(found, left, others, took_s)))
        else:
            self.stdout.write("\n".join(_lines(snapshot, found, left, others)))
        if found.refusals:
            raise SystemExit(1)


def _alternatives(snapshot: ClusterSnapshot, found: Plan) -> Mapping[str, Sequence[Alternative]]:
    """Work out what would help each model of which a replica has no place, once this plan is carried out."""
    after = found.carried_out(snapshot)
    names = {refused.replica.rpartition("/")[0] for refused in found.refusals}
    return {model.name: alternatives(after, model) for model in snapshot.models if model.name in names}


def _document(
    found: Plan, left: Sequence[Capacity], others: Mapping[str, Sequence[Alternative]], took_s: float
) -> dict[str, Any]:
    return {
        **found.to_json(),
        "capacity": [each.to_json() for each in left],
        "would_work": {name: [to_json(each) for each in told] for name, told in others.items()},
        "took_s": round(took_s, 4),
    }


def _lines(
    snapshot: ClusterSnapshot, found: Plan, left: Sequence[Capacity], others: Mapping[str, Sequence[Alternative]]
) -> Iterator[str]:
    wanted = sum(model.replicas for model in snapshot.models)
    yield f"{counted(len(snapshot.nodes), 'node')}, {counted(wanted, 'replica')} wanted"
    yield ""
    yield from (action.text() for action in found.actions if action.code != "queue")
    if not found.actions:
        yield "nothing to do"
    for refused in found.refusals:
        yield ""
        yield from _refused(refused)
        yield from (f"  would work: {told.text()}" for told in others.get(refused.replica.rpartition("/")[0], ()))
    yield ""
    head = ("class", "places", "unusable", "taken", "free", "taken after", "free after")
    yield as_table(head, [tuple(each.to_json().values()) for each in left]) if left else "no devices"


def _refused(refused: RefusedReplica) -> Iterator[str]:
    """Say each kind of reason once, with how often it was found and an example."""
    counts = Counter(no.refusal.code for no in refused.refusals)
    yield f"{refused.replica} has no place:"
    for code, many in counts.most_common():
        no = next(no for no in refused.refusals if no.refusal.code == code)
        where = f"{no.node}: " if no.node else ""
        yield f"  {many} × {code}: {where}{no.refusal.text()} – {no.refusal.cure()}"
