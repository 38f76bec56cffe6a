"""Replaces in texts whatever tells whose machine it is; the same identity is replaced by the same made-up one."""

import re
from collections.abc import Callable, Mapping
from typing import Final

from workers.recording.addresses import Addresses
from workers.recording.identities import NAME_FILES, Identities, is_plain_word
from workers.recording.made_up import MadeUp

_HEX: Final = "[0-9A-Fa-f]"
_PATTERNS: Final[Mapping[str, str]] = {
    "home": r"(?<=/home/)[^/\s:\"'<>]+|(?<=\bUser=)[a-z_][\w-]*",
    "uuid": rf"(?<!{_HEX}){_HEX}{{8}}(?:-{_HEX}{{4}}){{3}}-{_HEX}{{12}}(?!{_HEX})",
    "digest": rf"(?<![0-9A-Za-z])(?:{_HEX}{{32}}|{_HEX}{{64}})(?![0-9A-Za-z])",
    "octets": rf"(?<![0-9A-Za-z:-]){_HEX}{{2}}(?:(?::{_HEX}{{2}}){{5,19}}|(?:-{_HEX}{{2}}){{5,7}})(?![0-9A-Za-z:-])",
    "guid": rf"(?<![0-9A-Za-z:]){_HEX}{{4}}(?::{_HEX}{{4}}){{3}}(?![0-9A-Za-z:])",
    "v6": rf"(?<![0-9A-Za-z:.])(?={_HEX}*:{_HEX}*:)[0-9A-Fa-f:]{{3,}}(?:\d+\.\d+\.\d+\.\d+)?(?![0-9A-Za-z:])",
    "v4": r"(?<![\w.-])\d{1,3}(?:\.\d{1,3}){3}(?![\w-]|\.\d)(?:/\d{1,2}(?!\d))?",
    "netdev": rf"(?<=\benx){_HEX}{{12}}(?![0-9A-Za-z])",
    "number": rf"(?<![0-9A-Za-z])(?:0x)?{_HEX}{{9,16}}(?![0-9A-Za-z])",
}
_ONES_24: Final = 0xFFFFFF
_ZERO_UUID: Final = re.compile(r"[0-]+|[f-]+", re.IGNORECASE)
_MANY: Final = ("33:33", "01:00:5e", "01:80:c2", "ff:ff:ff")
"""Begin hardware addresses of groups."""
_IN_LOG: Final = r"(?= (?:kernel|[\w.-]+\[\d+\]):)"
"""Follows the machine's name in a line of the journal."""


class Disguise:
    """Knows the identities of one machine, and what stands for each."""

    def __init__(self, identities: Identities, key: bytes) -> None:
        """Take what was found in all texts before any is replaced; raises nothing on any text."""
        self.made_up = MadeUp(key)
        self._identities = identities
        self._addresses = Addresses(self.made_up, identities.guids)
        self._anywhere = self._pattern({name for name in identities.names if not is_plain_word(name)})
        self._in_names = self._pattern(identities.names)

    def text(self, text: str, where: str = "") -> str:
        """Replace all identities in what was read at a path, or printed by a tool."""
        pattern = self._in_names if NAME_FILES.fullmatch(where) else self._anywhere
        return pattern.sub(self._replace, text)

    def _pattern(self, names: set[str] | frozenset[str]) -> re.Pattern[str]:
        """Build one pattern of all kinds, so that nothing is replaced twice; what comes first wins."""
        known = {"serial": _any_of(self._identities.serials), "name": _any_of(names)}
        plain = _any_of({name for name in self._identities.names if is_plain_word(name)})
        known["log_name"] = f"{plain}{_IN_LOG}" if plain else ""
        parts = {kind: pattern for kind, pattern in (known | dict(_PATTERNS)).items() if pattern}
        return re.compile("|".join(f"(?P<{kind}>{pattern})" for kind, pattern in parts.items()))

    def _replace(self, found: re.Match[str]) -> str:
        kind = found.lastgroup or ""
        replace: Mapping[str, Callable[[str], str]] = {
            "home": lambda text: self.made_up.word("user names", text),
            "uuid": self._uuid,
            "digest": lambda text: self.made_up.digits("ids of machines and containers", text),
            "octets": self._octets,
            "guid": self._groups,
            "v6": self._addresses.v6,
            "v4": self._v4,
            "netdev": self._mac_in_name,
            "number": self._number,
            "serial": self._serial,
            "name": lambda text: self.made_up.word("host names", text),
            "log_name": lambda text: self.made_up.word("host names", text),
        }
        return replace[kind](found[0])

    def _serial(self, text: str) -> str:
        if text.startswith("0x"):
            return f"0x{self.made_up.digits('serial numbers', text[2:])}"
        return self.made_up.word("serial numbers", text)

    def _uuid(self, text: str) -> str:
        return text if _ZERO_UUID.fullmatch(text) else self.made_up.digits("UUIDs", text)

    def _v4(self, text: str) -> str:
        address, slash, prefix = text.partition("/")
        length = int(prefix) if slash and int(prefix) <= 32 else None
        return self._addresses.v4(address, length) + slash + prefix

    def _octets(self, text: str) -> str:
        """Replace a MAC address, a GUID in octets, or the address of an InfiniBand interface, which ends in a GUID."""
        mark = text[2]
        digits = text.replace(mark, "")
        if text.lower().startswith(_MANY) or int(digits[-6:], 16) in {0, _ONES_24}:
            return text
        replaced = f"{self.made_up.low_24(int(digits, 16)):0{len(digits)}x}"
        octets = mark.join(replaced[place : place + 2] for place in range(0, len(replaced), 2))
        return self.made_up.note("hardware addresses", text, octets.upper() if text.isupper() else octets)

    def _mac_in_name(self, text: str) -> str:
        return self.made_up.note("hardware addresses", text, f"{self.made_up.low_24(int(text, 16)):012x}")

    def _groups(self, text: str) -> str:
        number = int(text.replace(":", ""), 16)
        if number not in self._identities.guids:
            return text
        digits = f"{self.made_up.low_24(number):016x}"
        return self.made_up.note("GUIDs", text, ":".join(digits[place : place + 4] for place in range(0, 16, 4)))

    def _number(self, text: str) -> str:
        """Replace a GUID in one piece, with or without leading zeros; any other number stays."""
        digits = text.removeprefix("0x")
        number = int(digits, 16)
        if number not in self._identities.guids:
            return text
        replaced = f"{self.made_up.low_24(number):0{len(digits)}x}"
        told = replaced.upper() if digits.isupper() else replaced
        return self.made_up.note("GUIDs", digits, text.removesuffix(digits) + told)


def _any_of(words: set[str] | frozenset[str]) -> str:
    longest_first = sorted(words, key=lambda word: (-len(word), word))
    return rf"(?<![0-9A-Za-z])(?:{'|'.join(map(re.escape, longest_first))})(?![0-9A-Za-z])" if words else ""
