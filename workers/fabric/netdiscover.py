"""Reads ibnetdiscover, whole or by ports (-p), line by line; formats of rdma-core's ibnetdiscover.c, old ones too."""

import re
from collections.abc import Iterator
from types import MappingProxyType
from typing import Final, NamedTuple

from llmgw.core.hardware.graph import LinkEnd

_GUID: Final = r"(?:0x)?([0-9a-f]{1,16})"
_N: Final = r"(\d{1,9})"
_ID: Final = rf'"([SHR?])-{_GUID}"'
_EXT: Final = r"(?:\[ext \d+\])?"
_ATTRIBUTE: Final = re.compile(r"^(vendid|devid|sysimgguid)=(0x[0-9a-f]{1,16})\b", re.IGNORECASE)
_OWN_GUID: Final = re.compile(r"^(?:switch|ca|rt|\?+)guid=", re.IGNORECASE)
_HEADER: Final = re.compile(rf'^(?:Switch|Ca|Rt|Router|\?+)\s+{_N}\s+{_ID}\s*(?:#\s*"(.*)"(.*))?$', re.IGNORECASE)
_LINK: Final = re.compile(
    rf"^\[{_N}\]{_EXT}\s*(?:\({_GUID}\))?\s*{_ID}\[{_N}\]{_EXT}\s*(?:\({_GUID}\))?\s*(?:#\s*(.*))?$", re.IGNORECASE
)
_COMMENT: Final = re.compile(rf'^(?:lid {_N}(?: lmc {_N})?\s+)?"(.*)"\s*(?:lid {_N})?\s*(?:{_N}x\s?(\S+))?')
_SWITCH_LID: Final = re.compile(rf"\blid {_N}")
_NOISE: Final = re.compile(
    r"^\s*$|^#|^(?:Chassis \d|Non-Chassis|Hostname:|ibwarn|ibpanic|ibdebug|src/|discover)", re.IGNORECASE
)

_SIDE: Final = rf"(CA|SW|RT|\?\?)\s+{_N}\s+{_N}\s+0x([0-9a-f]{{1,16}})"
_PORT: Final = re.compile(rf"^{_SIDE}\s+(?:{_N}|\?+)x?\s*(\S+)\s*(.*)$", re.IGNORECASE)
_PEER: Final = re.compile(rf"^-\s*{_SIDE}\s*\(\s*(.*?)\s*\)\s*$", re.IGNORECASE)
_QUOTED_PAIR: Final = re.compile(r"""^(['"])(.*)\1 - (['"])(.*)\3$""")
_LETTERS: Final = MappingProxyType({"SW": "S", "CA": "H", "RT": "R", "??": "?"})


class HeardNode(NamedTuple):
    """A node, as one line names it; `is_own` where the line is about it and not about a neighbour."""

    letter: str
    """`S`, `H`, `R`, or `?`."""
    guid: str
    description: str = ""
    is_own: bool = False
    ports: int | None = None
    lid: int | None = None
    attributes: tuple[tuple[str, str], ...] = ()
    """`vendid`, `devid`, `sysimgguid`."""


_NOBODY: Final = HeardNode("?", "")


class HeardLink(NamedTuple):
    """A link, as one of its two ends tells it."""

    here: LinkEnd
    there: LinkEnd
    width: int | None
    speed: str | None


class HeardLid(NamedTuple):
    """Who has a LID; with an LMC above 0 also those that follow."""

    guid: str
    port: int
    """0 for a switch."""
    lid: int
    lmc: int = 0


class HeardFree(NamedTuple):
    """A port without a neighbour."""

    guid: str
    port: int


Heard = HeardNode | HeardLink | HeardLid | HeardFree


def listen(text: str) -> Iterator[Heard | None]:
    """Tell what each line says; None for a line that makes no sense."""
    attributes: dict[str, str] = {}
    own = _NOBODY
    for raw in text.splitlines():
        line = raw.strip()
        if found := _ATTRIBUTE.match(line):
            attributes[found[1].lower()] = found[2].lower()
        elif _OWN_GUID.match(line):
            own = _NOBODY  # should the head that follows make no sense, its links are not those of the node before
        elif found := _HEADER.match(line):
            own = _header(found, tuple(attributes.items()))
            attributes = {}
            yield own
            yield from _lid(own.guid, 0, own.lid)
        elif found := _LINK.match(line):
            yield from [None] if own is _NOBODY else _link(found, own)
        elif found := _PORT.match(line):
            yield from _port(found)
        elif not _NOISE.match(line):
            yield None


def guid_of(digits: str) -> str:
    """Spell a GUID in full: `0x` and 16 digits."""
    return f"0x{digits.lower():0>16}"


# --- the whole ----------------------------------------------------------------------------------------------------


def _header(found: re.Match[str], attributes: tuple[tuple[str, str], ...]) -> HeardNode:
    lid = _SWITCH_LID.search(found[5] or "")
    return HeardNode(
        letter=found[2].upper(),
        guid=guid_of(found[3]),
        description=(found[4] or "").strip(),
        is_own=True,
        ports=int(found[1]),
        lid=int(lid[1]) if lid else None,
        attributes=attributes,
    )


def _link(found: re.Match[str], own: HeardNode) -> Iterator[Heard]:
    number, here_guid, letter, guid, there_number, there_guid = found.groups()[:6]
    said = _COMMENT.match(found[7] or "")
    own_lid, lmc, name, lid, width, speed = said.groups() if said else (None,) * 6
    peer = HeardNode(letter.upper(), guid_of(guid), (name or "").strip())
    here = LinkEnd(guid=own.guid, port=int(number), port_guid=here_guid and guid_of(here_guid), lid=_number(own_lid))
    there = LinkEnd(
        guid=peer.guid, port=int(there_number), port_guid=there_guid and guid_of(there_guid), lid=_number(lid)
    )
    yield peer
    yield HeardLink(here, there, _number(width), _speed(speed))
    yield from _lid(here.guid, here.port, here.lid, int(lmc or 0))
    yield from _lid(there.guid, 0 if peer.letter == "S" else there.port, there.lid)


def _lid(guid: str, port: int, lid: int | None, lmc: int = 0) -> Iterator[HeardLid]:
    """A port that no subnet manager has set up has LID 0, like all its kind."""
    if lid:
        yield HeardLid(guid, port, lid, min(lmc, 7))


# --- by ports -----------------------------------------------------------------------------------------------------


def _port(found: re.Match[str]) -> Iterator[Heard | None]:
    """Read one line; of an adapter it tells the port's GUID only, which stands for the node here."""
    here = _side(found[1], found[2], found[3], found[4])
    peer = _PEER.match(found[7])
    if peer is None:
        yield from _free(here, found)
        return
    there = _side(*peer.groups()[:4])
    own_name, name = _names(peer[5])
    width, speed = _number(found[5]), _speed(found[6])
    for letter, end, description, is_own in (
        (found[1], here, own_name, True),
        (peer[1], there, name, False),
    ):
        kind = _LETTERS[letter.upper()]
        yield HeardNode(kind, end.guid, description, is_own, lid=end.lid if kind == "S" else None)
        yield from _lid(end.guid, 0 if kind == "S" else end.port, end.lid)
    yield HeardLink(here, there, width, speed)


def _free(here: LinkEnd, found: re.Match[str]) -> Iterator[Heard | None]:
    if found[7].startswith("- "):
        yield None  # cut off in the middle
        return
    kind = _LETTERS[found[1].upper()]
    yield HeardNode(kind, here.guid, _bare(found[7]), is_own=True, lid=here.lid if kind == "S" else None)
    yield from _lid(here.guid, 0 if kind == "S" else here.port, here.lid)
    yield HeardFree(here.guid, here.port)


def _side(kind: str, lid: str, port: str, guid: str) -> LinkEnd:
    of_port = guid_of(guid) if kind.upper() != "SW" else None
    return LinkEnd(guid=guid_of(guid), port=int(port), port_guid=of_port, lid=int(lid))


def _names(both: str) -> tuple[str, str]:
    """Split `'own' - 'other'`; some builds print them without quotes, and pad them."""
    if found := _QUOTED_PAIR.match(both):
        return found[2].strip(), found[4].strip()
    own, _, other = both.partition(" - ")
    return _bare(own), _bare(other)


def _bare(name: str) -> str:
    return name.strip().strip("'\"").strip()


def _number(word: str | None) -> int | None:
    return int(word) if word and word.isdecimal() else None


def _speed(word: str | None) -> str | None:
    return word.upper() if word and "?" not in word else None
