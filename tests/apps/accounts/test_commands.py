"""`manage.py key` and `manage.py token`: the secret on standard output, once, and nothing else there."""

import json

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command

from apps.accounts.models import ApiTokenRow, InferenceKeyRow
from apps.accounts.secrets import hashed

pytestmark = pytest.mark.django_db


@pytest.fixture
def told(capsys):
    def run(*argv):
        call_command(*argv)
        return capsys.readouterr().out.strip()

    return run


def test_a_key_is_made_printed_listed_and_revoked(told):
    secret = told("key", "create", "web", "--models", "a,b", "--days", "30")
    row = InferenceKeyRow.objects.get()
    assert (row.sha256, row.allowed_models) == (hashed(secret), ["a", "b"])
    listed = told("key", "list")
    assert "web" in listed
    assert "a, b" in listed
    assert secret not in listed
    assert told("key", "revoke", "web", "--reason", "leaked") == "web is revoked"
    assert "revoked" in told("key", "list")


def test_keys_as_documents(told):
    made = json.loads(told("key", "create", "web", "--json"))
    assert hashed(made["key"]) == InferenceKeyRow.objects.get().sha256
    (item,) = json.loads(told("key", "list", "--json"))["items"]
    assert item == {key: value for key, value in made.items() if key != "key"}
    assert json.loads(told("key", "revoke", "web", "--json")) == {"name": "web", "state": "revoked"}


def test_a_token_is_the_operators_unless_somebody_is_named(told):
    secret = told("token", "create", "ci", "--read-only")
    row = ApiTokenRow.objects.select_related("user").get()
    assert (row.sha256, row.read_only, row.user.get_username()) == (hashed(secret), True, "operator")
    assert row.expires_at is not None
    assert (row.expires_at - row.created_at).days == 90
    User.objects.create_user("anna")
    told("token", "create", "hers", "--user", "anna", "--days", "0")
    hers = ApiTokenRow.objects.get(name="hers")
    assert (hers.user.get_username(), hers.expires_at) == ("anna", None)
    listed = told("token", "list")
    assert "read only" in listed
    assert "anna" in listed
    assert secret not in listed
    assert told("token", "revoke", "ci") == "ci is revoked"


def test_tokens_as_documents(told):
    made = json.loads(told("token", "create", "ci", "--json"))
    assert hashed(made["token"]) == ApiTokenRow.objects.get().sha256
    assert [item["name"] for item in json.loads(told("token", "list", "--json"))["items"]] == ["ci"]
    assert json.loads(told("token", "revoke", "ci", "--json"))["state"] == "revoked"


@pytest.mark.parametrize(
    "argv",
    [
        ("key", "create", "web"),
        ("key", "revoke", "nobody"),
        ("token", "create", "web"),
        ("token", "revoke", "nobody"),
        ("token", "create", "other", "--user", "nobody"),
    ],
)
def test_what_cannot_be_done_is_refused(argv, told):
    told("key", "create", "web")
    told("token", "create", "web")
    with pytest.raises(CommandError) as refused:
        call_command(*argv)
    assert refused.value.returncode == 3


def test_names_of_models_are_read_without_the_space_around_them(told):
    told("key", "create", "web", "--models", "a, b,")
    assert InferenceKeyRow.objects.get().allowed_models == ["a", "b"]


@pytest.mark.parametrize("kind", ["key", "token"])
@pytest.mark.parametrize("more", [("--days", "-1"), ("--days", "99999999999"), ("--days", "x")])
def test_a_secret_with_an_odd_end_is_not_made(kind, more):
    with pytest.raises(CommandError, match="0 for ever"):
        call_command(kind, "create", "web", *more)
    assert not InferenceKeyRow.objects.exists()
    assert not ApiTokenRow.objects.exists()


def test_an_empty_list_of_models_is_not_all_of_them():
    with pytest.raises(CommandError, match="no model is named"):
        call_command("key", "create", "web", "--models", "")
    assert not InferenceKeyRow.objects.exists()


@pytest.mark.parametrize("name", ["", " ", "x" * 101, "a\nb"])
@pytest.mark.parametrize("kind", ["key", "token"])
def test_a_secret_without_a_proper_name_is_not_made(kind, name):
    with pytest.raises(CommandError, match="printable"):
        call_command(kind, "create", name)
