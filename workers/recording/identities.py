"""Finds in what a machine has answered the names, serial numbers and GUIDs by which it could be known again."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

_SERIALS: Final = (
    re.compile(r"<(?:\w+_)?serial(?:_number)?>\s*([^<\s]+)\s*<"),
    re.compile(r"\bSerial(?: Number)?\s*:\s*(\S+)\s*$", re.MULTILINE | re.IGNORECASE),
    re.compile(r'"\w*serial\w*"\s*:\s*"([^"\s]+)"', re.IGNORECASE),
    re.compile(r"\bpdi\b\W{1,60}(0x[0-9a-f]{8,16})\b", re.IGNORECASE),
)
_SERIAL_FILE: Final = re.compile(r".*(serial|asset_tag)[^/]*")
_NO_SERIAL: Final = re.compile(r"\W*(n/?a|0+|0x0+|none|unknown|default|not|to|requested|\[.*)\W*", re.IGNORECASE)
_CSV: Final = re.compile(r"--query-gpu=(\S+)")
_GUIDS: Final = (
    re.compile(r"guid[^0-9a-z\n]{0,40}(?:0x)?([0-9a-f]{9,16})\b", re.IGNORECASE),
    re.compile(r'"[HSR]-([0-9a-f]{16})"', re.IGNORECASE),
    re.compile(r"\b([0-9a-f]{4}(?::[0-9a-f]{4}){3})\b", re.IGNORECASE),
)
_NAMES: Final = (
    re.compile(r"^\s*[0-9a-f]+[.:][0-9a-f.:]*[ \t]+([A-Za-z][\w. \t-]*)", re.MULTILINE),  # /etc/hosts
    re.compile(r"^(?:search|domain)[ \t]+([\w. \t-]+)$", re.MULTILINE),  # /etc/resolv.conf
    re.compile(r"^\w{3} [ \d]\d [\d:]{8} ([\w.-]+) [\w-]+(?:\[\d+\])?: ", re.MULTILINE),  # a log of systemd
    re.compile(r"^\d{4}-\d\d-\d\dT\S+ ([\w.-]+) [\w-]+(?:\[\d+\])?: ", re.MULTILINE),
    re.compile(r'"host(?:Name)?"\s*:\s*"([A-Za-z][\w.-]*)"'),
)
NAME_FILES: Final = re.compile(
    r"/etc/(hosts|hostname|resolv\.conf)|/proc/sys/kernel/(hostname|domainname)|.*/node_desc"
)
"""What is written there are names; elsewhere a name of letters alone may be any word, and is left."""
_WHOLE_NAME_FILES: Final = re.compile(r"/etc/hostname|/proc/sys/kernel/(hostname|domainname)|.*/node_desc")
_COMMON: Final = re.compile(
    r"localhost|localdomain|local|lan|internal|intra|home|corp|example|test|invalid|com|net|org|edu|gov|svc|cluster|host"
    r"|node|server|ubuntu|debian|linux|loopback|allnodes|allrouters|allhosts|mcastprefix|localnet|none"
)
_OF_HARDWARE: Final = re.compile(r"(gpu|nic|eth|ib|mlx\d?|cpu|mig|en[a-z]*|bond|nvidia|ip6|slot|port|pci|hca)[\d_-]*")
"""A machine that is called like a part of every machine is hidden among them, and its name cannot be replaced."""


@dataclass(frozen=True, slots=True)
class Identities:
    """What was found."""

    names: frozenset[str]
    """Parts of host and domain names."""
    serials: frozenset[str]
    guids: frozenset[int]


def find(texts: Iterable[tuple[str, str]]) -> Identities:
    """Look through pairs of a path or command line and the text that was read there."""
    names: set[str] = set()
    serials: set[str] = set()
    guids: set[int] = set()
    for where, text in texts:
        names.update(_names(where, text))
        serials.update(serial for serial in _serials(where, text) if _is_serial(serial))
        guids.update(_guids(text))
    return Identities(frozenset(names), frozenset(serials), frozenset(guids))


def _names(where: str, text: str) -> Iterator[str]:
    words = text.split()
    found = words[:1] if _WHOLE_NAME_FILES.fullmatch(where) else []
    is_log = not where.startswith("/")
    if is_log or NAME_FILES.fullmatch(where):
        found += [word for pattern in _NAMES for line in pattern.findall(text) for word in line.split()]
    return (label for name in found for label in name.split(".") if _is_name(label))


def _is_name(label: str) -> bool:
    told = label.lower()
    is_long = len(told) > 2 and not told.isdigit()
    return is_long and not _COMMON.fullmatch(told) and not _OF_HARDWARE.fullmatch(told)


def _serials(where: str, text: str) -> Iterator[str]:
    if _SERIAL_FILE.fullmatch(where):
        yield text.strip()
    for pattern in _SERIALS:
        yield from pattern.findall(text)
    asked = _CSV.search(where)
    columns = asked[1].split(",") if asked else []
    for line in text.splitlines() if "serial" in columns else ():
        cells = [cell.strip() for cell in line.split(",")]
        yield from cells[columns.index("serial") : columns.index("serial") + 1]


def _is_serial(text: str) -> bool:
    return len(text) > 3 and any(letter.isdigit() for letter in text) and not _NO_SERIAL.fullmatch(text)


def _guids(text: str) -> Iterator[int]:
    for pattern in _GUIDS:
        for found in pattern.findall(text):
            number = int(found.replace(":", ""), 16)
            if 2**32 <= number < 2**64 - 1:
                yield number


def is_plain_word(name: str) -> bool:
    """Tell whether a name could be any word of any text."""
    return name.isalpha()
