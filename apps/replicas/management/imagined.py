"""Fleets and catalogs from files, for commands that look ahead; without them, what the database holds."""

from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from django.core.management.base import CommandError

from apps.audit.management.files import read_document
from apps.replicas import queries
from llmgw.core import validation
from llmgw.core.wanted import Model, Problem
from llmgw.core.world import ClusterSnapshot

T = TypeVar("T")


def add_files(parser: ArgumentParser) -> None:
    """Say which files a command takes."""
    parser.add_argument("--fleet", metavar="FILE", help="nodes in YAML or JSON; without it, the nodes that have joined")
    parser.add_argument("--catalog", metavar="FILE", help="models in YAML or JSON; without it, those that are declared")


def imagined(fleet: str | None, catalog: str | None) -> ClusterSnapshot:
    """Return what is to be planned for; with a fleet from a file the database is not asked at all.

    Raises CommandError, with exit code 3 for a document that is refused.
    """
    if fleet is not None and catalog is None:
        raise CommandError("--fleet needs --catalog: nothing is declared for a fleet from a file", returncode=2)
    nodes = _read(fleet, validation.fleet_from_document) if fleet is not None else None
    models = _models(catalog) if catalog is not None else None
    if nodes is not None:
        return ClusterSnapshot(nodes=tuple(nodes), models=tuple(models or ()))
    snapshot = queries.view().snapshot
    return snapshot if models is None else replace(snapshot, models=_edited(snapshot.models, models))


def _models(catalog: str) -> Sequence[Model]:
    models = _read(catalog, validation.catalog_from_document)
    if problems := validation.validate_catalog(models, planning=True):
        raise _refused(catalog, problems)
    return models


def _edited(declared: Sequence[Model], models: Sequence[Model]) -> tuple[Model, ...]:
    """Put the models of a file in the place of those of their names, as `apply` would."""
    named = {model.name for model in models}
    return (*(model for model in declared if model.name not in named), *models)


def _read(file: str, read: Callable[[object], tuple[T, ...] | tuple[Problem, ...]]) -> Sequence[T]:
    told = read(read_document(file))
    problems = [each for each in told if isinstance(each, Problem)]
    if problems:
        raise _refused(file, problems)
    return [each for each in told if not isinstance(each, Problem)]


def _refused(file: str, problems: Sequence[Problem]) -> CommandError:
    lines = [f"{file}: refused, {len(problems)} problems", *(f"  {each.code}: {each.text()}" for each in problems)]
    return CommandError("\n".join(lines), returncode=3)
