"""What a word of the driver's tools comes to: a value, nothing of the kind, or a failure to tell."""

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from llmgw.core.units import MIB


class Failed(NamedTuple):
    """The driver was asked and could not tell; its words."""

    words: str


Word = str | Failed | None
"""A value; None where there is nothing of the kind."""

LOST: Final = re.compile(r"\[?(GPU is lost|GPU requires re(?:set|start))", re.IGNORECASE)
"""By these words a card says that it can do nothing; NVML_ERROR_GPU_IS_LOST and NVML_ERROR_RESET_REQUIRED."""
NOT_ALLOWED: Final = re.compile(r"insufficient permissions?|no permission", re.IGNORECASE)

# Texts of nvmlErrorString that mean "there is none here", or that this driver is older or newer than the question:
# NOT_SUPPORTED, DEPRECATED, FUNCTION_NOT_FOUND, NOT_FOUND, ARGUMENT_VERSION_MISMATCH, FREQ_NOT_SUPPORTED.
_ABSENT: Final = re.compile(
    r"n/?a|(?:freq(?:uency)? )?not supported|not available|-+|(?:requested functionality has been )?deprecated"
    r"|(?:function )?not found|not applicable|none observed|argument version mismatch|unknown",
    re.IGNORECASE,
)
# All the others of nvmlErrorString, and how nvidia-smi shortens them.
_FAILED: Final = re.compile(
    r"(?:unknown )?error|err!?|time(?:out|d out)|gpu is lost.*|gpu requires re(?:set|start).*|no permission"
    r"|insufficient (?:permissions?|size|(?:external )?power|memory|resources)|uninitialized|already initialized"
    r"|invalid (?:argument|state)|internal (?:driver )?error|interrupt request issue|info ?rom (?:is )?corrupted"
    r"|corrupted info ?rom|driver not loaded|driver/library version mismatch|gpu not found|in use|no data|not ready"
    r"|nvml shared library not found|the operating system has blocked the request|unable to .*|failed.*"
    r"|rm has detected an nvml/rm version mismatch",
    re.IGNORECASE,
)
# No longer than any driver prints, so that it always is a number of this machine.
_NUMBER: Final = re.compile(r"([-+]?[0-9]{1,18}(?:\.[0-9]{1,9})?)\s*([A-Za-z%/()]*)")
_BYTES: Final[Mapping[str, int]] = MappingProxyType(
    {"": MIB, "b": 1, "kb": 1024, "kib": 1024, "mb": MIB, "mib": MIB, "gb": 1024 * MIB, "gib": 1024 * MIB}
)
_YES: Final = frozenset({"yes", "enabled", "active", "true", "on", "1"})
_NO: Final = frozenset({"no", "disabled", "not active", "inactive", "false", "off", "0"})


def read(text: str | None) -> Word:
    """Tell the three apart, in every spelling that drivers use; csv puts the latter two into square brackets."""
    word = (text or "").strip()
    bare = word[1:-1].strip() if word.startswith("[") and word.endswith("]") else word
    if not bare or _ABSENT.fullmatch(bare):
        return None
    return Failed(bare) if _FAILED.fullmatch(bare.rstrip(".")) else word


def known(text: str | None) -> str | None:
    """Return a value of which nobody needs to hear that it could not be told."""
    word = read(text)
    return word if isinstance(word, str) else None


def in_unit(*units: str) -> Callable[[str], float | Failed]:
    """Return what reads a number in one of these units, or without any, as csv without units has it."""

    def read_number(word: str) -> float | Failed:
        found = _NUMBER.fullmatch(word.strip())
        return float(found[1]) if found and found[2].lower() in {"", *units} else Failed(word)

    return read_number


def _whole_in(*units: str) -> Callable[[str], int | Failed]:
    read_number = in_unit(*units)

    def read_whole(word: str) -> int | Failed:
        told = read_number(word)
        return told if isinstance(told, Failed) else int(told)

    return read_whole


watts: Final = in_unit("w")
celsius: Final = _whole_in("c")
megahertz: Final = _whole_in("mhz")
percent: Final = _whole_in("%")
whole: Final = _whole_in("x", "bank(s)")
"""Counts: `4`, `16x`, `96 bank(s)`."""


def amount(word: str) -> int | Failed:
    """Read an amount of memory as bytes: `81920 MiB`; without a unit it is MiB, as csv without units has it."""
    found = _NUMBER.fullmatch(word.strip())
    size = _BYTES.get(found[2].lower()) if found else None
    return int(float(found[1]) * size) if found and size and float(found[1]) >= 0 else Failed(word)


def count(text: str | None) -> int | None:
    """Read a count of which nobody needs to hear that it could not be told."""
    word = known(text)
    told = None if word is None else whole(word)
    return told if isinstance(told, int) else None


def flag(word: str) -> bool | Failed:
    """Read `Yes`, `Enabled`, `Active` and their like."""
    told = word.strip().lower()
    return Failed(word) if told not in _YES | _NO else told in _YES


def lower(word: str) -> str:
    """Read words as they are kept: in lower case, with single blanks."""
    return " ".join(word.lower().split())


def dashed(word: str) -> str:
    """Read words as one: `Exclusive_Process` and `GPU Reset` become `exclusive-process` and `gpu-reset`."""
    return re.sub(r"[\s_]+", "-", word.strip().lower())


_ACTIONS: Final[Mapping[str, str]] = MappingProxyType({"reset": "gpu-reset", "reboot": "node-reboot"})


def action(word: str) -> str:
    """Read what a card asks for: NVML's enumeration has `GPU_RESET` where most drivers print `Reset`."""
    told = dashed(word)
    return _ACTIONS.get(told, told)


def of_flags(*, reset: bool | None, drain: bool | None) -> str | None:
    """Return the action that two flags of drivers before R565 stand for; None where they do not say."""
    if reset:
        return "gpu-reset"
    if drain:
        return "drain-and-reset"
    return "none" if reset is False and drain is False else None


def licence(word: str) -> str:
    """Read the state of a vGPU's licence, without when it ends: `Licensed (Expiry: 2026-7-7 16:1:44 GMT)`."""
    return re.sub(r"\s*\(expir[^)]*\)", "", lower(word))


def card_uuid(word: str) -> str | Failed:
    """Read the identity of a card."""
    return word if word.startswith("GPU-") else Failed(word)


def instance_uuid(word: str) -> str | Failed:
    """Read the identity of an instance: `MIG-<uuid>`, before R470 `MIG-GPU-<uuid of the card>/<gi>/<ci>`."""
    return word if word.startswith("MIG-") else Failed(word)


def says_lost(text: str) -> str | None:
    """Return the words by which a card says that it can do nothing, if these are such."""
    found = LOST.match(text.strip())
    return found[1] if found else None
