"""Pages outside of the admin: signing in by a link, the way to the first page, and whether the process is up."""

from typing import Final

from django.contrib import admin
from django.contrib.auth import login
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_variables
from django.views.decorators.http import require_http_methods, require_safe

from apps.accounts import actions, queries
from apps.console.request import address, clock

BACKEND: Final = "django.contrib.auth.backends.ModelBackend"


@require_safe
def home(request: HttpRequest) -> HttpResponse:
    """Lead to the console's first page."""
    return HttpResponseRedirect(reverse("admin:index"))


@require_safe
@never_cache
def healthz(request: HttpRequest) -> HttpResponse:
    """Say that this process answers; nothing else is asked or told."""
    return HttpResponse("ok\n", content_type="text/plain")


@never_cache
@sensitive_variables("secret")
@require_http_methods(["GET", "HEAD", "POST"])
def sign_in(request: HttpRequest, secret: str) -> HttpResponse:
    """Ask whether to sign in, and only then use the link up: a mail scanner that follows it does not."""
    now = clock()
    if request.method == "POST":
        user = actions.use_sign_in_link(secret, now=now, address=address(request))
        if user is not None:
            login(request, user, backend=BACKEND)
            return HttpResponseRedirect(reverse("admin:index"))
    found = queries.sign_in_link(secret, now)
    told = {"link": found, "word": found.word if found else "unknown"}
    usable = found is not None and found.word == "valid"
    return render(
        request, "console/sign_in.html", {**admin.site.each_context(request), **told}, status=200 if usable else 410
    )
