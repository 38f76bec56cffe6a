"""How commands read a document that a person wrote, in YAML or JSON."""

import sys
from pathlib import Path

import yaml
from django.core.management.base import CommandError


def read_document(file: str) -> object:
    """Read a file, or say where it cannot be read."""
    name = "standard input" if file == "-" else file
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text("utf-8")
        return yaml.safe_load(text)
    except (OSError, UnicodeDecodeError) as wrong:
        raise CommandError(f"{name} cannot be read: {wrong}", returncode=2) from wrong
    except RecursionError:
        raise CommandError(f"{name} is nested too deeply for a document", returncode=2) from None
    except yaml.YAMLError as wrong:
        raise CommandError(f"{name}{_line_of(wrong)} is no YAML: {_what(wrong)}", returncode=2) from wrong


def _line_of(wrong: yaml.YAMLError) -> str:
    mark = getattr(wrong, "problem_mark", None)
    return f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""


def _what(wrong: yaml.YAMLError) -> str:
    return str(getattr(wrong, "problem", None) or wrong)
