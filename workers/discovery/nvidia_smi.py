"""Reads what nvidia-smi prints as comma-separated values; any field may hold words where a number should be."""

import re
from dataclasses import dataclass
from typing import Final

from llmgw.core.units import GIB, MIB, Bytes

CARDS: Final = ("--query-gpu=uuid,name,memory.total", "--format=csv,noheader,nounits")
MIG_MODES: Final = ("--query-gpu=uuid,mig.mode.current", "--format=csv,noheader,nounits")
"""Asked apart: an older driver turns the whole query down for one field that it does not know."""

_DEAD: Final = re.compile(r"GPU is lost|GPU requires re(set|start)|Unknown Error|ERR!")
_FORM_WORDS: Final = re.compile(
    r"nvidia|tesla|geforce|graphics|device|generation|edition|pcie?|sxm\d?|nvl|hbm\w*|\d+gb", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Card:
    """One line of the answer; what the card does not tell is None."""

    uuid: str | None
    name: str
    memory: Bytes | None
    dead: str | None = None
    """The words by which the driver says that the card can do nothing."""


def gpu_class(name: str, memory: Bytes) -> str | None:
    """Name a class by the product and the driver's own count of whole GiB, not by what the vendor sells: `l40s-45g`."""
    words = [word.lower() for word in re.split(r"[\s-]+", name) if word and not _FORM_WORDS.fullmatch(word)]
    if words[:1] == ["rtx"] and words[1:] and words[1].startswith("a"):
        words = words[1:]  # an RTX A6000 is called A6000; an RTX 6000 Ada is another card
    model = re.sub(r"[^a-z0-9.]", "", "".join(words))
    return f"{model}-{round(memory / GIB)}g" if model else None


def parse_cards(text: str) -> tuple[Card, ...]:
    """Read the answer to `CARDS`."""
    return tuple(_card(line.strip()) for line in text.splitlines() if line.count(",") >= 2)


def parse_mig_modes(text: str) -> dict[str, bool]:
    """Read the answer to `MIG_MODES`: UUID → whether the card is cut into instances."""
    pairs = (line.strip().partition(", ") for line in text.splitlines())
    return {uuid: mode == "Enabled" for uuid, comma, mode in pairs if comma}


def _card(line: str) -> Card:
    uuid, _, rest = line.partition(",")
    name, _, memory = (part.strip() for part in rest.rpartition(","))
    dead = _DEAD.search(line)
    mib = int(memory) if memory.isdigit() else None
    return Card(
        uuid.strip() if uuid.startswith(("GPU-", "MIG-")) else None,
        name,
        Bytes(mib * MIB) if mib else None,
        dead[0] if dead else None,
    )
