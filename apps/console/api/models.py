"""Models: declared, changed and retired by name; the same body twice changes nothing."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from apps.catalog import actions
from apps.catalog import queries as catalog
from apps.catalog.actions import CREATED, Declared, Stale
from apps.catalog.models import ModelRow
from apps.console.api import describing as told
from apps.console.api.authentication import asker, need
from apps.console.api.door import (
    DRY,
    LIST,
    REASON,
    Door,
    checked_reason,
    kept_unless_dry,
    listed,
    reason_of,
)
from apps.console.api.parsing import Json, MergePatch
from apps.console.api.problems import Stop, invalid, not_found
from apps.console.request import clock
from apps.replicas import queries, reconcile
from apps.replicas.explain import NotFound, explain
from llmgw.core import validation
from llmgw.core.wanted import Model, Problem

VIEW: Final = "catalog.view_modelrow"
ADD: Final = "catalog.add_modelrow"
CHANGE: Final = "catalog.change_modelrow"
DELETE: Final = "catalog.delete_modelrow"
_TAG: Final = re.compile(r'"r(\d{1,18})"')
_LONGEST_NAME: Final = 63


class Models(Door):
    """The catalog."""

    needs = MappingProxyType({"get": VIEW})
    parameters = MappingProxyType({"get": LIST})

    @extend_schema(
        operation_id="models_list", parameters=told.paged(), responses=told.page_of("Model"), tags=["models"]
    )
    def get(self, request: Request) -> Response:
        """List the declared models, with what became of them, by name."""
        return listed(request, queries.models(), "name", queries.describe_model)


class OneModel(Door):
    """One entry of the catalog."""

    parser_classes = (Json, MergePatch)
    needs = MappingProxyType({"get": VIEW, "patch": CHANGE, "delete": DELETE})
    parameters = MappingProxyType({"get": (), "put": (DRY, REASON), "patch": (DRY, REASON), "delete": (DRY, REASON)})

    @extend_schema(operation_id="model_get", responses=told.one("Model"), tags=["models"])
    def get(self, request: Request, name: str) -> Response:
        """Tell what was declared and what became of it; `ETag` is its revision."""
        return _answered(find(name))

    @extend_schema(
        operation_id="model_put",
        parameters=[*told.writing(), told.IF_MATCH, told.IF_NONE_MATCH],
        request=told.body("ModelDocument"),
        responses={**told.one("Model"), 201: told.ref("Model"), **told.problems(412, 422)},
        tags=["models"],
    )
    def put(self, request: Request, name: str) -> Response:
        """Create or replace; `If-None-Match: *` only creates, `If-Match` only replaces what one has seen."""
        present = _row(name)
        need(request, CHANGE if present else ADD)
        model = _read({"name": name, **_object(request.data)}, name)
        return _declare(request, model, present, anew=request.headers.get("If-None-Match") == "*")

    @extend_schema(
        operation_id="model_patch",
        parameters=[*told.writing(), told.IF_MATCH],
        request={"application/merge-patch+json": told.schema("ModelPatch")},
        responses={**told.one("Model"), **told.problems(404, 412, 422)},
        tags=["models"],
    )
    def patch(self, request: Request, name: str) -> Response:
        """Change some of it by a merge patch (RFC 7396); lists are replaced as a whole."""
        row = find(name)
        before = validation.model_to_document(catalog.model_of(row))
        return _declare(request, _read(_merged(before, _object(request.data)), name), row, seen=True)

    @extend_schema(
        operation_id="model_delete",
        parameters=[*told.writing(), told.IF_MATCH],
        request=None,
        responses={204: None, 200: told.ref("Foreseen"), **told.problems(404, 412)},
        tags=["models"],
    )
    def delete(self, request: Request, name: str) -> Response:
        """Retire: what runs of it finishes its requests and stops. A dry run answers with what would."""
        now = clock()
        reason = reason_of(request)
        with kept_unless_dry(request) as dry:
            _matching(request, find(name))
            actions.retire(name, by=asker(request), now=now, reason=reason)
            plan = reconcile.look(now).to_json() if dry else None
        return Response({"dry_run": True, "plan": plan}) if dry else Response(status=204)


class Explained(Door):
    """Why a model is not running."""

    needs = MappingProxyType({"get": VIEW})

    @extend_schema(operation_id="model_explain", responses=told.one("Explanation"), tags=["models"])
    def get(self, request: Request, name: str) -> Response:
        """Say it as the console and `manage.py explain` do."""
        told = explain(name, clock()) if name.isprintable() else NotFound(name)
        if isinstance(told, NotFound):
            raise not_found("model", name)
        return Response(told.to_json())


class Catalog(Door):
    """All that is declared, as a file."""

    needs = MappingProxyType({"get": VIEW})

    @extend_schema(operation_id="catalog", responses=told.one("Catalog"), tags=["models"])
    def get(self, request: Request) -> Response:
        """Tell what is declared and nothing else: `apply` reads it back."""
        return Response({"models": [validation.model_to_document(model) for model in catalog.models()]})


class Apply(Door):
    """Many at once."""

    parameters = MappingProxyType({"post": (DRY, REASON)})

    @extend_schema(
        operation_id="apply",
        parameters=told.writing(),
        request=told.body("Documents"),
        responses={**told.one("Applied"), **told.problems(422)},
        tags=["models"],
    )
    def post(self, request: Request) -> Response:
        """Declare a list of models, all of them or none; those that are not named stay as they are."""
        need(request, ADD)
        need(request, CHANGE)
        alone = not isinstance(request.data, dict)
        models = _catalog({"models": request.data} if alone else _object(request.data), "models" if alone else "")
        now = clock()
        reason = checked_reason(request.query_params.get(REASON, ""))
        with kept_unless_dry(request) as dry:
            done = actions.declare_all(models, by=asker(request), now=now, reason=reason)
            items = [_change(each) for each in done if isinstance(each, Declared)]
            plan = reconcile.look(now).to_json() if dry and len(items) == len(done) else None
        if problems := [each for each in done if isinstance(each, Problem)]:
            raise invalid(problems, "models" if alone else "")
        return Response({"items": items, "dry_run": dry, "plan": plan})


def _change(done: Declared) -> dict[str, Any]:
    return {"name": done.row.name, "change": done.change, "revision": done.row.revision}


# --- finding ------------------------------------------------------------------------------------------------------


def find(name: str) -> ModelRow:
    """Return a declared model, or stop."""
    row = _row(name)
    if row is None:
        raise not_found("model", name)
    return row


def _row(name: str) -> ModelRow | None:
    return catalog.find(name) if name.isprintable() and len(name) <= _LONGEST_NAME else None


def _answered(row: ModelRow, *, status: int = 200, plan: Mapping[str, Any] | None = None) -> Response:
    extra = {} if plan is None else {"dry_run": True, "plan": plan}
    return Response({**queries.describe_model(row), **extra}, status=status, headers={"ETag": _tag(row)})


def _tag(row: ModelRow) -> str:
    return f'"r{row.revision}"'


# --- reading ------------------------------------------------------------------------------------------------------


def _object(body: object) -> dict[str, Any]:
    if not isinstance(body, dict):
        raise Stop(422, "body.shape", "the body is to be one JSON object: the model's document")
    return body


def _read(document: dict[str, Any], name: str) -> Model:
    read = validation.model_from_document(document)
    if not isinstance(read, Model):
        raise invalid(read)
    if read.name != name:
        message = f"the address says {name[:63]}"
        raise invalid([Problem("name", "name.differs", message, "leave the name out, or make it the same")])
    return read


def _catalog(document: dict[str, Any], below: str) -> tuple[Model, ...]:
    read = validation.catalog_from_document(document)
    if problems := [each for each in read if isinstance(each, Problem)]:
        raise invalid(problems, below)
    return tuple(each for each in read if isinstance(each, Model))


def _merged(before: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """Merge as RFC 7396 says; a source that stands as a text may be patched by its parts."""
    if isinstance(patch.get("source"), dict) and isinstance(before["source"], str):
        before = {**before, "source": {"uri": before["source"]}}
    merged = _merge(before, patch)
    return merged if isinstance(merged, dict) else {}


def _merge(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merge(merged.get(key), value)
    return merged


# --- writing ------------------------------------------------------------------------------------------------------


def _declare(
    request: Request, model: Model, present: ModelRow | None, *, anew: bool = False, seen: bool = False
) -> Response:
    """Write it, unless it is not what the caller has seen; `seen` when the edit was made on `present`."""
    now = clock()
    reason = checked_reason(request.query_params.get(REASON, ""))
    conditional = _matching(request, present) or seen
    by = asker(request)
    with kept_unless_dry(request) as dry:
        if anew or conditional:
            revision = None if anew or present is None else present.revision
            done = actions.declare_seen(model, seen=revision, by=by, now=now, reason=reason)
        else:
            done = actions.declare(model, by=by, now=now, reason=reason)
        if isinstance(done, Declared):
            plan = reconcile.look(now).to_json() if dry else None
            return _answered(done.row, status=201 if done.change == CREATED else 200, plan=plan)
    raise _stale(done) if isinstance(done, Stale) else invalid(done)


def _matching(request: Request, present: ModelRow | None) -> bool:
    """Tell whether `If-Match` was sent; stop when it does not name what is there."""
    told = request.headers.get("If-Match")
    if told is None:
        return False
    if present is None:
        raise Stop(412, "model.stale", "If-Match was sent, and there is no such model")
    if told.strip() != "*" and str(present.revision) not in _TAG.findall(told):
        raise _stale(Stale(present.name, None, present.revision))
    return True


def _stale(stale: Stale) -> Stop:
    tag = {} if stale.now is None else {"ETag": f'"r{stale.now}"'}
    now = "there is no such model" if stale.now is None else f'it is at "r{stale.now}"'
    return Stop(412, stale.code, f"{stale.name} is not what this write began from: {now}; {stale.cure()}", headers=tag)
