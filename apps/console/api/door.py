"""What every address of the API does alike: permissions, parameters, pages of a list, looking before leaping."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, ClassVar, Final

from django.db import transaction
from django.db.models import QuerySet
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.audit.actions import plain
from apps.console.api.authentication import need
from apps.console.api.problems import Stop

DEFAULT_LIMIT: Final = 100
MOST: Final = 1000
LONGEST_VALUE: Final = 300
LIST: Final = ("limit", "after")
DRY: Final = "dry_run"
REASON: Final = "reason"
LONGEST_REASON: Final = 500


class Door(APIView):
    """One address."""

    parameters: ClassVar[Mapping[str, tuple[str, ...]]] = MappingProxyType({})
    """By method, the query parameters that it knows. Others are refused: a typing error must not widen a request."""
    needs: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """By method, the permission that it asks for."""

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Check all that can be told before the request is looked at."""
        super().initial(request, *args, **kwargs)
        method = (request.method or "").lower()
        need(request, self.needs.get("get" if method == "head" else method, ""))
        known = self.parameters.get("get" if method == "head" else method, ())
        for name in request.query_params:
            _check_parameter(name, request.query_params.getlist(name), known)


def _check_parameter(name: str, values: list[str], known: tuple[str, ...]) -> None:
    told = plain(name)
    if name not in known:
        says = f"known here: {', '.join(known)}" if known else "none is known here"
        raise Stop(400, "parameter.unknown", f"there is no parameter `{told}`; {says}")
    if len(values) > 1:
        raise Stop(400, "parameter.twice", f"the parameter `{told}` stands there {len(values)} times")
    if (len(values[0]) > LONGEST_VALUE and name != REASON) or not values[0].isprintable():
        raise Stop(400, "parameter.form", f"the parameter `{told}` is too long, or holds what cannot be printed")


# --- lists --------------------------------------------------------------------------------------------------------


def listed(
    request: Request,
    rows: QuerySet[Any],
    key: str,
    describe: Callable[[Any], Mapping[str, Any]],
    *,
    numbered: bool = False,
    newest: bool = False,
) -> Response:
    """Answer one page of a list in the order of `key`, with where the next one begins."""
    after = request.query_params.get("after")
    if after is not None:
        rows = rows.filter(**{f"{key}__{'lt' if newest else 'gt'}": _cursor(after, numbered=numbered)})
    limit = _limit(request)
    found = list(rows.order_by(f"-{key}" if newest else key)[: limit + 1])
    more = len(found) > limit
    last = str(getattr(found[limit - 1], key)) if more else None
    return Response({"items": [describe(row) for row in found[:limit]], "next": last})


def _limit(request: Request) -> int:
    told = request.query_params.get("limit", str(DEFAULT_LIMIT))
    if not (told.isascii() and told.isdecimal() and len(told) < 9 and 1 <= int(told) <= MOST):
        raise Stop(400, "parameter.form", f"limit is a number from 1 to {MOST}")
    return int(told)


def _cursor(after: str, *, numbered: bool) -> str | int:
    if not numbered:
        return after
    if not (after.isascii() and after.isdecimal() and len(after) < 18):
        raise Stop(400, "parameter.form", "after is what `next` of the page before said")
    return int(after)


# --- writes -------------------------------------------------------------------------------------------------------


def is_dry(request: Request) -> bool:
    """Tell whether nothing is to be kept; a word that we do not know must not become a real run."""
    told = request.query_params.get(DRY)
    if told not in (None, "all"):
        raise Stop(400, "parameter.form", "dry_run is `all`, or left out")
    return told == "all"


@contextmanager
def kept_unless_dry(request: Request) -> Iterator[bool]:
    """Do what is within as it would be done; take it all back, with what it would have sent, on a dry run."""
    dry = is_dry(request)
    with transaction.atomic():
        yield dry
        if dry:
            transaction.set_rollback(True)


def reason_of(request: Request, *, needed: bool = False) -> str:
    """Return why: from the body, or from the parameter where there is none."""
    body = request.data
    if not isinstance(body, dict):
        raise Stop(422, "body.shape", 'the body is to be one JSON object: `{"reason": …}`, or nothing')
    if unknown := sorted(set(map(str, body)) - {REASON}):
        raise Stop(422, "key.unknown", f"there is no key `{plain(unknown[0])}` here; known: {REASON}")
    return checked_reason(body.get(REASON, request.query_params.get(REASON, "")), needed=needed)


def checked_reason(told: object, *, needed: bool = False) -> str:
    """Read a reason; what the audit could not store is refused."""
    if not isinstance(told, str) or len(told) > LONGEST_REASON or not told.isprintable():
        raise Stop(422, "reason.form", f"reason is a text of one line and at most {LONGEST_REASON} characters")
    if needed and not told.strip():
        raise Stop(422, "reason.missing", "say why in `reason`: something stops, and the audit keeps it")
    return told.strip()
