"""The admin site: its first page says whether all is right, and where its pages are."""

from typing import Any

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from unfold.sites import UnfoldAdminSite

from apps.console import live, overview
from apps.console.request import clock


class ConsoleSite(UnfoldAdminSite):  # type: ignore[misc]  # unfold has no types
    """Django's admin with our first page."""

    index_title = "Is it all right?"
    login_template = "console/login.html"
    enable_nav_sidebar = True

    def index(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponseBase:
        """Show the state of everything."""
        request.current_app = self.name
        return live.page(
            request,
            "console/overview.html",
            "console/overview_live.html",
            {"overview": overview.gather(request.user, clock()), "title": self.index_title},
            lambda: self.each_context(request),
        )
