"""Keeps on each slot why it has no place, whenever a pass finds other reasons than the one before."""

from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any

from django.db import transaction

from apps.replicas import queries
from apps.replicas.actions import passes
from apps.replicas.actions.planned import Pass
from apps.replicas.models import ReplicaRow
from llmgw.core.placement import Refused
from llmgw.core.plan import RefusedReplica, refused_to_json
from llmgw.core.refusals import WaitingForRetry
from llmgw.core.units import ReplicaId
from llmgw.core.world import State


def keep_refusals(refused: Sequence[RefusedReplica], under: Pass) -> list[dict[str, Any]]:
    """Store what is news, and return it: `{"replica", "refusals"}`, counted by code."""
    keys: dict[int, str] = {}  # the slots of a model share their reasons, which are then read once
    for each in refused:
        keys[id(each.refusals)] = keys.get(id(each.refusals)) or _key(each.refusals)
    news = {each.replica: each for each in refused if _known(each.replica, under) != keys[id(each.refusals)]}
    if not news:
        return []
    with transaction.atomic():
        rows = queries.present().filter(model__name__in={name.rpartition("/")[0] for name in news})
        found = [(row, news[row.name]) for row in rows if row.name in news]
        kept = [_keep(row, each, keys[id(each.refusals)], under) for row, each in found]
        passes.hold(under.turn, under.clock())
    return [told for told in kept if told]


def _known(name: ReplicaId, under: Pass) -> str:
    seen = under.view.replicas.get(name)
    return seen.refusals_key if seen else ""


def _key(reasons: Sequence[Refused]) -> str:
    """Tell two sets of reasons apart; how long there is still to wait makes no difference."""
    said = [(no.node, no.profile, no.refusal.code, _without_clock(no)) for no in reasons]
    return sha256(repr(said).encode()).hexdigest()[:16]


def _without_clock(no: Refused) -> object:
    return replace(no.refusal, wait=0.0) if isinstance(no.refusal, WaitingForRetry) else no.refusal


def _keep(row: ReplicaRow, each: RefusedReplica, key: str, under: Pass) -> dict[str, Any] | None:
    """Write one slot's reasons by compare-and-set: whoever has moved it meanwhile has better news."""
    stored = [refused_to_json(no) for no in each.refusals]
    groups = queries.grouped(stored)
    why = row.why
    if row.state in (State.QUEUED, State.STOPPED):
        why = "no place: " + ", ".join(f"{group['count']} × {group['code']}" for group in groups)
    written = ReplicaRow.objects.filter(pk=row.pk, generation=row.generation).update(
        refusals=stored,
        refusals_key=key,
        why=why[:500],
        generation=row.generation + 1,
    )
    return {"replica": each.replica, "refusals": groups} if written else None
