"""What differs between two JSON documents, place by place."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

MISSING: Final = "–"
_ABSENT: Final = object()


@dataclass(frozen=True, slots=True)
class Change:
    """One place that is not what it was."""

    place: str
    was: str
    now: str


def changes(was: Any, now: Any) -> tuple[Change, ...]:
    """Return every place that differs, in the order of the document."""
    before, after = dict(_places(was, "")), dict(_places(now, ""))
    places = [*before, *(place for place in after if place not in before)]
    return tuple(
        Change(place, _said(before.get(place, _ABSENT)), _said(after.get(place, _ABSENT)))
        for place in places
        if before.get(place, _ABSENT) != after.get(place, _ABSENT)
    )


def _places(document: Any, at: str) -> Iterator[tuple[str, Any]]:
    """Yield each leaf with its path; lists of plain values are leaves."""
    if isinstance(document, dict):
        for key, value in document.items():
            yield from _places(value, f"{at}.{key}" if at else str(key))
    elif isinstance(document, list) and any(isinstance(one, dict | list) for one in document):
        for index, value in enumerate(document):
            yield from _places(value, f"{at}[{index}]")
    elif document is not None:
        yield at, document


def _said(value: Any) -> str:
    if value is _ABSENT:
        return MISSING
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return "yes" if value is True else "no" if value is False else str(value)
