"""What `up` does to the database: its tables, who may sign in, a key to try, and the demo's model.

Each is called from a thread of its own and lets its connection go.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import yaml
from django.apps import apps
from django.core.management import call_command
from django.db import connection, connections
from django.db.migrations.recorder import MigrationRecorder
from django.db.utils import Error

from apps.accounts import actions as accounts
from apps.accounts import queries, secrets
from apps.accounts.actions import NameTaken
from apps.accounts.models import InferenceKeyRow
from apps.audit.actions import Actor
from apps.catalog import actions as catalog
from apps.catalog.models import ModelRow
from apps.console.management.following import Follower
from llmgw import logs
from llmgw.core import validation
from llmgw.core.wanted import Model
from llmgw.local import demo
from llmgw.local.state import Refused, StateFolder

UP: Final = Actor("manage.py up", "cli")
KEY: Final = "demo"
_KEY_FILE: Final = "demo_key"
_OURS: Final = "apps."

Migrations = set[tuple[str, str]]


@contextmanager
def _own_connection() -> Iterator[datetime]:
    """Lend the moment; a thread that ends would leave its connection open."""
    try:
        yield datetime.now(UTC)
    finally:
        connections.close_all()


# --- tables -------------------------------------------------------------------------------------------------------


def prepare_database() -> int | Refused:
    """Bring the tables to where the code is; return how many migrations that took."""
    with _own_connection():
        missing = missing_migrations()
        if missing and not isinstance(missing, Refused):
            call_command("migrate", verbosity=0, interactive=False)
        return missing if isinstance(missing, Refused) else len(missing)


def missing_migrations() -> Migrations | Refused:
    """Compare the names of the migration files with the database's own record: loads none of them."""
    try:
        applied = set(MigrationRecorder(connection).applied_migrations())
    except Error as no:
        what = f"the database cannot be used: {logs.redacted(str(no)).strip()}"
        return Refused("database.unusable", what, "correct DATABASE_URL, or unset it to use SQLite in the state folder")
    present = {(app.label, file.stem) for app in apps.get_app_configs() for file in _files(app.path)}
    ours = {app.label for app in apps.get_app_configs() if app.name.startswith(_OURS)}
    newer = sorted(f"{label}.{name}" for label, name in applied - present if label in ours)
    if newer:
        what = f"the database was written by a newer llmgw (it has {', '.join(newer)[:200]})"
        return Refused("database.newer", what, "start it with that llmgw, or use another database or state folder")
    return present - applied


def _files(app: str) -> list[Path]:
    return sorted((Path(app) / "migrations").glob("[0-9]*.py"))


# --- who may come in ----------------------------------------------------------------------------------------------


def sign_in_link() -> str:
    """Return the path of a link that signs the operator in, once; where there is no operator, make one."""
    with _own_connection() as now:
        return f"/sign-in/{accounts.sign_in_link(accounts.ensure_operator(now=now), now=now)}/"


def inference_key(state: StateFolder) -> str:
    """Return the key that belongs to this state folder, made at the first start; it can be shown again."""
    with _own_connection() as now:
        kept = state.read(_KEY_FILE)
        if kept and _is_valid(kept, now):
            return kept
        made = _make_key(now)
        state.write(_KEY_FILE, made)
        return made


def _is_valid(key: str, now: datetime) -> bool:
    row = InferenceKeyRow.objects.filter(sha256=secrets.hashed(key)).first()
    return row is not None and queries.state_word(row, now) == "valid"


def _make_key(now: datetime) -> str:
    # Names are never given away again: the second key of a database carries the moment in its name.
    for name in (KEY, f"{KEY}-{now:%Y%m%d-%H%M%S}"):
        made = accounts.create_inference_key(name, by=UP, now=now)
        if not isinstance(made, NameTaken):
            return made[1]
    raise RuntimeError(f"two keys were asked for within the second of {now}")


# --- the demo -----------------------------------------------------------------------------------------------------


def declare_demo() -> bool:
    """Declare the demo's model, once: what an operator made of it since stays."""
    with _own_connection() as now:
        if ModelRow.objects.filter(name=demo.MODEL).exists():
            return False
        document = yaml.safe_load(demo.CATALOG.read_text("utf-8"))
        models = [each for each in validation.catalog_from_document(document) if isinstance(each, Model)]
        catalog.declare_all(models, by=UP, now=now, reason="up --demo")
        return True


def follow(
    model: str, since: float, say: Callable[..., None], answers: Callable[[], bool], stop: threading.Event
) -> bool:
    """Tell how a model has come up since that moment until it answers; False if we are to stop first."""
    with _own_connection():
        return Follower(model, datetime.fromtimestamp(since, UTC), say, answers).follow(stop)
