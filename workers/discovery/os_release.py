"""Reads /etc/os-release."""

import re
from pathlib import Path
from typing import Final

FILE: Final = Path("/etc/os-release")


def parse(text: str) -> str:
    """Return the system's name as its makers print it; empty when it has none."""
    fields: dict[str, str] = dict(re.findall(r"^(\w+)=[\"']?(.*?)[\"']?$", text, re.MULTILINE))
    return fields.get("PRETTY_NAME") or fields.get("NAME", "")
