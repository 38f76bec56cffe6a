"""Who may look may look; every action asks for its own permission."""

import pytest
from django.urls import reverse

from apps.accounts.models import ApiTokenRow, InferenceKeyRow
from apps.audit.models import AuditRow
from apps.catalog import queries
from apps.console import look
from apps.nodes.models import NodeRow
from apps.replicas.models import ReplicaRow
from tests.apps.console import fleet
from tests.apps.console.test_forms import typed

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("redis_url")]

VIEWS = (
    "nodes.view_noderow",
    "catalog.view_modelrow",
    "replicas.view_replicarow",
    "replicas.view_passrow",
    "replicas.view_orderrow",
    "audit.view_auditrow",
    "accounts.view_inferencekeyrow",
    "accounts.view_apitokenrow",
)


def replica_named(name):
    model, _, ordinal = name.partition("/")
    return ReplicaRow.objects.get(model__name=model, ordinal=ordinal)


def test_a_viewer_sees_everything_and_changes_nothing(as_person):
    fleet.everything()
    viewer = as_person(*VIEWS)
    replica = replica_named("smollm2/1")
    for url in (look.node_url("gpu01"), look.model_url("smollm2"), look.replica_url(replica.pk)):
        page = viewer.get(url)
        assert page.status_code == 200
        assert "disabled" in page.content.decode()
        assert 'name="reason"' not in page.content.decode()
    before = AuditRow.objects.count()
    changing = [
        "/admin/nodes/noderow/gpu01/cordon/",
        "/admin/nodes/noderow/gpu03/uncordon/",
        "/admin/nodes/noderow/gpu05/forget/",
        f"/admin/replicas/replicarow/{replica.pk}/drain/",
        f"/admin/replicas/replicarow/{replica.pk}/restart/",
        "/admin/catalog/modelrow/add/",
        "/admin/catalog/modelrow/smollm2/edit/",
        "/admin/catalog/modelrow/smollm2/delete/",
        "/admin/accounts/inferencekeyrow/add/",
        "/admin/accounts/apitokenrow/add/",
    ]
    for url in changing:
        assert viewer.post(url, {**typed(), "reason": "why not"}).status_code == 403, url
    assert AuditRow.objects.count() == before


def test_somebody_without_permissions_sees_an_empty_console(as_person):
    fleet.everything()
    nobody = as_person()
    page = nobody.get("/admin/")
    assert page.status_code == 200
    for secret in ("gpu01", "smollm2", "llama-70b"):
        assert secret not in page.content.decode()
    for url in (look.node_url("gpu01"), look.model_url("smollm2"), "/admin/audit/auditrow/"):
        assert nobody.get(url).status_code == 403


def test_who_is_no_staff_is_let_in_nowhere(client, person):
    client.force_login(person("dev", "nodes.view_noderow", staff=False))
    assert client.get("/admin/").status_code == 302


def test_an_operator_cordons_with_a_reason(as_person):
    fleet.joined("gpu01")
    operator = as_person("nodes.view_noderow", "nodes.change_noderow")
    assert operator.get("/admin/nodes/noderow/gpu01/cordon/").status_code == 405
    page = operator.post("/admin/nodes/noderow/gpu01/cordon/", {"reason": "new power supply"}, follow=True)
    assert "takes nothing new" in page.content.decode()
    assert NodeRow.objects.get().cordoned
    entry = AuditRow.objects.get()
    assert (entry.actor, entry.door, entry.reason) == ("vera", "console", "new power supply")
    operator.post("/admin/nodes/noderow/gpu01/uncordon/", {})
    assert not NodeRow.objects.get().cordoned


def test_only_a_lost_node_is_forgotten(console):
    fleet.everything()
    page = console.post("/admin/nodes/noderow/gpu01/forget/", {}, follow=True)
    assert "only a lost node can be forgotten" in page.content.decode()
    console.post("/admin/nodes/noderow/gpu05/forget/", {}, follow=True)
    assert not NodeRow.objects.filter(name="gpu05").exists()


def test_draining_wants_a_reason_and_then_happens(as_person):
    fleet.everything()
    operator = as_person("replicas.view_replicarow", "replicas.change_replicarow")
    row = replica_named("smollm2/1")
    url = f"/admin/replicas/replicarow/{row.pk}/drain/"
    assert "say why" in operator.post(url, {}, follow=True).content.decode()
    assert replica_named("smollm2/1").state == "ready"
    assert "takes no new requests" in operator.post(url, {"reason": "upgrade"}, follow=True).content.decode()
    assert replica_named("smollm2/1").state == "draining"
    again = operator.post(url, {"reason": "again"}, follow=True).content.decode()
    assert "drain-asked cannot happen to what is draining" in again


def test_nobody_touches_the_audit(console):
    fleet.declared()
    pk = AuditRow.objects.get().pk
    for url in ("/admin/audit/auditrow/add/", f"/admin/audit/auditrow/{pk}/delete/"):
        assert console.get(url).status_code == 403
        assert console.post(url, {"post": "yes"}).status_code == 403
    console.post(f"/admin/audit/auditrow/{pk}/change/", {"actor": "nobody"})
    console.post("/admin/audit/auditrow/", {"action": "delete_selected", "_selected_action": [str(pk)], "post": "yes"})
    assert AuditRow.objects.get(pk=pk).actor == "anna"


@pytest.mark.parametrize("name", ["nodes_noderow", "replicas_replicarow", "replicas_passrow", "replicas_orderrow"])
def test_what_llmgw_writes_nobody_adds_or_deletes(console, name):
    assert console.get(reverse(f"admin:{name}_add")).status_code == 403
    fleet.everything()
    for action in ("delete_selected",):
        console.post(reverse(f"admin:{name}_changelist"), {"action": action, "_selected_action": ["1"], "post": "yes"})
    assert NodeRow.objects.exists()


def test_a_key_is_shown_once_and_revoked(console):
    fleet.declared("smollm2", aliases=["tiny"])
    url = "/admin/accounts/inferencekeyrow/add/"
    wrong = console.post(url, {"name": "team", "models": "tiny, smolm2"}).content.decode()
    assert "nothing is served as smolm2" in wrong
    made = console.post(url, {"name": "team", "models": "tiny", "days": "30"})
    row = InferenceKeyRow.objects.get()
    assert row.prefix in made.content.decode()
    assert made.context["secret"] in made.content.decode()
    assert "no-store" in made.headers["Cache-Control"]
    assert row.allowed_models == ["tiny"]
    page = console.get("/admin/accounts/inferencekeyrow/team/change/").content.decode()
    assert made.context["secret"] not in page
    assert "there is one named team already" in console.post(url, {"name": "team"}).content.decode()
    console.post("/admin/accounts/inferencekeyrow/team/revoke/", {"reason": "leaked"})
    assert InferenceKeyRow.objects.get().revoked_at
    assert (
        "revoked already"
        in console.post("/admin/accounts/inferencekeyrow/team/revoke/", {}, follow=True).content.decode()
    )


def test_a_token_belongs_to_who_makes_it(console):
    made = console.post("/admin/accounts/apitokenrow/add/", {"name": "ci", "days": "90", "read_only": "on"})
    row = ApiTokenRow.objects.get()
    assert (row.user.username, row.read_only, row.expires_at is not None) == ("anna", True, True)
    assert made.context["secret"].startswith("llmgw_")
    assert "/api/v1/whoami" in made.content.decode()


def test_changes_of_people_are_in_the_audit(console):
    console.post("/admin/auth/group/add/", {"name": "viewers"})
    assert AuditRow.objects.get().verb == "group.create"
    page = console.get("/admin/auth/user/")
    assert page.status_code == 200


def test_the_search_finds_names_that_one_may_see(as_person):
    fleet.everything()
    browser = as_person("nodes.view_noderow")
    page = browser.get("/admin/search/?s=gpu0&extended=1").content.decode()
    assert look.node_url("gpu01") in page
    assert "smollm2" not in browser.get("/admin/search/?s=smol&extended=1").content.decode()


def test_the_search_finds_replicas_and_launches(console):
    fleet.everything()
    found = console.get("/admin/search/?s=llama-70b/2&extended=1").content.decode()
    assert look.replica_url(replica_named("llama-70b/2").pk) in found
    assert "launch on" in console.get("/admin/search/?s=phi-mini-1-3&extended=1").content.decode()
    assert console.get("/admin/search/?s=%00&extended=1").status_code == 200


def test_a_retired_model_can_be_looked_at_but_not_edited(console):
    fleet.declared()
    console.post("/admin/catalog/modelrow/smollm2/delete/", {})
    assert queries.find("smollm2") is None
    assert console.get("/admin/catalog/modelrow/smollm2/edit/").status_code == 302
