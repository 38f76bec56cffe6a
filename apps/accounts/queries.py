"""Keys and tokens as the doors show them: never the secret, never its hash."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from apps.accounts import secrets
from apps.accounts.models import ApiTokenRow, InferenceKeyRow, SignInLinkRow


def state_word(row: InferenceKeyRow | ApiTokenRow, now: datetime) -> str:
    """Return `valid`, `revoked` or `expired`."""
    if row.revoked_at is not None:
        return "revoked"
    return "expired" if row.expires_at is not None and row.expires_at <= now else "valid"


@dataclass(frozen=True, slots=True)
class SignInLink:
    """What may be told of a link before it is used."""

    user: str
    word: str
    """`valid`, `used`, `expired`, or `inactive` when its person may not sign in any more."""
    expires_at: datetime


def sign_in_link(secret: str, now: datetime) -> SignInLink | None:
    """Look at a link without using it up; None when there is none, or it was cleared away long ago."""
    row = SignInLinkRow.objects.select_related("user").filter(sha256=secrets.hashed(secret)).first()
    if row is None:
        return None
    word = "used" if row.used_at else "expired" if row.expires_at <= now else "valid"
    return SignInLink(row.user.get_username(), word if row.user.is_active else "inactive", row.expires_at)


def describe_key(row: InferenceKeyRow) -> dict[str, Any]:
    """Return the shape that the API and `--json` print."""
    return {"name": row.name, "prefix": row.prefix, "models": row.allowed_models, **_times(row)}


def describe_token(row: ApiTokenRow) -> dict[str, Any]:
    """Return the shape that the API and `--json` print; the owner costs a query unless fetched along."""
    return {
        "name": row.name,
        "prefix": row.prefix,
        "owner": row.user.get_username(),
        "read_only": row.read_only,
        **_times(row),
        "last_used_at": _iso(row.last_used_at),
    }


def _times(row: InferenceKeyRow | ApiTokenRow) -> dict[str, str | None]:
    return {
        "created_at": _iso(row.created_at),
        "expires_at": _iso(row.expires_at),
        "revoked_at": _iso(row.revoked_at),
    }


def _iso(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()
