"""Reads what nvidia-smi says of cards that it has no handle for: they are there, and can do nothing."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from llmgw.core.hardware.findings import cut
from workers.discovery import pci

# `GPU 0000:03:00.0: …`, `GPU0000:07:00.0: …`, `gpu 000:BA:80.0: …`, `GPU1: 0000:34:00.0: …`, `GPU1: …`
_HANDLE: Final = re.compile(
    r"Unable to determine the device handle for GPU[ \t]*"
    r"(?:(?P<index>[0-9]{1,3})\b(?!:[0-9A-F]{2}:):?[ \t]*)?"
    r"(?P<address>[0-9A-F]{3,8}:[0-9A-F]{2}:[0-9A-F]{2}\.[0-9A-F])?"
    r"[ \t.:]*(?P<words>[^\n]*)",
    re.IGNORECASE,
)
_END: Final = re.compile(r"\.?\s{2,}|\.\s|\.?\s*$")
"""Behind the reason stands what to do, in one sentence more."""


@dataclass(frozen=True, slots=True)
class Dead:
    """One card that the driver gives no handle for."""

    index: int | None
    address: str | None
    words: str


def dead_in(text: str) -> tuple[Dead, ...]:
    """Return those that an answer speaks of, each once."""
    return tuple(dict.fromkeys(_dead(text)))


def _dead(text: str) -> Iterator[Dead]:
    for found in _HANDLE.finditer(text):
        words = _END.split(found["words"].strip(), maxsplit=1)[0]
        index = int(found["index"]) if found["index"] else None
        yield Dead(index, pci.canonical(found["address"] or ""), cut(words or found[0]))
