"""Made-up identities: each stands for a real one of the same form, always the same, and tells nothing of it."""

import hashlib
import hmac
import string
from collections import defaultdict
from typing import Final

_HEXADECIMAL: Final = "0123456789abcdef"
_ALPHABETS: Final = (string.digits, string.ascii_lowercase, string.ascii_uppercase)
_LOW_24: Final = 0xFFFFFF


class MadeUp:
    """The made-up identities of one recording; another `key` makes others."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._known: dict[str, dict[str, str]] = defaultdict(dict)
        self._low_24: dict[int, int] = {}

    @property
    def counts(self) -> dict[str, int]:
        """How many different identities of each kind were replaced."""
        return {kind: len(values) for kind, values in sorted(self._known.items())}

    def note(self, kind: str, real: str, made_up: str) -> str:
        """Count an identity and return what stands for it."""
        self._known[kind][real.lower()] = made_up
        return made_up

    def word(self, kind: str, real: str) -> str:
        """Replace digits by digits and letters by letters, the rest stays: names and serial numbers."""
        return self.note(kind, real, self._same_form(real, _ALPHABETS))

    def digits(self, kind: str, real: str) -> str:
        """Replace hexadecimal digits by such: UUIDs."""
        made_up = self._same_form(real.lower(), (_HEXADECIMAL,))
        return self.note(kind, real, made_up.upper() if real.isupper() else made_up)

    def low_24(self, real: int) -> int:
        """Replace the last 24 bits of a number, which tell one adapter of a maker from another.

        A port's GUID, its MAC address and its link-local address are made of the same 24 bits, and stay so.
        """
        low = real & _LOW_24
        if low not in self._low_24:
            self._low_24[low] = self._unused(low)
        return real & ~_LOW_24 | self._low_24[low]

    def flips(self, text: str) -> bool:
        """Toss a coin that always falls alike for the same text."""
        return bool(self._stream(text)[0] & 1)

    def number(self, text: str, bits: int) -> int:
        """Draw a number that is always the same for the same text; up to 256 bits."""
        return int.from_bytes(self._stream(text), "big") >> (256 - bits)

    def _unused(self, low: int) -> int:
        taken, attempt = set(self._low_24.values()), 0
        while (drawn := self.number(f"24 {low} {attempt}", 24)) in taken:
            attempt += 1
        return drawn

    def _same_form(self, text: str, alphabets: tuple[str, ...]) -> str:
        return "".join(self._letter(text, place, alphabets) for place in range(len(text)))

    def _letter(self, text: str, place: int, alphabets: tuple[str, ...]) -> str:
        letter = text[place]
        alphabet = next((letters for letters in alphabets if letter in letters), letter)
        return alphabet[self.number(f"{text} {place}", 32) % len(alphabet)]

    def _stream(self, text: str) -> bytes:
        return hmac.new(self._key, text.encode(), hashlib.sha256).digest()
