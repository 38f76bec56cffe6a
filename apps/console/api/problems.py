"""Every error of the API in one shape: `application/problem+json`, with a code, the places, and what to do."""

import re
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Final

from django.core.exceptions import PermissionDenied, RequestDataTooBig
from django.db import OperationalError
from django.http import Http404, HttpRequest, JsonResponse
from rest_framework import exceptions
from rest_framework.response import Response

from apps.audit.actions import plain
from llmgw.core.wanted import Problem

CONTENT_TYPE: Final = "application/problem+json"
_STEP: Final = re.compile(r"[^.\[\]]+")
_CODES: Final = MappingProxyType(
    {
        "parse_error": "body.unreadable",
        "not_authenticated": "auth.missing",
        "authentication_failed": "auth.failed",
        "permission_denied": "auth.denied",
        "not_found": "not-found",
        "method_not_allowed": "method.not-allowed",
        "not_acceptable": "accept.unknown",
        "unsupported_media_type": "body.media-type",
        "throttled": "too-many",
    }
)


class Stop(Exception):
    """Ends a request with a problem."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        errors: Sequence[Mapping[str, Any]] = (),
        refusals: Sequence[Mapping[str, Any]] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.errors = list(errors)
        self.refusals = list(refusals)
        self.headers = dict(headers or {})

    def body(self) -> dict[str, Any]:
        """Return what is answered."""
        return {
            "type": f"urn:llmgw:problem:{self.code}",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "code": self.code,
            "detail": self.detail,
            "errors": self.errors,
            "refusals": self.refusals,
        }


def not_found(what: str, name: str) -> Stop:
    """Say that there is no such thing, by the name it was asked for."""
    return Stop(404, f"{what}.unknown", f"there is no {what} {plain(name)}")


def invalid(problems: Iterable[Problem], below: str = "") -> Stop:
    """Say what is wrong with a document, place by place; `below` is what the caller did not write."""
    errors = [_error(problem, below) for problem in problems]
    count = f"{len(errors)} problem{'s' if len(errors) != 1 else ''}"
    return Stop(422, "model.invalid", f"refused with {count}; nothing was saved", errors=errors)


def _error(problem: Problem, below: str) -> dict[str, str]:
    place = problem.field.removeprefix(below)
    return {"pointer": pointer(place), "code": problem.code, "message": problem.message, "cure": problem.cure}


def pointer(place: str) -> str:
    """Return a place as a JSON pointer: `profiles[0].engine` is `/profiles/0/engine`."""
    steps = (step.replace("~", "~0").replace("/", "~1") for step in _STEP.findall(place))
    return "".join(f"/{step}" for step in steps)


def answer(error: Exception, context: Mapping[str, Any]) -> Response | None:
    """Turn whatever went wrong into a problem; None leaves what nobody expected to Django's log and its 500."""
    stop = _stop_of(error)
    if stop is None:
        return None
    return Response(stop.body(), status=stop.status, headers=stop.headers, content_type=CONTENT_TYPE)


def _stop_of(error: Exception) -> Stop | None:
    if isinstance(error, Stop):
        return error
    if isinstance(error, Http404):
        return Stop(404, "not-found", "there is nothing at this address")
    if isinstance(error, PermissionDenied):
        return Stop(403, "auth.denied", str(error) or "this is not allowed")
    if isinstance(error, RequestDataTooBig):
        return Stop(413, "body.too-large", str(error))
    if isinstance(error, OperationalError):
        # Locked, restarting or away: the caller may well succeed a moment later.
        return Stop(503, "database.busy", "the database does not answer now", headers={"Retry-After": "2"})
    if isinstance(error, exceptions.APIException):
        return _of_framework(error)
    return None


def _of_framework(error: exceptions.APIException) -> Stop:
    codes = error.get_codes()
    code = codes if isinstance(codes, str) else "invalid"
    detail = error.detail if isinstance(error.detail, str) else str(error.detail)
    headers = {}
    if getattr(error, "auth_header", None):
        headers["WWW-Authenticate"] = error.auth_header  # type: ignore[attr-defined]  # the framework sets it
    return Stop(error.status_code, _CODES.get(code, code), str(detail), headers=headers)


def nothing_here(request: HttpRequest, rest: str = "") -> JsonResponse:
    """Answer an address that the API does not have, in the shape of all its errors."""
    stop = Stop(404, "not-found", "the API has nothing at this address; /api/v1/ describes what it has")
    return JsonResponse(stop.body(), status=404, content_type=CONTENT_TYPE)
