"""Pages with a part that keeps itself fresh: the same address, asked with `?live=`, answers that part alone.

The browser sends along what it shows, condensed; as long as that is still right the answer is empty, so that nothing on
the page moves, no selection is lost, and what was folded open stays open.
"""

import hashlib
from collections.abc import Callable
from typing import Any, Final

from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.template.response import TemplateResponse

EVERY_S: Final = 4
ASKED: Final = "live"


def page(
    request: HttpRequest,
    template: str,
    part: str,
    facts: dict[str, Any],
    frame: Callable[[], dict[str, Any]],
) -> HttpResponse:
    """Render `template`, or only its `part` if that is asked for; `frame` makes what surrounds the page."""
    body = render_to_string(part, facts, request)
    seen = hashlib.sha256(body.encode()).hexdigest()[:16]
    context = {"body": body, "seen": seen, "every": EVERY_S, "path": request.path}
    if ASKED not in request.GET:
        return TemplateResponse(request, template, {**frame(), **facts, **context})
    if request.GET[ASKED] == seen:
        return HttpResponse(status=204)
    return TemplateResponse(request, "console/live.html", context)
