"""Keys, tokens and sign-in links: shown once, kept as hashes, good until they end."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth.models import User
from django.db import connection

from apps.accounts import actions, secrets
from apps.accounts.models import ApiTokenRow, InferenceKeyRow, SignInLinkRow
from apps.accounts.secrets import hashed
from apps.accounts.signals import keys_changed
from apps.audit.actions import Actor
from apps.audit.models import AuditRow

pytestmark = pytest.mark.django_db

ANNA = Actor("anna", "cli")
NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.fixture
def told():
    heard = []

    def listen(now, **kwargs):
        heard.append(now)

    keys_changed.connect(listen)
    yield heard
    keys_changed.disconnect(listen)


@pytest.fixture
def anna():
    return User.objects.create_user("anna")


def a_token(user, **told):
    made = actions.create_api_token("ci", user=user, by=ANNA, now=NOON, **told)
    assert isinstance(made, tuple)
    return made


def everything_kept():
    """All that is in the tables of this app and of the audit, as one text."""
    rows = [*InferenceKeyRow.objects.values(), *ApiTokenRow.objects.values(), *SignInLinkRow.objects.values()]
    return repr([*rows, *AuditRow.objects.values()])


# --- keys


def test_a_key_is_returned_once_and_kept_as_its_hash(told):
    made = actions.create_inference_key("web", models=["smollm2"], expires_at=NOON + HOUR, by=ANNA, now=NOON)
    assert isinstance(made, tuple)
    row, secret = made
    assert (row.sha256, row.allowed_models, row.expires_at) == (hashed(secret), ["smollm2"], NOON + HOUR)
    assert secret not in everything_kept()
    assert told == [NOON]
    entry = AuditRow.objects.get()
    assert (entry.verb, entry.object_id) == ("key.create", "web")
    assert entry.after
    assert entry.after["models"] == ["smollm2"]
    assert row.sha256 not in repr(entry.after)


def test_a_key_may_be_good_for_no_model_at_all():
    made = actions.create_inference_key("none", models=[], by=ANNA, now=NOON)
    assert isinstance(made, tuple)
    assert made[0].allowed_models == []


def test_a_name_is_used_once(told):
    actions.create_inference_key("web", by=ANNA, now=NOON)
    no = actions.create_inference_key("web", by=ANNA, now=NOON)
    assert isinstance(no, actions.NameTaken)
    assert "web" in no.text()
    assert no.cure()
    assert (InferenceKeyRow.objects.count(), len(told)) == (1, 1)


def test_a_key_is_revoked_once(told):
    actions.create_inference_key("web", by=ANNA, now=NOON)
    assert actions.revoke_inference_key("web", by=ANNA, now=NOON + HOUR, reason="leaked")
    assert not actions.revoke_inference_key("web", by=ANNA, now=NOON + 2 * HOUR)
    assert not actions.revoke_inference_key("nobody", by=ANNA, now=NOON)
    assert InferenceKeyRow.objects.get().revoked_at == NOON + HOUR
    assert told == [NOON, NOON + HOUR]
    assert list(AuditRow.objects.values_list("verb", "reason")) == [("key.revoke", "leaked"), ("key.create", "")]


# --- tokens


def test_a_token_is_good_for_its_owner(anna):
    row, secret = a_token(anna)
    found = actions.check_api_token(secret, now=NOON)
    assert found is not None
    assert (found.pk, found.user) == (row.pk, anna)
    assert secret not in everything_kept()


def test_its_last_use_is_kept_to_the_minute(anna):
    row, secret = a_token(anna)
    for seconds in (0, 30, 59, 61):
        actions.check_api_token(secret, now=NOON + timedelta(seconds=seconds))
    row.refresh_from_db()
    assert row.last_used_at == NOON + timedelta(seconds=61)


def test_a_revoked_token_is_not_good(anna):
    _, secret = a_token(anna)
    assert actions.revoke_api_token("ci", by=ANNA, now=NOON)
    assert actions.check_api_token(secret, now=NOON) is None
    assert not actions.revoke_api_token("ci", by=ANNA, now=NOON)


def test_an_expired_token_is_not_good(anna):
    _, secret = a_token(anna, expires_at=NOON + HOUR)
    assert actions.check_api_token(secret, now=NOON + HOUR - timedelta(seconds=1))
    assert actions.check_api_token(secret, now=NOON + HOUR) is None


def test_the_token_of_somebody_who_may_not_sign_in_is_not_good(anna):
    _, secret = a_token(anna)
    User.objects.update(is_active=False)
    assert actions.check_api_token(secret, now=NOON) is None


def test_a_token_of_the_same_id_and_another_secret_is_not_good(anna):
    row, _ = a_token(anna)
    other = secrets._checked(f"{row.prefix}_" + "x" * 32)
    assert actions.check_api_token(other, now=NOON) is None


@pytest.mark.parametrize("text", ["", "llmgw_", "x" * 10_000, "llmgw_a_b", "\0", "llmgw-" + "a" * 38])
def test_any_other_text_is_not_good(anna, text):
    a_token(anna)
    assert actions.check_api_token(text, now=NOON) is None


def test_a_key_is_no_token():
    made = actions.create_inference_key("web", by=ANNA, now=NOON)
    assert isinstance(made, tuple)
    assert actions.check_api_token(made[1], now=NOON) is None


# --- sign-in links


def test_a_link_signs_in_once_and_the_audit_says_from_where(anna):
    secret = actions.sign_in_link(anna, now=NOON)
    assert secret not in everything_kept()
    assert actions.use_sign_in_link(secret, now=NOON, address="127.0.0.9") == anna
    assert actions.use_sign_in_link(secret, now=NOON) is None
    entry = AuditRow.objects.get()
    assert (entry.actor, entry.door, entry.address) == ("anna", "console", "127.0.0.9")


def test_a_link_is_good_for_a_quarter_of_an_hour(anna):
    secret = actions.sign_in_link(anna, now=NOON)
    assert actions.use_sign_in_link(secret, now=NOON + timedelta(minutes=15)) is None
    assert actions.use_sign_in_link(secret, now=NOON + timedelta(minutes=14)) == anna


def test_old_links_are_dropped_when_a_new_one_is_made(anna):
    actions.sign_in_link(anna, now=NOON)
    actions.sign_in_link(anna, now=NOON + timedelta(hours=20))
    actions.sign_in_link(anna, now=NOON + timedelta(hours=30))
    assert SignInLinkRow.objects.count() == 2


def test_nobody_signs_in_by_a_made_up_link_or_when_switched_off(anna):
    assert actions.use_sign_in_link("made up", now=NOON) is None
    secret = actions.sign_in_link(anna, now=NOON)
    User.objects.update(is_active=False)
    assert actions.use_sign_in_link(secret, now=NOON) is None


@pytest.mark.django_db(transaction=True)
def test_of_many_who_use_a_link_at_once_one_is_let_in(anna):
    secret = actions.sign_in_link(anna, now=NOON)

    def use(_):
        try:
            return actions.use_sign_in_link(secret, now=NOON)
        finally:
            connection.close()

    with ThreadPoolExecutor(6) as pool:
        done = list(pool.map(use, range(6)))
    assert done.count(anna) == 1
    assert done.count(None) == 5


# --- the operator


def test_there_is_one_operator_who_signs_in_by_link_alone():
    first = actions.ensure_operator(now=NOON)
    assert (first.get_username(), first.is_superuser, first.has_usable_password()) == ("operator", True, False)
    assert actions.ensure_operator(now=NOON) == first
    assert User.objects.count() == 1


def test_a_superuser_that_is_there_is_the_operator():
    root = User.objects.create_superuser("root")
    assert actions.ensure_operator(now=NOON) == root
