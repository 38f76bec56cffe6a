"""What holds for every page: it loads nothing from elsewhere, and is no accident when the database is away."""

from typing import Final

import structlog
from django.db import OperationalError
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.template.loader import render_to_string
from django.utils.deprecation import MiddlewareMixin

# Alpine, which unfold brings along, builds functions from strings; its theme and its components set styles in the page.
POLICY: Final = (
    "default-src 'self'; script-src 'self' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "base-uri 'self'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
)
log = structlog.get_logger(__name__)

HEADER: Final = "Content-Security-Policy"


class ContentSecurityPolicy(MiddlewareMixin):
    """Sets the policy on each answer."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        """Add the header, unless the page has brought its own."""
        response.headers.setdefault(HEADER, POLICY)
        return response


class DatabaseAway(MiddlewareMixin):
    """Says that the database does not answer, where a page would otherwise end in an error without words."""

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        """Answer that it may be tried again; the log keeps what the database said."""
        if not isinstance(error, OperationalError):
            return None
        log.error("the database does not answer", path=request.path, error=str(error))
        page = render_to_string("console/database_away.html")
        return HttpResponse(page, status=503, headers={"Retry-After": "5"})
