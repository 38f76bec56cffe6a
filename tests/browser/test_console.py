"""The console in a real browser: adding a model with a mistake, correcting it, and reading why it waits."""

import os
import shutil

import pytest
from django.db import connections

CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def page(live_server, monkeypatch):
    """A page of a browser that reaches nobody but the console; whatever else it asks for fails the test."""
    if not os.access(CHROMIUM, os.X_OK):
        pytest.skip(f"there is no {CHROMIUM}: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    # Playwright's own loop runs in this thread while Django is asked for rows.
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
    strangers, errors = [], []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, headless=True, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        page = browser.new_page()
        page.set_default_timeout(20_000)
        page.on(
            "request", lambda asked: strangers.append(asked.url) if is_foreign(asked.url, live_server.url) else None
        )
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda said: errors.append(said.text) if is_error(said) else None)
        yield page
        browser.close()
        # In the context of Playwright's loop Django has had another connection than outside of it.
        connections.close_all()
    assert not strangers
    assert not errors


def is_error(said):
    """What the browser complains of: a script, the policy, a file that is missing; not the outage of a test."""
    return said.type == "error" and "502" not in said.text


def is_foreign(url, own):
    return not url.startswith((own, "data:", "blob:"))


@pytest.fixture
def signed_in(page, live_server, person):
    """The same page, after a one-time link was followed and meant."""
    from datetime import UTC, datetime

    from apps.accounts import actions

    secret = actions.sign_in_link(person("anna", "*"), now=datetime.now(UTC))
    page.goto(f"{live_server.url}/sign-in/{secret}/")
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url("**/admin/")
    return page


def test_a_model_is_added_corrected_and_explained(signed_in, ticking):
    from apps.catalog import queries
    from apps.replicas import reconcile
    from apps.replicas.ids import new_id
    from tests.apps.console import fleet

    fleet.joined("laptop")
    page = signed_in
    page.locator("nav a", has_text="Models").first.click()
    page.locator('a[href="/admin/catalog/modelrow/add/"]').first.click()
    page.fill("[name=name]", "big model")
    page.fill("[name=source]", "file:///weights/big.gguf")
    page.fill("[name=profiles-0-device_classes]", "h100-80g")
    page.get_by_role("button", name="Save", exact=True).click()

    at_the_name = page.locator(".errors", has=page.locator("[name=name]"))
    at_the_name.get_by_text("cannot be served as a name").wait_for()
    assert page.input_value("[name=source]") == "file:///weights/big.gguf"
    assert queries.find("big model") is None

    page.fill("[name=name]", "big-model")
    page.get_by_role("button", name="What would this do?").click()
    page.get_by_text("big-model/1 would not start").wait_for()
    assert queries.find("big-model") is None
    page.get_by_role("button", name="Save", exact=True).click()
    page.wait_for_url("**/admin/catalog/modelrow/big-model/change/")

    # The page is open when the pass runs, and says by itself what it found.
    reconcile.run(by=fleet.ANNA, clock=clock, ids=new_id)
    page.get_by_role("heading", name="Why is it not running?").wait_for()
    page.get_by_text("wants class h100-80g, the node has cpu").first.wait_for()
    assert "ago" in page.locator("time.c-time").first.inner_text()


def clock():
    from datetime import UTC, datetime

    return datetime.now(UTC)


def test_a_node_is_cordoned_by_keyboard_alone(signed_in, live_server, redis_url):
    from apps.nodes.models import NodeRow
    from tests.apps.console import fleet

    fleet.joined("gpu01")
    page = signed_in
    page.goto(f"{live_server.url}/admin/nodes/noderow/gpu01/change/")
    page.locator("summary", has_text="Cordon").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.type("new power supply")
    page.keyboard.press("Enter")
    page.get_by_text("takes nothing new").wait_for()
    assert NodeRow.objects.get().cordoned


def test_a_page_says_that_it_is_not_kept_fresh(signed_in, ticking):
    page = signed_in
    notice = page.get_by_text("This page is not being kept fresh")
    assert not notice.is_visible()
    page.route("**/admin/?live=*", lambda route: route.fulfill(status=502))
    notice.wait_for(state="visible")
    page.unroute("**/admin/?live=*")
    notice.wait_for(state="hidden")


def test_somebody_signed_out_meanwhile_is_led_to_signing_in(signed_in, ticking):
    page = signed_in
    page.context.clear_cookies()
    page.wait_for_url("**/admin/login/**")
