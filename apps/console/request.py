"""Who asks, and when: the one place of the web doors that reads the clock."""

from datetime import UTC, datetime

from django.contrib.auth.models import AnonymousUser
from django.http import HttpRequest

from apps.audit.actions import Actor


def clock() -> datetime:
    """Return the present moment."""
    return datetime.now(UTC)  # noqa: TID251  # the doors' clock


def address(request: HttpRequest) -> str:
    """Return where the request came from: the other end of the connection, since a header may say anything."""
    return str(request.META.get("REMOTE_ADDR") or "")[:64]


def operator(request: HttpRequest, door: str = "console") -> Actor:
    """Return the person who is signed in."""
    user = request.user
    name = "anonymous" if isinstance(user, AnonymousUser) else user.get_username()
    return Actor(name, door, address(request))
