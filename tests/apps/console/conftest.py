"""People who look at the console and ask the API.

A conftest of a folder named on the command line is read before the settings are in place: apps are imported late.
"""

import pytest


@pytest.fixture
def person(db):
    """`person("vera", "nodes.view_noderow")`: a member of staff with just these permissions; `*` gives all."""
    from django.contrib.auth.models import Permission, User

    def make(name, *permissions, staff=True):
        user = User.objects.create_user(name, is_staff=staff, is_superuser="*" in permissions)
        for one in permissions:
            if one != "*":
                app, _, code = one.partition(".")
                user.user_permissions.add(Permission.objects.get(content_type__app_label=app, codename=code))
        return user

    return make


@pytest.fixture
def console(client, person):
    """A browser in which the operator Anna is signed in."""
    client.force_login(person("anna", "*"))
    return client


@pytest.fixture
def as_person(client, person):
    """`as_person("nodes.view_noderow")`: a browser in which somebody with these permissions is signed in."""

    def sign_in(*permissions):
        client.force_login(person("vera", *permissions))
        return client

    return sign_in


@pytest.fixture
def no_redis(settings):
    """Nobody listens where Redis should be."""
    from tests.servers import free_port

    settings.REDIS_URL = f"redis://127.0.0.1:{free_port()}/0"


@pytest.fixture
def ticking(redis_url):
    """Redis has a tick that was sent just now."""
    from datetime import UTC, datetime

    from apps.nodes.heartbeats import SENT_KEY
    from apps.nodes.redis import client

    client().zadd(SENT_KEY, {"1": datetime.now(UTC).timestamp()})


@pytest.fixture
def api(client, person):
    """`api("put", "models/x", {...})`: the answer of the API to a token of Anna's."""
    return caller(client, person("anna", "*"))


@pytest.fixture
def api_of(client, person):
    """`api_of("nodes.view_noderow")`: the same for somebody with just these permissions."""

    def make(*permissions, read_only=False):
        return caller(client, person("vera", *permissions), read_only=read_only)

    return make


def caller(client, user, *, read_only=False):
    """A function that asks the API as this person."""
    import json

    from apps.accounts import actions
    from tests.apps.console.fleet import ANNA, NOON

    made = actions.create_api_token(f"of-{user}", user=user, read_only=read_only, by=ANNA, now=NOON)
    secret = made[1] if isinstance(made, tuple) else ""

    def ask(method, path, body=None, *, raw=None, kind="application/json", **headers):
        data = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
        sent = {"Authorization": f"Bearer {secret}", **{key.replace("_", "-"): value for key, value in headers.items()}}
        return client.generic(method.upper(), f"/api/v1/{path}", data, content_type=kind, headers=sent)

    return ask
