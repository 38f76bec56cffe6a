"""What can be done with keys, tokens and sign-in links. A secret is returned once, when it is made."""

import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import ClassVar, Final

from django.contrib.auth import get_user_model
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.db import transaction
from django.db.models import Q

from apps.accounts import queries, secrets
from apps.accounts.models import ApiTokenRow, InferenceKeyRow, SignInLinkRow
from apps.accounts.signals import keys_changed
from apps.audit import actions as audit
from apps.audit.actions import SYSTEM, Actor

LINK_LIVES: Final = timedelta(minutes=15)
# So long a link that was used or has expired can still be told from one that never was.
LINK_KEPT: Final = timedelta(days=1)
# A write with every request would be a high price for knowing the last use to the second.
LAST_USED_WITHIN: Final = timedelta(minutes=1)
OPERATOR: Final = "operator"


@dataclass(frozen=True, slots=True)
class NameTaken:
    """There is one of that name already, perhaps revoked: names stay, since the audit speaks of them."""

    code: ClassVar[str] = "account.name-taken"
    name: str

    def text(self) -> str:
        """Say it in one line."""
        return f"there is one named {self.name} already"

    def cure(self) -> str:
        """Say what an operator can do."""
        return "choose another name"


# --- inference keys -----------------------------------------------------------------------------------------------


@transaction.atomic
def create_inference_key(
    name: str, *, models: Sequence[str] | None = None, expires_at: datetime | None = None, by: Actor, now: datetime
) -> tuple[InferenceKeyRow, str] | NameTaken:
    """Make a key for the router; returns its row and the key itself, which nobody can read again."""
    secret = secrets.new_key()
    row, made = InferenceKeyRow.objects.get_or_create(
        name=name,
        defaults={
            "prefix": secret.prefix,
            "sha256": secret.sha256,
            "allowed_models": None if models is None else list(models),
            "created_at": now,
            "expires_at": expires_at,
        },
    )
    if not made:
        return NameTaken(name)
    audit.record(by, "key.create", "inference-key", name, now, after=queries.describe_key(row))
    keys_changed.send(InferenceKeyRow, now=now)
    return row, secret.text


@transaction.atomic
def revoke_inference_key(name: str, *, by: Actor, now: datetime, reason: str = "") -> bool:
    """Let nobody in by this key from now on; False when there is no such key, or it is revoked already."""
    if not InferenceKeyRow.objects.filter(name=name, revoked_at__isnull=True).update(revoked_at=now):
        return False
    audit.record(by, "key.revoke", "inference-key", name, now, reason=reason)
    keys_changed.send(InferenceKeyRow, now=now)
    return True


# --- tokens of the management API ---------------------------------------------------------------------------------


@transaction.atomic
def create_api_token(
    name: str, *, user: User, read_only: bool = False, expires_at: datetime | None = None, by: Actor, now: datetime
) -> tuple[ApiTokenRow, str] | NameTaken:
    """Make a token that may do what its owner may; returns its row and the token, which nobody can read again."""
    secret = secrets.new_token()
    row, made = ApiTokenRow.objects.get_or_create(
        name=name,
        defaults={
            "prefix": secret.prefix,
            "sha256": secret.sha256,
            "user": user,
            "read_only": read_only,
            "created_at": now,
            "expires_at": expires_at,
        },
    )
    if not made:
        return NameTaken(name)
    audit.record(by, "token.create", "api-token", name, now, after=queries.describe_token(row))
    return row, secret.text


@transaction.atomic
def revoke_api_token(name: str, *, by: Actor, now: datetime, reason: str = "") -> bool:
    """Take a token back; False when there is no such token, or it is revoked already."""
    if not ApiTokenRow.objects.filter(name=name, revoked_at__isnull=True).update(revoked_at=now):
        return False
    audit.record(by, "token.revoke", "api-token", name, now, reason=reason)
    return True


def check_api_token(secret: str, *, now: datetime) -> ApiTokenRow | None:
    """Return the token's row with its owner if it is valid now, and remember that it was used."""
    prefix = secrets.prefix_of_token(secret)
    if prefix is None:
        return None
    told = secrets.hashed(secret)
    candidates = ApiTokenRow.objects.select_related("user").filter(prefix=prefix)
    row = next((row for row in candidates if hmac.compare_digest(row.sha256, told)), None)
    if row is None or queries.state_word(row, now) != "valid" or not row.user.is_active:
        return None
    long_ago = Q(last_used_at__isnull=True) | Q(last_used_at__lt=now - LAST_USED_WITHIN)
    ApiTokenRow.objects.filter(long_ago, pk=row.pk).update(last_used_at=now)
    return row


# --- people -------------------------------------------------------------------------------------------------------


@transaction.atomic
def sign_in_link(user: User, *, now: datetime) -> str:
    """Make what signs this person in once, within a quarter of an hour; those of days ago are dropped."""
    secret = secrets.new_link()
    SignInLinkRow.objects.filter(expires_at__lte=now - LINK_KEPT).delete()
    SignInLinkRow.objects.create(sha256=secret.sha256, user=user, expires_at=now + LINK_LIVES)
    return secret.text


@transaction.atomic
def use_sign_in_link(secret: str, *, now: datetime, address: str = "") -> User | None:
    """Return who may be signed in by this link; None when it was used, has expired, or never was."""
    link = SignInLinkRow.objects.select_related("user").filter(sha256=secrets.hashed(secret)).first()
    if link is None or not link.user.is_active:
        return None
    if not SignInLinkRow.objects.filter(pk=link.pk, used_at__isnull=True, expires_at__gt=now).update(used_at=now):
        return None
    name = link.user.get_username()
    audit.record(Actor(name, "console", address), "user.sign-in-by-link", "user", name, now)
    return link.user


@transaction.atomic
def ensure_operator(*, now: datetime) -> User:
    """Return the first superuser; where there is none, make one who can sign in by link alone."""
    users = get_user_model().objects
    present = users.filter(is_superuser=True, is_active=True).order_by("pk").first()
    if present is not None:
        return present
    user: User = users.create_superuser(OPERATOR, password=None)
    audit.record(SYSTEM, "user.create", "user", OPERATOR, now, after={"superuser": True})
    return user


def tidy(now: datetime) -> dict[str, int]:
    """Delete the console's sessions that are over; return how many."""
    sessions, _ = Session.objects.filter(expire_date__lt=now).delete()
    return {"sessions": sessions}
