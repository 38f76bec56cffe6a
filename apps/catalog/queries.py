"""Rows of the catalog as core values, and as the doors show them."""

from collections.abc import Iterable
from typing import Any

from django.db.models import QuerySet

from apps.catalog.models import ModelRow, ProfileRow
from llmgw.core import validation
from llmgw.core.units import Bytes, ModelName
from llmgw.core.wanted import Model, Profile, Source


def declared() -> QuerySet[ModelRow]:
    """Return the entries that are not retired, with their profiles: two queries, however many there are."""
    return ModelRow.objects.filter(retired_at__isnull=True).prefetch_related("profiles")


def find(name: str) -> ModelRow | None:
    """Return the entry that is served under this name, aliases left aside."""
    return declared().filter(name=name).first()


def models() -> tuple[Model, ...]:
    """Return all that is wanted, in two queries."""
    return tuple(model_of(row) for row in declared())


def names_taken(rows: Iterable[ModelRow]) -> tuple[str, ...]:
    """Return the names and aliases that these entries are served under."""
    return tuple(name for row in rows for name in (row.name, *row.aliases))


def model_of(row: ModelRow) -> Model:
    """Return the entry as a core value; one query unless the profiles were fetched along."""
    return Model(
        name=ModelName(row.name),
        source=Source(
            uri=row.source_uri,
            size=None if row.source_size is None else Bytes(row.source_size),
            sha256=row.source_sha256 or None,
        ),
        profiles=tuple(_profile_of(profile) for profile in row.profiles.all()),
        replicas=row.replicas,
        aliases=tuple(row.aliases),
        priority=row.priority,
        labels=dict(row.labels),
        facts=validation.facts_from_document(row.facts),
    )


def _profile_of(row: ProfileRow) -> Profile:
    return Profile(
        name=row.name,
        engine=row.engine,
        device_classes=tuple(row.device_classes),
        devices=row.devices,
        tensor_parallel=row.tensor_parallel,
        pipeline_parallel=row.pipeline_parallel,
        nodes=row.nodes,
        quantization=row.quantization or None,
        context_length=row.context_length,
        memory=None if row.memory is None else Bytes(row.memory),
        arguments=tuple(row.arguments),
        fabric=row.fabric or None,
    )


def describe(row: ModelRow) -> dict[str, Any]:
    """Return the shape that the API and `--json` print: the document that declares it, and what became of that."""
    return {
        **validation.model_to_document(model_of(row)),
        "revision": row.revision,
        "created_at": row.created_at.isoformat(),
        "changed_at": row.changed_at.isoformat(),
        "retired_at": row.retired_at.isoformat() if row.retired_at else None,
    }
