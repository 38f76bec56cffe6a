"""The pages made from code say what the code says."""

import inspect
import json
import re
from pathlib import Path

import jsonschema  # type: ignore[import-untyped]
import msgspec
import pytest
from django.core.management import CommandError, call_command

from apps.console.management.reading import command_line_page, node_settings_page, settings_page
from apps.console.reference import failures_page, lifecycle_page, problems_page, refusals_page, wire_page
from llmgw.core import wire
from llmgw.core.engines import failures, llamacpp
from llmgw.core.lifecycle import TRANSITIONS
from llmgw.core.refusals import REFUSALS
from llmgw.core.validation import document, rules
from llmgw.core.validation import sources as weights
from tests.builders import EXAMINATION
from tests.wire import messages
from workers.settings import KEYS


def test_every_move_is_drawn_and_listed():
    page = lifecycle_page()
    for (was, happened), becomes in TRANSITIONS.items():
        assert f"    {was.value} --> {becomes.value}: {happened.value}\n" in page
        assert f"| {was.value} | {happened.value} | {becomes.value} |" in page


def test_every_refusal_can_be_linked_to():
    page = refusals_page()
    assert all(f'<a id="{kind.code}"></a>' in page for kind in REFUSALS)


def test_check_names_what_is_out_of_date_and_writes_nothing(tmp_path, settings):
    settings.BASE_DIR = tmp_path
    with pytest.raises(CommandError, match=r"docs/reference/lifecycle\.md"):
        call_command("makedocs", check=True)
    assert not list(tmp_path.iterdir())


def test_made_pages_are_current_at_once(tmp_path, settings):
    settings.BASE_DIR = tmp_path
    call_command("makedocs")
    call_command("makedocs", check=True)
    assert (tmp_path / "docs/reference/refusals.md").read_text("utf-8") == refusals_page()


def test_every_problem_that_validation_can_name_is_listed():
    told = problems_page()
    sources = [inspect.getsource(module) for module in (document, rules, weights, llamacpp)]
    codes = set(re.findall(r'"([a-z0-9]+\.[a-z-]+)"', "\n".join(sources))) - {"source.uri", "source.size"}
    codes -= {"source.sha256"}
    assert not [code for code in codes if f"| `{code}` |" not in told]
    assert "| `…` |" not in told


def test_every_failure_has_its_paragraph():
    told = failures_page()
    assert all(f'<a id="{code}"></a>' in told for code in failures.CLASSES)


def test_every_message_is_described():
    told = wire_page()
    assert all(
        f"### {kind.__name__} " in told for kind in (*wire.Order.__subclasses__(), *wire.Report.__subclasses__())
    )


def test_every_variable_of_the_settings_has_its_sentence():
    told = settings_page()
    assert all(f"| `{name}` |" in told for name in ("DATABASE_URL", "REDIS_URL", "LLMGW_SECRET_KEY", "LLMGW_DRAIN_S"))


def test_commands_of_all_three_programs_are_listed():
    told = command_line_page()
    assert all(f"### {name}\n" in told for name in ("up", "apply", "explain", "llmgw-node run", "llmgw-router run"))


def test_every_setting_of_a_node_is_listed():
    told = node_settings_page()
    assert all(f"| `{key}` |" in told for key in KEYS)


def test_an_inventory_fits_its_published_schema():
    schema = json.loads(Path("docs/reference/inventory.schema.json").read_text("utf-8"))
    gpu = schema["$defs"]["Gpu"]["properties"]
    assert gpu["memory_used_bytes"]["description"].startswith("Without what the driver reserves")
    told = json.loads(msgspec.json.encode(messages.INVENTORY))
    jsonschema.validate(told, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**told, "memory_total_bytes": "much"}, schema)


def test_an_examination_fits_its_published_schema():
    schema = json.loads(Path("docs/reference/examination.schema.json").read_text("utf-8"))
    jsonschema.validate(json.loads(msgspec.json.encode(EXAMINATION)), schema)
