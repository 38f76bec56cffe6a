"""Made-up IP addresses: what shared a prefix shares one again, and private, local and mapped ones stay such.

GIDs are IPv6 addresses: one that maps an IPv4 address maps the made-up one, one made of a GUID is made of the made-up.
"""

import re
from collections.abc import Set as AbstractSet
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Final

from workers.recording.made_up import MadeUp

KIND: Final = "IP addresses"
_PUBLIC_V4: Final = IPv4Network("198.18.0.0/15")
"""Stands for all public addresses; nobody's own."""
_PUBLIC_V6: Final = IPv6Network("2001:db8::/32")
_RANGES_V4: Final = tuple(map(IPv4Network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")))
_PRIVATE_V6: Final = IPv6Network("fc00::/7")
_LOCAL_V6: Final = IPv6Network("fe80::/10")
_MAPPED: Final = IPv6Network("::ffff:0:0/96")
_LOW_64: Final = 2**64 - 1
_SMALL: Final = 2**16
"""The number of an interface below this was given by hand and tells nothing."""
_OF_MAC: Final = 0xFFFE
"""Stands in the middle of an interface's number that is made of its MAC address."""
_IS_WHOLE: Final = re.compile(r"([0-9a-fA-F]{4}:){7}[0-9a-fA-F]{4}")


class Addresses:
    """Replaces addresses; `guids` are the GUIDs of adapters that are known."""

    def __init__(self, made_up: MadeUp, guids: AbstractSet[int]) -> None:
        self._made_up = made_up
        self._guids = guids

    def v4(self, text: str, prefix: int | None = None) -> str:
        """Replace an IPv4 address; with the prefix length of a network, what is zero behind it stays zero."""
        address = _v4(text)
        if address is None or _tells_nothing(address):
            return text
        real, value = int(address), self._v4_value(address)
        for bits in (8, 16, 24, *(() if prefix is None else (32 - prefix,))):
            value = _with_edge(value, real, bits)
        return self._made_up.note(KIND, text, str(IPv4Address(value)))

    def v6(self, text: str) -> str:
        """Replace an IPv6 address or a GID, in the form that it has."""
        address = _v6(text)
        if address is None or address.is_loopback or address.is_unspecified or address.is_multicast:
            return text
        found = IPv6Address(self._v6_value(address))
        if found == address:
            return text
        return self._made_up.note(KIND, text, found.exploded if _IS_WHOLE.fullmatch(text) else str(found))

    def _v4_value(self, address: IPv4Address) -> int:
        kept = next((net.prefixlen for net in _RANGES_V4 if address in net), 0)
        value = self._scrambled(int(address), 32, kept)
        return value if kept else int(_PUBLIC_V4.network_address) | value & int(_PUBLIC_V4.hostmask)

    def _v6_value(self, address: IPv6Address) -> int:
        if address in _MAPPED:
            inner = self.v4(str(IPv4Address(int(address) & 0xFFFFFFFF)))
            return int(_MAPPED.network_address) | int(IPv4Address(inner))
        high, low = int(address) >> 64, self._interface(int(address) & _LOW_64)
        if address in _LOCAL_V6:
            return high << 64 | low
        if address in _PRIVATE_V6:
            return self._scrambled(high, 64, 8) << 64 | low
        public = int(_PUBLIC_V6.network_address) >> 64 | self._scrambled(high, 64, 0) & 0xFFFFFFFF
        return public << 64 | low

    def _interface(self, number: int) -> int:
        """Replace the last 64 bits: of what is made of hardware the last 24, else all that was drawn by chance."""
        if number < _SMALL:
            return number
        is_of_hardware = (number >> 24) & 0xFFFF == _OF_MAC or number in self._guids
        return self._made_up.low_24(number) if is_of_hardware else self._made_up.number(f"interface {number}", 64)

    def _scrambled(self, value: int, width: int, kept: int) -> int:
        """Flip each bit, or not, by all the bits before it: two numbers share as long a prefix as they did."""
        for place in range(width - kept - 1, -1, -1):
            if self._made_up.flips(f"{width} {place} {value >> (place + 1)}"):
                value ^= 1 << place
        return value


def _v4(text: str) -> IPv4Address | None:
    try:
        return IPv4Address(text)
    except ValueError:
        return None


def _v6(text: str) -> IPv6Address | None:
    try:
        return IPv6Address(text)
    except ValueError:
        return None


def _tells_nothing(address: IPv4Address) -> bool:
    """Tell whether it is an address that every machine has, or a mask."""
    is_common = address.is_loopback or address.is_link_local or address.is_multicast or address.is_reserved
    return is_common or int(address) < 2**24


def _with_edge(value: int, real: int, bits: int) -> int:
    """Keep the last bits where they name a network (all zero) or all of its members (all one)."""
    mask = 2**bits - 1
    return value & ~mask | real & mask if real & mask in {0, mask} else value
