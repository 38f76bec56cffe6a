"""What can be done to the catalog: declare a model, declare many at once, retire one."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, ClassVar

from django.db import transaction

from apps.audit import actions as audit
from apps.audit.actions import Actor
from apps.catalog import queries
from apps.catalog.models import CatalogRow, ModelRow, ProfileRow
from apps.catalog.signals import catalog_changed
from llmgw.core import validation
from llmgw.core.wanted import Model, Problem, Profile

CREATED, CHANGED, UNCHANGED = "created", "changed", "unchanged"


@dataclass(frozen=True, slots=True)
class Declared:
    """An entry as it now stands, and what declaring it did."""

    row: ModelRow
    change: str
    """`created`, `changed` or `unchanged`."""


@dataclass(frozen=True, slots=True)
class Stale:
    """The entry is not any more what its editor has seen; nothing was written."""

    code: ClassVar[str] = "model.stale"
    name: str
    seen: int | None
    """The revision that the editor has seen; None when there was no entry."""
    now: int | None
    """The present one; None when there is no entry."""

    def text(self) -> str:
        """Say it in one line."""
        return f"{self.name} is {_revision(self.now)}, this edit began when it was {_revision(self.seen)}"

    def cure(self) -> str:
        """Say what an operator can do."""
        return "read it again, and make the edit on what it is now"


def _revision(number: int | None) -> str:
    return "not in the catalog" if number is None else f"at revision {number}"


def declare_seen(
    model: Model, *, seen: int | None, by: Actor, now: datetime, reason: str = ""
) -> Declared | Stale | tuple[Problem, ...]:
    """Declare what was edited from revision `seen`, None for what is to be new, unless somebody else was faster."""
    with transaction.atomic():
        _lock_catalog()
        row = queries.find(model.name)
        present = row.revision if row else None
        if present != seen:
            return Stale(model.name, seen, present)
        return declare(model, by=by, now=now, reason=reason)


def declare(model: Model, *, by: Actor, now: datetime, reason: str = "") -> Declared | tuple[Problem, ...]:
    """Create or replace one entry; the same content twice writes nothing."""
    done = declare_all((model,), by=by, now=now, reason=reason)
    if isinstance(done[0], Declared):
        return done[0]
    # Its place among the entries that are declared together says nothing where there is one.
    return tuple(replace(problem, field=problem.field.removeprefix("models[0].")) for problem in done)


def declare_all(
    models: Sequence[Model], *, by: Actor, now: datetime, dry_run: bool = False, reason: str = ""
) -> tuple[Declared, ...] | tuple[Problem, ...]:
    """Create or replace these entries, all or none; the others stay. With `dry_run`, do so and take it back."""
    with transaction.atomic():
        _lock_catalog()
        rows = {row.name: row for row in ModelRow.objects.prefetch_related("profiles")}
        if problems := _refused(models, rows):
            return problems
        done = tuple(_put(model, rows.get(model.name), by, now, reason) for model in models)
        _tell(tuple(each.row.name for each in done if each.change != UNCHANGED), now)
        if dry_run:
            transaction.set_rollback(True)
    return done


def retire(name: str, *, by: Actor, now: datetime, reason: str = "") -> bool:
    """Take an entry out of the catalog, so that its replicas are drained; False when there is none of that name."""
    with transaction.atomic():
        _lock_catalog()
        row = queries.find(name)
        if row is None:
            return False
        before = validation.model_to_document(queries.model_of(row))
        row.retired_at = row.changed_at = now
        row.revision += 1
        row.save(update_fields=("retired_at", "changed_at", "revision"))
        audit.record(by, "model.retire", "model", name, now, before=before, reason=reason)
        _tell((name,), now)
    return True


def _lock_catalog() -> None:
    """Let one writer in at a time: names and aliases are unique over all entries, which no constraint can say."""
    CatalogRow.objects.select_for_update().get_or_create(pk=1)


def _tell(names: tuple[str, ...], now: datetime) -> None:
    if names:
        catalog_changed.send(ModelRow, names=names, now=now)


# --- checking -----------------------------------------------------------------------------------------------------


def _refused(models: Sequence[Model], rows: dict[str, ModelRow]) -> tuple[Problem, ...]:
    """Look at each entry beside all others: those that stay, and those that are declared before it."""
    declared = {model.name for model in models}
    stay = (row for row in rows.values() if row.retired_at is None and row.name not in declared)
    return validation.validate_catalog(models, queries.names_taken(stay))


# --- writing ------------------------------------------------------------------------------------------------------


def _put(model: Model, row: ModelRow | None, by: Actor, now: datetime, reason: str) -> Declared:
    """Write one entry if it differs from its row. A retired one that is declared again begins anew as the same row."""
    present = row if row is not None and row.retired_at is None else None
    before = queries.model_of(present) if present else None
    if present is not None and before == model:
        return Declared(present, UNCHANGED)
    row = _write(model, row, now, anew=present is None)
    audit.record(
        by,
        "model.declare",
        "model",
        model.name,
        now,
        before=validation.model_to_document(before) if before else None,
        after=validation.model_to_document(model),
        reason=reason,
    )
    return Declared(row, CREATED if present is None else CHANGED)


def _write(model: Model, row: ModelRow | None, now: datetime, *, anew: bool) -> ModelRow:
    row = row or ModelRow(name=model.name, revision=0)
    for field, value in _columns(model).items():
        setattr(row, field, value)
    row.revision += 1
    row.changed_at = now
    row.retired_at = None
    if anew:
        row.created_at = now
    row.save()
    row.profiles.all().delete()
    ProfileRow.objects.bulk_create(_profile_row(row, position, each) for position, each in enumerate(model.profiles))
    return ModelRow.objects.prefetch_related("profiles").get(pk=row.pk)


def _columns(model: Model) -> dict[str, Any]:
    return {
        "aliases": list(model.aliases),
        "source_uri": model.source.uri,
        "source_size": model.source.size,
        "source_sha256": model.source.sha256 or "",
        "replicas": model.replicas,
        "priority": model.priority,
        "labels": dict(model.labels),
        "facts": validation.facts_to_document(model.facts) if model.facts else None,
    }


def _profile_row(row: ModelRow, position: int, profile: Profile) -> ProfileRow:
    return ProfileRow(
        model=row,
        position=position,
        name=profile.name,
        engine=profile.engine,
        device_classes=list(profile.device_classes),
        devices=profile.devices,
        tensor_parallel=profile.tensor_parallel,
        pipeline_parallel=profile.pipeline_parallel,
        nodes=profile.nodes,
        quantization=profile.quantization or "",
        context_length=profile.context_length,
        memory=profile.memory,
        arguments=list(profile.arguments),
        fabric=profile.fabric or "",
    )
