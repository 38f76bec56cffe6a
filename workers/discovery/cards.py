"""An NVIDIA card as a driver tells it, by whichever tool, and the class that it belongs to."""

import re
from dataclasses import dataclass
from typing import Final

from llmgw.core.units import GIB, Bytes

_FORM_WORDS: Final = re.compile(
    r"nvidia|tesla|geforce|graphics|device|generation|edition|pcie?|sxm\d?|nvl|hbm\w*|\d+gb", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Card:
    """What a card does not tell is None."""

    uuid: str | None
    name: str | None
    memory: Bytes | None
    dead: str | None = None
    """The words by which the driver says that the card can do nothing."""
    is_cut: bool = False
    """In MIG mode: it is used by its instances, never as a whole."""


def gpu_class(name: str, memory: Bytes) -> str | None:
    """Name a class by the product and the driver's own count of whole GiB, not by what the vendor sells: `l40s-45g`."""
    words = [word.lower() for word in re.split(r"[\s-]+", name) if word and not _FORM_WORDS.fullmatch(word)]
    if words[:1] == ["rtx"] and words[1:] and words[1].startswith("a"):
        words = words[1:]  # an RTX A6000 is called A6000; an RTX 6000 Ada is another card
    model = re.sub(r"[^a-z0-9.]", "", "".join(words))
    return f"{model}-{round(memory / GIB)}g" if model else None
