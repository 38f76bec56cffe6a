"""The audit only grows, and can be read by what was done, to what and by whom."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from django.core.management import call_command

from apps.audit import queries
from apps.audit.actions import Actor, record
from apps.audit.management.keyboard import operator
from apps.audit.management.output import age, as_table
from apps.audit.models import AuditOnlyGrows, AuditRow

NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)
ANNA = Actor("anna", "console", "127.0.0.1")


def write(verb="model.declare", name="smollm2", by=ANNA, **told):
    return record(by, verb, "model", name, NOON, **told)


@pytest.mark.django_db
@pytest.mark.parametrize(
    "attempt",
    [
        lambda row: row.save(),
        lambda row: row.delete(),
        lambda row: AuditRow.objects.update(actor="eve"),
        lambda row: AuditRow.objects.filter(pk=row.pk).update(actor="eve"),
        lambda row: AuditRow.objects.filter(pk=row.pk).delete(),
        lambda row: AuditRow.objects.bulk_update([row], ["actor"]),
        lambda row: AuditRow.objects.update_or_create(pk=row.pk, defaults={"actor": "eve"}),
        lambda row: AuditRow._base_manager.update(actor="eve"),
    ],
)
def test_an_entry_cannot_be_changed_or_deleted(attempt):
    row = write()
    row.actor = "eve"
    with pytest.raises(AuditOnlyGrows, match="never changed and never deleted"):
        attempt(row)
    assert AuditRow.objects.get().actor == "anna"


@pytest.mark.django_db
def test_an_entry_read_back_cannot_be_saved():
    write()
    with pytest.raises(AuditOnlyGrows):
        AuditRow.objects.get().save()


@pytest.mark.django_db
def test_names_and_reasons_are_made_fit_to_be_kept():
    row = write(by=Actor("eve\x1b[31m\n" + "x" * 500, "cli"), reason="y" * 900)
    assert row.actor.startswith("eve?[31m?xx")
    assert (len(row.actor), len(row.reason)) == (150, 500)


@pytest.mark.django_db
def test_the_newest_come_first_narrowed_to_what_was_asked():
    write(name="a")
    write("model.retire", "a")
    write(name="b", by=Actor("beat", "beat"))
    assert [row.object_id for row in queries.latest(limit=2)] == ["b", "a"]
    assert [row.verb for row in queries.latest(object_id="a")] == ["model.retire", "model.declare"]
    assert [row.object_id for row in queries.latest(actor="beat")] == ["b"]
    assert queries.latest(verb="model.retire").get().object_id == "a"


@pytest.mark.django_db
def test_the_command_prints_a_table_or_a_document(capsys):
    write(before={"replicas": 1}, after={"replicas": 2}, reason="more")
    call_command("audit")
    header, line = capsys.readouterr().out.splitlines()
    assert header.split() == ["AT", "WHO", "DOOR", "VERB", "OBJECT", "REASON"]
    assert line.split() == ["2026-12-01", "12:00:00", "anna", "console", "model.declare", "smollm2", "more"]
    call_command("audit", "--json", "--limit", "5")
    (item,) = json.loads(capsys.readouterr().out)["items"]
    assert (item["before"], item["after"], item["address"]) == ({"replicas": 1}, {"replicas": 2}, "127.0.0.1")


def test_who_types_is_seen_through_sudo(monkeypatch):
    monkeypatch.setenv("SUDO_USER", "anna")
    assert operator() == Actor("anna", "cli")
    monkeypatch.delenv("SUDO_USER")
    monkeypatch.setenv("LOGNAME", "ben")
    assert operator() == Actor("ben", "cli")


def test_columns_line_up_and_nothing_trails():
    assert as_table(("name", "state"), [("a", "ready"), ("gpu07", "")]) == "NAME   STATE\na      ready\ngpu07"


@pytest.mark.parametrize(
    ("seconds", "said"), [(0, "0 s"), (119, "119 s"), (120, "2 min"), (7200, "2 h"), (200_000, "2 d"), (-5, "0 s")]
)
def test_ages_in_their_largest_unit(seconds, said):
    assert age(NOON - timedelta(seconds=seconds), NOON) == said


def test_never_is_a_dash():
    assert age(None, NOON) == "–"
