"""Reads bodies: JSON of a bounded size and depth, with texts that any database can store."""

import json
from collections.abc import Mapping
from typing import IO, Any, Final, NoReturn

from rest_framework.exceptions import ParseError
from rest_framework.parsers import BaseParser

from apps.console.api.problems import Stop

MOST_BYTES: Final = 2 * 1024**2
MOST_DEEP: Final = 32


class Json(BaseParser):
    """`application/json`."""

    media_type = "application/json"

    def parse(
        self, stream: IO[bytes], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        """Return the document; nothing at all counts as an empty one."""
        body = stream.read(MOST_BYTES + 1)
        if len(body) > MOST_BYTES:
            raise Stop(413, "body.too-large", f"the body is longer than {MOST_BYTES} bytes")
        return read(body)


class MergePatch(Json):
    """`application/merge-patch+json`."""

    media_type = "application/merge-patch+json"


def read(body: bytes) -> Any:
    """Read JSON strictly."""
    if not body.strip():
        return {}
    try:
        document = json.loads(body.decode("utf-8"), parse_constant=_no_number, object_pairs_hook=_once)
    except RecursionError:
        raise ParseError(f"the body is nested deeper than {MOST_DEEP} levels") from None
    except ValueError as wrong:  # no JSON, no UTF-8, or a number of thousands of digits
        raise ParseError(f"the body is no JSON: {wrong}") from None
    _check_depth(document)
    _check_texts(document)
    return document


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number in JSON")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a key that stands twice, since nobody knows which of the two was meant."""
    document = dict(pairs)
    if len(document) < len(pairs):
        raise ValueError("a key stands twice in one object")
    return document


def _check_depth(document: Any) -> None:
    level = [document]
    for _ in range(MOST_DEEP):
        level = [child for one in level for child in _children(one)]
        if not level:
            return
    raise ParseError(f"the body is nested deeper than {MOST_DEEP} levels")


def _check_texts(document: Any) -> None:
    """Refuse halves of surrogate pairs, which JSON can escape and nobody can store or send."""
    try:
        json.dumps(document, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ParseError("the body holds a text that is no Unicode: half of a surrogate pair") from None


def _children(one: Any) -> list[Any]:
    if isinstance(one, dict):
        return list(one.values())
    return one if isinstance(one, list) else []
