"""How commands print: one JSON document, or a table that a person reads."""

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any


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
    return "–" if since is None else duration(now - since)


def duration(time: timedelta) -> str:
    """Say how long something took or lasts, in its largest unit."""
    seconds = max(int(time.total_seconds()), 0)
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
