"""Tells browsers that our pages load nothing from elsewhere, and run no script that stands in a page."""

from typing import Final

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.deprecation import MiddlewareMixin

# Alpine, which unfold brings along, builds functions from strings; its theme and its components set styles in the page.
POLICY: Final = (
    "default-src 'self'; script-src 'self' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "base-uri 'self'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
)
HEADER: Final = "Content-Security-Policy"


class ContentSecurityPolicy(MiddlewareMixin):
    """Sets the policy on each answer."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        """Add the header, unless the page has brought its own."""
        response.headers.setdefault(HEADER, POLICY)
        return response
