"""Reads what nvidia-smi prints as comma-separated values; any field may hold words where a number should be."""

import re
from typing import Final

from llmgw.core.units import MIB, Bytes
from workers.discovery.cards import Card

CARDS: Final = ("--query-gpu=uuid,name,memory.total", "--format=csv,noheader,nounits")
MIG_MODES: Final = ("--query-gpu=uuid,mig.mode.current", "--format=csv,noheader,nounits")
"""Asked apart: an older driver turns the whole query down for one field that it does not know."""

_DEAD: Final = re.compile(r"GPU is lost|GPU requires re(set|start)|Unknown Error|ERR!")


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
        uuid.strip() if uuid.startswith("GPU-") else None,
        None if name.startswith("[") or _DEAD.search(name) else name,
        Bytes(mib * MIB) if mib else None,
        dead[0] if dead else None,
    )
