"""Reads `nvidia-smi -L`: which cards there are under which number, and their instances; and NVLinks, told alike."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from llmgw.core.hardware.gpus import NvLink

_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
_CARD: Final = re.compile(r"^\s*GPU ([0-9]{1,4}):\s+(.*?)\s*\(UUID:\s*(GPU-\S+?)\)")
_INSTANCE: Final = re.compile(r"^\s*MIG\s+(.*?)\s+Device\s+([0-9]{1,4}):\s*\(UUID:\s*(MIG-\S+?)\)")
_LINK: Final = re.compile(r"^\s*Link ([0-9]{1,4}):\s*(.*)$")
_STATE: Final = re.compile(r"[0-9.]+ [GM]B/s|<?(?:in)?active>?", re.IGNORECASE)
_ERRORS: Final = re.compile(r"(Replay|Recovery|CRC(?: FLIT)?) Errors?:\s*([0-9]{1,18})", re.IGNORECASE)


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
    cards: dict[str, ListedCard] = {}
    last: ListedCard | None = None
    for line in _COLOUR.sub("", text).splitlines():
        if card := _CARD.match(line):
            last = cards.setdefault(card[3], ListedCard(int(card[1]), card[2], card[3]))
        elif last and (part := _INSTANCE.match(line)):
            more = ListedInstance(int(part[2]), part[1].replace(" ", ""), part[3])
            known = tuple(each for each in last.instances if each.slot != more.slot)
            last = cards[last.uuid] = replace(last, instances=(*known, more))
    return tuple(cards.values())


def parse_links(status: str, errors: str = "") -> Mapping[str, tuple[NvLink, ...]]:
    """Read `nvlink --status` and `nvlink -e`: UUID → its links. A card without any, and an A10, prints none.

    Blackwell counts other errors than those that are kept here, and prints none of these.
    """
    counts = _errors(errors)
    found: dict[str, dict[int, NvLink]] = {}
    for uuid, number, words in _links(status):
        if _STATE.fullmatch(words.strip()):
            is_active = "inactive" not in words.lower()
            link = NvLink(number=number, active=is_active, errors=counts.get((uuid, number)))
            found.setdefault(uuid, {})[number] = link
    return {uuid: tuple(links[number] for number in sorted(links)) for uuid, links in found.items()}


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
