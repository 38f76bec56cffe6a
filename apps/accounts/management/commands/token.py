"""Make, list and revoke the tokens of the management API."""

from argparse import ArgumentParser
from datetime import UTC, datetime, timedelta
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError

from apps.accounts import actions, queries
from apps.accounts.actions import NameTaken
from apps.accounts.management import words
from apps.accounts.models import ApiTokenRow
from apps.audit.management.keyboard import operator
from apps.audit.management.output import as_json, as_table

DAYS = 90


class Command(BaseCommand):
    """`manage.py token create NAME [--user U] [--read-only] [--days N]`, `token list`, `token revoke NAME`."""

    help = "Make, list and revoke the tokens of the management API. A token is printed once, when it is made."

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        create = verbs.add_parser("create", help="make a token and print it, once")
        create.add_argument("name", type=words.name)
        create.add_argument("--user", help="whose it is: it may do what this person may; the operator without it")
        create.add_argument("--read-only", action="store_true", help="may look at everything and change nothing")
        create.add_argument(
            "--days", type=words.days, default=DAYS, help=f"how long it is good for ({DAYS}); 0 for ever"
        )
        revoke = verbs.add_parser("revoke", help="take a token back")
        revoke.add_argument("name")
        revoke.add_argument("--reason", default="", help="why, for the audit")
        listed = verbs.add_parser("list", help="print all tokens, without their secrets")
        for verb in (create, revoke, listed):
            verb.add_argument("--json", action="store_true", help="print one JSON document")

    def handle(self, *args: Any, verb: str, json: bool, **options: Any) -> None:
        now = datetime.now(UTC)
        if verb == "create":
            self._create(options, now, json=json)
        elif verb == "revoke":
            self.stdout.write(_revoke(options["name"], options["reason"], now, json=json))
        else:
            self.stdout.write(_list(now, json=json))

    def _create(self, options: dict[str, Any], now: datetime, *, json: bool) -> None:
        made = actions.create_api_token(
            options["name"],
            user=_user(options["user"], now),
            read_only=options["read_only"],
            expires_at=now + timedelta(days=options["days"]) if options["days"] else None,
            by=operator(),
            now=now,
        )
        if isinstance(made, NameTaken):
            raise CommandError(f"{made.code}: {made.text()} – {made.cure()}", returncode=3)
        row, secret = made
        if json:
            self.stdout.write(as_json({**queries.describe_token(row), "token": secret}))
            return
        self.stdout.write(secret)
        until = f"until {row.expires_at:%Y-%m-%d}" if row.expires_at else "for ever: give it an end with --days"
        self.stderr.write(f"keep it: nobody can print it again. It is good {until}")


def _user(name: str | None, now: datetime) -> User:
    if name is None:
        return actions.ensure_operator(now=now)
    user = User.objects.filter(username=name).first()
    if user is None:
        raise CommandError(f"there is no user {name}", returncode=3)
    return user


def _revoke(name: str, reason: str, now: datetime, *, json: bool) -> str:
    if not actions.revoke_api_token(name, by=operator(), now=now, reason=reason):
        raise CommandError(f"there is no valid token named {name}; `manage.py token list` names them", returncode=3)
    return as_json({"name": name, "state": "revoked"}) if json else f"{name} is revoked"


def _list(now: datetime, *, json: bool) -> str:
    rows = list(ApiTokenRow.objects.select_related("user"))
    if json:
        return as_json({"items": [queries.describe_token(row) for row in rows]})
    lines = [
        (
            row.name,
            f"{row.prefix}…",
            queries.state_word(row, now),
            row.user.get_username(),
            "read only" if row.read_only else "read and write",
            f"{row.expires_at:%Y-%m-%d}" if row.expires_at else "never",
            f"{row.last_used_at:%Y-%m-%d %H:%M}" if row.last_used_at else "never",
        )
        for row in rows
    ]
    return as_table(("name", "begins", "state", "owner", "may", "expires", "last used"), lines)
