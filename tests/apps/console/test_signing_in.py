"""Signing in: links that work once and only when somebody means it, passwords, and what strangers may see."""

from datetime import UTC, datetime, timedelta

import pytest
from django.core.management import CommandError, call_command

from apps.accounts import actions
from apps.accounts.models import SignInLinkRow
from apps.audit.models import AuditRow
from tests.apps.console import fleet

pytestmark = pytest.mark.django_db


@pytest.fixture
def link(person):
    secret = actions.sign_in_link(person("anna", "*"), now=datetime.now(UTC))
    return f"/sign-in/{secret}/"


def test_looking_at_a_link_does_not_use_it_up(client, link):
    for method in (client.get, client.head, client.get):
        assert method(link).status_code == 200
    assert "_auth_user_id" not in client.session
    assert SignInLinkRow.objects.get().used_at is None


def test_a_link_signs_in_once(client, link):
    response = client.post(link)
    assert (response.status_code, response.url) == (302, "/admin/")
    assert client.get("/admin/").status_code == 200
    assert AuditRow.objects.get(verb="user.sign-in-by-link").address == "127.0.0.1"
    client.logout()
    again = client.post(link)
    assert again.status_code == 410
    assert "has been used already" in again.content.decode()
    assert "_auth_user_id" not in client.session


def test_an_expired_link_says_so(client, link):
    SignInLinkRow.objects.update(expires_at=datetime.now(UTC) - timedelta(seconds=1))
    for response in (client.get(link), client.post(link)):
        assert response.status_code == 410
        assert "has expired" in response.content.decode()


def test_an_unknown_link_says_so(client):
    for response in (client.get("/sign-in/nonsense/"), client.post("/sign-in/nonsense/")):
        assert response.status_code == 410
        assert "There is no such link" in response.content.decode()


def test_a_link_of_somebody_who_left_says_so(client, link, django_user_model):
    django_user_model.objects.update(is_active=False)
    response = client.post(link)
    assert response.status_code == 410
    assert "may not sign in any more" in response.content.decode()


def test_a_link_wants_a_token_against_forged_requests(link):
    from django.test import Client

    assert Client(enforce_csrf_checks=True).post(link).status_code == 403


def test_the_command_prints_a_link_that_works(client, capsys):
    call_command("signin", url="http://console:8000/")
    url = capsys.readouterr().out.strip()
    assert url.startswith("http://console:8000/sign-in/")
    assert client.post(url.removeprefix("http://console:8000")).status_code == 302
    with pytest.raises(CommandError, match="no active person bob") as no:
        call_command("signin", "bob")
    assert no.value.returncode == 3


def test_the_link_leads_to_where_up_has_put_the_console(db, settings, tmp_path, capsys):
    settings.STATE_DIR = tmp_path
    call_command("signin")
    assert capsys.readouterr().out.startswith("http://127.0.0.1:8000/sign-in/")
    (tmp_path / "console_url").write_text("http://127.0.0.1:8310\n")
    call_command("signin")
    assert capsys.readouterr().out.startswith("http://127.0.0.1:8310/sign-in/")


def test_a_password_signs_in_and_signing_out_ends_it(client, person):
    user = person("anna", "*")
    user.set_password("secret")
    user.save()
    page = client.post("/admin/login/", {"username": "anna", "password": "secret"})
    assert (page.status_code, page.url) == (302, "/admin/")
    client.post("/admin/logout/")
    assert client.get("/admin/").status_code == 302


def test_the_address_alone_leads_to_the_first_page(client):
    assert client.get("/").url == "/admin/"


STRANGERS = ["/healthz", "/admin/login/", "/static/console/console.css"]
CLOSED = [
    "/admin/",
    "/admin/?live=x",
    "/admin/nodes/noderow/",
    "/admin/nodes/noderow/gpu01/change/",
    "/admin/search/?s=x",
    "/admin/catalog/modelrow/add/",
    "/admin/catalog/modelrow/smollm2/edit/",
    "/admin/audit/auditrow/",
    "/api/v1/",
]


@pytest.mark.parametrize("url", STRANGERS)
def test_strangers_see_this_and_no_facts(client, url):
    response = client.get(url)
    response.close()  # of a file
    assert response.status_code == 200


def test_health_tells_nothing_and_asks_nobody(client, no_redis, django_assert_num_queries):
    with django_assert_num_queries(0):
        assert client.get("/healthz").content == b"ok\n"


@pytest.mark.parametrize("url", CLOSED)
def test_strangers_are_sent_to_sign_in(client, url):
    fleet.joined("gpu01")
    fleet.declared("smollm2")
    response = client.get(url)
    assert response.status_code == 302
    assert response.url.startswith("/admin/login/")


@pytest.mark.parametrize("path", ["models", "nodes", "version", "whoami", "openapi.json", "audit"])
def test_strangers_get_no_answer_from_the_api(client, path):
    response = client.get(f"/api/v1/{path}")
    assert response.status_code == 401
    assert response.json()["code"] == "auth.missing"
    assert response.headers["WWW-Authenticate"].startswith("Bearer")
