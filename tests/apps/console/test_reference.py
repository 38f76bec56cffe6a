"""The pages made from code say what the code says."""

import pytest
from django.core.management import CommandError, call_command

from apps.console.reference import lifecycle_page, refusals_page
from llmgw.core.lifecycle import TRANSITIONS
from llmgw.core.refusals import REFUSALS


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
