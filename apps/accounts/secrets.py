"""What secrets look like: made at random, recognised by their prefix, checked by their end, kept as hashes."""

import hashlib
import secrets
import string
import zlib
from dataclasses import dataclass
from typing import Final

_ALPHABET: Final = string.digits + string.ascii_letters
_RANDOM: Final = 32
"""Characters of 62 kinds: 190 bits."""
_CHECK: Final = 6

KEY_BEGINS: Final = "llmgw-"
"""Begins every inference key."""
TOKEN_BEGINS: Final = "llmgw_"  # noqa: S105  # how secrets begin is no secret
"""Begins every token of the management API; a secret scanner finds either by this."""
_SHOWN_OF_KEY: Final = 6
_ID: Final = 8


@dataclass(frozen=True, slots=True)
class Secret:
    """A secret that was just made. It is shown once; only its prefix and its hash are kept."""

    text: str
    prefix: str

    @property
    def sha256(self) -> str:
        """Return what is kept of it."""
        return hashed(self.text)


def new_key() -> Secret:
    """Make an inference key: `llmgw-<secret and checksum>`."""
    secret = _random(_RANDOM)
    return Secret(_checked(KEY_BEGINS + secret), KEY_BEGINS + secret[:_SHOWN_OF_KEY])


def new_token() -> Secret:
    """Make a token of the management API: `llmgw_<id>_<secret and checksum>`."""
    prefix = TOKEN_BEGINS + _random(_ID)
    return Secret(_checked(f"{prefix}_{_random(_RANDOM)}"), prefix)


def new_link() -> Secret:
    """Make what a sign-in link carries; it lives too briefly to be recognised by anything."""
    return Secret(_random(_RANDOM), "")


def prefix_of_token(text: str) -> str | None:
    """Return the id by which a token is looked up; None for what is no token, or one with a typing error."""
    if not text.startswith(TOKEN_BEGINS) or not text.isascii() or _checked(text[:-_CHECK]) != text:
        return None
    return text[: len(TOKEN_BEGINS) + _ID]


def hashed(text: str) -> str:
    """Return the hexadecimal SHA-256; enough for what is random and long, unlike a password."""
    return hashlib.sha256(text.encode()).hexdigest()


def _random(length: int) -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(length))


def _checked(text: str) -> str:
    """Append a checksum, so that a secret which was cut or mistyped can be told from one that is not ours."""
    number, digits = zlib.crc32(text.encode()), ""
    for _ in range(_CHECK):
        number, digit = divmod(number, len(_ALPHABET))
        digits += _ALPHABET[digit]
    return text + digits
