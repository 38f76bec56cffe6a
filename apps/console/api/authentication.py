"""Who may ask: a token of the management API, or somebody who is signed in to the console."""

from typing import Any, Final

from django.contrib.auth.models import AnonymousUser
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed, NotAuthenticated
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request

from apps.accounts import actions, secrets
from apps.accounts.models import ApiTokenRow
from apps.audit.actions import Actor
from apps.console.api.problems import Stop
from apps.console.request import address, clock

CHALLENGE: Final = 'Bearer realm="llmgw"'


class BearerToken(BaseAuthentication):
    """`Authorization: Bearer llmgw_…`."""

    def authenticate(self, request: Request) -> tuple[Any, ApiTokenRow] | None:
        """Return the token's owner and the token; None when the header is not ours to read."""
        kind, _, secret = request.META.get("HTTP_AUTHORIZATION", "").partition(" ")
        if kind.lower() != "bearer":
            return None
        secret = secret.strip()
        if secret.startswith(secrets.KEY_BEGINS):
            raise AuthenticationFailed(
                "this is an inference key, good for the router's /v1 alone; the management API takes API tokens, which "
                f"begin with {secrets.TOKEN_BEGINS}: make one in the console or by `manage.py token create`"
            )
        row = actions.check_api_token(secret, now=clock())
        if row is None:
            raise AuthenticationFailed("this token is unknown, revoked or expired, or was cut off when it was copied")
        return row.user, row

    def authenticate_header(self, request: Request) -> str:
        """Say how one gets in."""
        return CHALLENGE


class MayAsk(BasePermission):
    """Whoever is known may ask; a token that may only read changes nothing."""

    def has_permission(self, request: Request, view: Any) -> bool:
        """Refuse what no permission of Django's tells."""
        if isinstance(request.user, AnonymousUser) or not request.user.is_authenticated:
            raise NotAuthenticated(f"send `Authorization: Bearer {secrets.TOKEN_BEGINS}…`, or sign in to the console")
        token = request.auth
        if isinstance(token, ApiTokenRow) and token.read_only and request.method not in SAFE_METHODS:
            raise Stop(403, "token.read-only", f"the token {token.name} may only read")
        return True


def need(request: Request, permission: str) -> None:
    """Stop unless whoever asks has this permission."""
    if permission and not request.user.has_perm(permission):
        raise Stop(403, "auth.denied", f"{request.user.get_username()} lacks the permission {permission}")


def asker(request: Request) -> Actor:
    """Return who is to stand in the audit."""
    name = str(request.user.get_username())
    token = request.auth
    told = f"{name} (token {token.name})" if isinstance(token, ApiTokenRow) else name
    return Actor(told, "api", address(request))
