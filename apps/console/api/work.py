"""What llmgw did and would do: passes, a plan, the audit; and who is asking whom."""

from types import MappingProxyType
from typing import Any, Final

from django.contrib.auth.models import AnonymousUser, User
from django.db import transaction
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.models import ApiTokenRow
from apps.audit import actions as audit
from apps.audit import queries as audited
from apps.audit.models import AuditRow
from apps.console.api import describing as told
from apps.console.api.authentication import asker
from apps.console.api.door import DRY, LIST, REASON, Door, is_dry, listed, reason_of
from apps.console.api.problems import not_found
from apps.console.request import clock
from apps.replicas import actions, queries, reconcile
from apps.replicas.models import PassRow
from llmgw import __version__

VIEW_PASSES: Final = "replicas.view_passrow"
RUN: Final = "replicas.add_passrow"
VIEW_AUDIT: Final = "audit.view_auditrow"
_BIGGEST: Final = 2**63 - 1


class Passes(Door):
    """What was decided."""

    needs = MappingProxyType({"get": VIEW_PASSES})
    parameters = MappingProxyType({"get": LIST})

    @extend_schema(operation_id="passes_list", parameters=told.paged(), responses=told.page_of("Pass"), tags=["work"])
    def get(self, request: Request) -> Response:
        """List the passes that did something or refused something new, the newest first."""
        return listed(request, PassRow.objects.all(), "token", queries.describe_pass, numbered=True, newest=True)


class OnePass(Door):
    """One look at wanted against actual."""

    needs = MappingProxyType({"get": VIEW_PASSES})

    @extend_schema(operation_id="pass_get", responses=told.one("Pass"), tags=["work"])
    def get(self, request: Request, token: int) -> Response:
        """Tell what it did and refused."""
        row = PassRow.objects.filter(token=token).first() if token <= _BIGGEST else None
        if row is None:
            raise not_found("pass", str(token)[:20])
        return Response(queries.describe_pass(row))


class Reconcile(Door):
    """A pass by hand."""

    needs = MappingProxyType({"post": RUN})
    parameters = MappingProxyType({"post": (DRY, REASON)})

    @extend_schema(
        operation_id="reconcile",
        parameters=told.writing(),
        request=told.body("Reason"),
        responses={200: told.ref("Foreseen"), 202: told.ref("Requested")},
        tags=["work"],
    )
    def post(self, request: Request) -> Response:
        """Ask the control worker for a pass now; with `dry_run=all`, answer with what it would do."""
        now = clock()
        reason = reason_of(request)
        if is_dry(request):
            return Response({"dry_run": True, "plan": reconcile.look(now).to_json()})
        with transaction.atomic():
            audit.record(asker(request), "pass.request", "pass", "", now, reason=reason)
            actions.request_pass()
            row = queries.passes()
        return Response({"requested": row.requested, "done": row.done}, status=202)


class Audit(Door):
    """Who did what."""

    needs = MappingProxyType({"get": VIEW_AUDIT})
    parameters = MappingProxyType({"get": (*LIST, "actor", "verb", "object")})

    @extend_schema(
        operation_id="audit_list",
        parameters=[
            *told.paged(),
            told.query("actor", "only what this person or process did"),
            told.query("verb", "only such entries: `model.declare`"),
            told.query("object", "only what was done to this: a model's, node's or replica's name"),
        ],
        responses=told.page_of("AuditEntry"),
        tags=["work"],
    )
    def get(self, request: Request) -> Response:
        """List the entries, the newest first."""
        asked = {
            "actor": request.query_params.get("actor"),
            "verb": request.query_params.get("verb"),
            "object_id": request.query_params.get("object"),
        }
        rows = AuditRow.objects.filter(**{field: value for field, value in asked.items() if value})
        return listed(request, rows, "pk", audited.describe, numbered=True, newest=True)


class WhoAmI(Door):
    """Who is asking."""

    @extend_schema(operation_id="whoami", responses=told.one("WhoAmI"), tags=["about"])
    def get(self, request: Request) -> Response:
        """Tell whom a token or a session stands for, and what that may."""
        return Response(_who(request.user, request.auth))


def _who(user: User | AnonymousUser, token: Any) -> dict[str, Any]:
    by_token = isinstance(token, ApiTokenRow)
    return {
        "name": user.get_username(),
        "superuser": user.is_superuser,
        "token": token.name if by_token else None,
        "read_only": bool(by_token and token.read_only),
        "expires_at": token.expires_at.isoformat() if by_token and token.expires_at else None,
        "permissions": sorted(user.get_all_permissions()),
    }


class Version(Door):
    """Which llmgw this is."""

    @extend_schema(operation_id="version", responses=told.one("Version"), tags=["about"])
    def get(self, request: Request) -> Response:
        """Tell the version of the product and of the API."""
        return Response({"llmgw": __version__, "api": "v1"})
