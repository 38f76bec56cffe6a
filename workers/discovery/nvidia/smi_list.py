"""Reads `nvidia-smi -L`: which cards there are under which number, and their instances; and NVLinks, told alike."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from llmgw.core.hardware.gpus import NvLink

_CARD: Final = re.compile(r"^GPU (\d+): (.*?)\s*\(UUID: (\S+?)\)")
_INSTANCE: Final = re.compile(r"^\s*MIG\s+(.*?)\s+Device\s+(\d+):\s*\(UUID: (MIG-\S+?)\)")
_LINK: Final = re.compile(r"^\s*Link (\d+):\s*(.*)$")
_ERRORS: Final = re.compile(r"(Replay|Recovery|CRC(?: FLIT)?) Errors?:\s*(\d+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ListedInstance:
    """One instance, as listed."""

    slot: int
    profile: str
    uuid: str


@dataclass(frozen=True, slots=True)
class ListedCard:
    """One card, as listed; a card that is lost may be listed all the same."""

    index: int
    name: str
    uuid: str
    instances: tuple[ListedInstance, ...] = ()


def parse(text: str) -> tuple[ListedCard, ...]:
    """Read `-L`; the numbers of instances begin anew at each card, and both UUID spellings of MIG are taken."""
    cards: list[ListedCard] = []
    for line in text.splitlines():
        if card := _CARD.match(line):
            cards.append(ListedCard(int(card[1]), card[2], card[3]))
        elif cards and (part := _INSTANCE.match(line)):
            last = cards[-1]
            more = ListedInstance(int(part[2]), part[1].replace(" ", ""), part[3])
            cards[-1] = ListedCard(last.index, last.name, last.uuid, (*last.instances, more))
    return tuple(cards)


def parse_links(status: str, errors: str = "") -> Mapping[str, tuple[NvLink, ...]]:
    """Read `nvlink --status` and `nvlink -e`: UUID → its links. A card without any, and an A10, prints none."""
    counts = dict(_errors(errors))
    found: dict[str, list[NvLink]] = {}
    for uuid, link, words in _links(status):
        is_active = "inactive" not in words.lower()
        found.setdefault(uuid, []).append(NvLink(number=link, active=is_active, errors=counts.get((uuid, link))))
    return {uuid: tuple(links) for uuid, links in found.items()}


def _errors(text: str) -> Mapping[tuple[str, int], dict[str, int]]:
    counts: dict[tuple[str, int], dict[str, int]] = {}
    for uuid, link, words in _links(text):
        if told := _ERRORS.search(words):
            name = told[1].lower().replace("crc flit", "crc")
            counts.setdefault((uuid, link), {})[name] = int(told[2])
    return counts


def _links(text: str) -> Iterator[tuple[str, int, str]]:
    uuid = None
    for line in text.splitlines():
        if card := _CARD.match(line):
            uuid = card[3]
        elif uuid and (link := _LINK.match(line)):
            yield uuid, int(link[1]), link[2]
