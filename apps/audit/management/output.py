"""How commands print: one JSON document, or a table that a person reads."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from llmgw.core.units import duration


def as_json(document: Any) -> str:
    """Return one document; keys keep the order in which they were told."""
    return json.dumps(document, indent=2, ensure_ascii=False)


def as_table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return columns as wide as their widest cell, two spaces apart; the last one is left ragged."""
    cells = [[header.upper() for header in headers], *([str(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells)
    return "\n".join(line.rstrip() for line in lines)


def age(since: datetime | None, now: datetime) -> str:
    """Say how long ago something was, in its largest unit: `12 s`, `4 min`, `3 h`, `9 d`; `–` for never."""
    return "–" if since is None else duration((now - since).total_seconds())
