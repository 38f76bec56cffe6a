"""Commands that pages tell to type exist, with the options that are typed."""

import re
import shlex

import pytest
from django.core.management import get_commands, load_command_class

from llmgw.router import cli as router
from tests.architecture.tree import ROOT
from workers import cli as node

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
OUTPUT = {"yaml", "python", "ini", "toml", "json", "text"}
TYPED = re.compile(r"(?:^|\s|/)(manage\.py|llmgw-node|llmgw-router)\s+(.*)")
ENDS = {"|", "&&", ">", ";"}


def typed():
    """Every line of a fenced block that is a command of ours, with what it says up to a pipe."""
    for page in PAGES:
        for line in fenced(page.read_text("utf-8")):
            is_command = re.match(r"\s*(\$ |(\S*/)?python manage\.py|(\S*/)?llmgw-(node|router) )", line)
            found = TYPED.search(line) if is_command else None
            if found:
                yield pytest.param(found[1], words(found[2]), id=f"{page.relative_to(ROOT)}: {line.strip()[:60]}")


def fenced(text):
    """Lines between fences, but for files and bare output."""
    kind = None
    for line in text.splitlines():
        if line.strip().startswith("```"):
            kind = line.strip()[3:] if kind is None else None
        elif kind is not None and kind not in OUTPUT:
            yield line


def words(text):
    told = shlex.split(text, comments=True)
    return told[: next((at for at, word in enumerate(told) if word in ENDS), len(told))]


def parsers(program, command):
    if program == "manage.py":
        apps = get_commands()
        assert command in apps, f"there is no `manage.py {command}`"
        return load_command_class(apps[command], command).create_parser("manage.py", command)
    return (node if program == "llmgw-node" else router)._parser()


@pytest.mark.parametrize(("program", "told"), list(typed()))
def test_what_is_typed_is_understood(program, told):
    parser = parsers(program, told[0])
    parser.parse_args(told[1:] if program == "manage.py" else told)


def test_the_tutorial_was_found():
    assert sum("first-ten-minutes" in str(each.id) for each in typed()) > 15
