"""Make a link that signs somebody in to the console, once."""

from argparse import ArgumentParser
from datetime import UTC, datetime
from typing import Any, Final

from django.conf import settings
from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError
from django.urls import reverse

from apps.accounts import actions
from llmgw.local.state import CONSOLE_URL, StateFolder

DEFAULT: Final = "http://127.0.0.1:8000"
"""Where nothing in the state folder says where `up` has put the console."""


class Command(BaseCommand):
    """`manage.py signin [USER] [--url http://…]`."""

    help = (
        "Print a link that signs a person in to the console, once, within a quarter of an hour. Without USER it is the "
        "first superuser, who is made where there is none. Exit code 3: there is no such person."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("user", nargs="?", help="whom to sign in")
        parser.add_argument("--url", help=f"where the console is reached; where `up` has put it, or {DEFAULT}")

    def handle(self, *args: Any, user: str | None, url: str | None, **options: Any) -> None:
        now = datetime.now(UTC)
        person = actions.ensure_operator(now=now) if user is None else _find(user)
        secret = actions.sign_in_link(person, now=now)
        url = url or StateFolder(settings.STATE_DIR).read(CONSOLE_URL) or DEFAULT
        self.stdout.write(url.rstrip("/") + reverse("sign-in", args=[secret]))


def _find(name: str) -> User:
    person = User.objects.filter(username=name, is_active=True).first()
    if person is None:
        raise CommandError(f"there is no active person {name}", returncode=3)
    return person
