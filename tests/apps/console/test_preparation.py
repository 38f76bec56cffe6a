"""What `up` does to the database: it migrates what is missing, and makes the rest once."""

import threading

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder

from apps.accounts import actions as accounts
from apps.accounts.models import InferenceKeyRow
from apps.catalog import actions as catalog
from apps.catalog.models import ModelRow
from apps.console.management import preparation
from apps.console.management.following import Follower
from llmgw.local import demo
from llmgw.local.state import Refused, StateFolder

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def state(tmp_path, redis_url):
    state = StateFolder(tmp_path / "state")
    assert state.prepare() is None
    return state


@pytest.fixture
def recorded():
    """Change Django's record of migrations, which no test's end takes back."""
    recorder = MigrationRecorder(connection)
    yield recorder
    recorder.migration_qs.filter(name="9999_from_the_future").delete()


def test_nothing_is_missing_where_all_was_migrated():
    assert preparation.missing_migrations() == set()
    assert preparation.prepare_database() == 0


def test_what_the_record_lacks_is_missing(recorded):
    recorded.record_unapplied("gateway", "0001_initial")
    try:
        assert preparation.missing_migrations() == {("gateway", "0001_initial")}
    finally:
        recorded.record_applied("gateway", "0001_initial")


def test_a_newer_database_is_refused_and_others_apps_are_their_own_business(recorded):
    recorded.record_applied("somebody_elses", "9999_from_the_future")
    assert preparation.missing_migrations() == set()
    recorded.record_applied("catalog", "9999_from_the_future")
    refused = preparation.prepare_database()
    assert isinstance(refused, Refused)
    assert refused.code == "database.newer"
    assert "catalog.9999_from_the_future" in refused.what


def test_one_key_belongs_to_a_state_folder(state):
    key = preparation.inference_key(state)
    assert preparation.inference_key(state) == key
    row = InferenceKeyRow.objects.get()
    assert row.name == preparation.KEY
    assert (state.path / "demo_key").stat().st_mode & 0o777 == 0o600


def test_a_key_that_was_revoked_or_is_of_another_database_is_made_anew(state, tmp_path):
    key = preparation.inference_key(state)
    with preparation._own_connection() as now:
        accounts.revoke_inference_key(preparation.KEY, by=preparation.UP, now=now)
    other = preparation.inference_key(state)
    assert other != key
    assert preparation.inference_key(state) == other
    state.write("demo_key", "llmgw-of-another-database")
    InferenceKeyRow.objects.exclude(name=preparation.KEY).delete()
    assert preparation.inference_key(state) not in {key, other}


def test_the_link_signs_an_operator_in():
    path = preparation.sign_in_link()
    assert path.startswith("/sign-in/")
    with preparation._own_connection() as now:
        user = accounts.use_sign_in_link(path.split("/")[2], now=now)
    assert user == User.objects.get(is_superuser=True)


def test_the_demo_is_declared_once_and_then_the_operators(redis_url):
    assert preparation.declare_demo()
    row = ModelRow.objects.get()
    assert (row.name, row.source_size, row.replicas) == (demo.MODEL, 98362432, 1)
    assert not preparation.declare_demo()
    with preparation._own_connection() as now:
        catalog.retire(demo.MODEL, by=preparation.UP, now=now)
    assert not preparation.declare_demo(), "what was retired stays so"


def test_following_ends_when_it_is_told_to(redis_url):
    preparation.declare_demo()
    stop = threading.Event()
    stop.set()
    assert not preparation.follow(demo.MODEL, 0.0, print, lambda: True, stop)


def test_a_place_that_is_missing_is_told_once(redis_url):
    from apps.replicas.models import ReplicaRow

    preparation.declare_demo()
    with preparation._own_connection() as now:
        no = {"node": None, "text": "no node has joined"}
        ReplicaRow.objects.create(
            model=ModelRow.objects.get(), ordinal=1, state_since=now, created_at=now, refusals=[no]
        )
    said = []
    follower = Follower(demo.MODEL, now, lambda text, **_: said.append(text), lambda: False)
    follower._tell_refusals()
    follower._tell_refusals()
    assert said == ["smollm2/1 waits for a place: fleet: no node has joined"]
