"""Make, list and revoke the keys by which clients use the router."""

from argparse import ArgumentParser
from datetime import UTC, datetime, timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from apps.accounts import actions, queries
from apps.accounts.actions import NameTaken
from apps.accounts.management import words
from apps.accounts.models import InferenceKeyRow
from apps.audit.management.keyboard import operator
from apps.audit.management.output import as_json, as_table


class Command(BaseCommand):
    """`manage.py key create NAME [--models a,b] [--days N]`, `key list [--json]`, `key revoke NAME [--reason WHY]`."""

    help = "Make, list and revoke the keys by which clients use the router. A key is printed once, when it is made."

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        create = verbs.add_parser("create", help="make a key and print it, once")
        create.add_argument("name", type=words.name)
        create.add_argument(
            "--models", type=words.models, help="served names that it may call, with commas between; all without it"
        )
        create.add_argument("--days", type=words.days, help="how long it is good for; for ever without it")
        revoke = verbs.add_parser("revoke", help="let nobody in by this key")
        revoke.add_argument("name")
        revoke.add_argument("--reason", default="", help="why, for the audit")
        listed = verbs.add_parser("list", help="print all keys, without their secrets")
        for verb in (create, revoke, listed):
            verb.add_argument("--json", action="store_true", help="print one JSON document")

    def handle(self, *args: Any, verb: str, json: bool, **options: Any) -> None:
        now = datetime.now(UTC)
        if verb == "create":
            self._create(options["name"], options["models"], options["days"], now, json=json)
        elif verb == "revoke":
            self.stdout.write(_revoke(options["name"], options["reason"], now, json=json))
        else:
            self.stdout.write(_list(now, json=json))

    def _create(self, name: str, models: list[str] | None, days: int | None, now: datetime, *, json: bool) -> None:
        made = actions.create_inference_key(
            name,
            models=models,
            expires_at=now + timedelta(days=days) if days else None,
            by=operator(),
            now=now,
        )
        if isinstance(made, NameTaken):
            raise CommandError(f"{made.code}: {made.text()} – {made.cure()}", returncode=3)
        row, secret = made
        if json:
            self.stdout.write(as_json({**queries.describe_key(row), "key": secret}))
            return
        self.stdout.write(secret)
        self.stderr.write("keep it: nobody can print it again")


def _revoke(name: str, reason: str, now: datetime, *, json: bool) -> str:
    if not actions.revoke_inference_key(name, by=operator(), now=now, reason=reason):
        raise CommandError(f"there is no valid key named {name}; `manage.py key list` names them", returncode=3)
    return as_json({"name": name, "state": "revoked"}) if json else f"{name} is revoked"


def _list(now: datetime, *, json: bool) -> str:
    rows = list(InferenceKeyRow.objects.all())
    if json:
        return as_json({"items": [queries.describe_key(row) for row in rows]})
    lines = [
        (
            row.name,
            f"{row.prefix}…",
            queries.state_word(row, now),
            ", ".join(row.allowed_models) if row.allowed_models is not None else "all",
            f"{row.expires_at:%Y-%m-%d}" if row.expires_at else "never",
        )
        for row in rows
    ]
    return as_table(("name", "begins", "state", "models", "expires"), lines)
