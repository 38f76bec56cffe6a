"""What a word of the driver's tools comes to: a value, nothing of the kind, or a failure to tell."""

import re
from typing import Final, NamedTuple

from llmgw.core.units import MIB


class Failed(NamedTuple):
    """The driver was asked and could not tell; its words."""

    words: str


Word = str | Failed | None
"""A value; None where there is nothing of the kind."""

LOST: Final = re.compile(r"GPU is lost|GPU requires re(?:set|start)", re.IGNORECASE)
"""By these words a card says that it can do nothing; NVML_ERROR_GPU_IS_LOST and NVML_ERROR_RESET_REQUIRED."""
NOT_ALLOWED: Final = re.compile(r"insufficient permissions?|no permission", re.IGNORECASE)

# Texts of nvmlErrorString that mean "there is none here": NOT_SUPPORTED, DEPRECATED, FUNCTION_NOT_FOUND, NOT_FOUND.
_ABSENT: Final = re.compile(
    r"n/?a|not supported|not available|-+|requested functionality has been deprecated|function not found|not found"
    r"|not applicable|none observed",
    re.IGNORECASE,
)
_FAILED: Final = re.compile(
    r"unknown error|err!?|error|timeout|timed out|gpu is lost|gpu requires re(?:set|start)|no permission"
    r"|insufficient (?:permissions?|size|power)|uninitialized|invalid (?:argument|state)|internal (?:driver )?error"
    r"|info ?rom (?:is )?corrupted|driver not loaded|driver/library version mismatch|gpu not found"
    r"|unable to .*|failed.*",
    re.IGNORECASE,
)
_NUMBER: Final = re.compile(r"([-+]?\d+(?:\.\d+)?)\s*([A-Za-z%/()]*)")
_BYTES: Final = {"": MIB, "b": 1, "kb": 1024, "kib": 1024, "mb": MIB, "mib": MIB, "gb": 1024 * MIB, "gib": 1024 * MIB}
_YES: Final = {"yes", "enabled", "active", "true", "on", "1"}
_NO: Final = {"no", "disabled", "not active", "inactive", "false", "off", "0"}


def read(text: str | None) -> Word:
    """Tell the three apart, in every spelling that drivers use; csv puts the latter two into square brackets."""
    word = (text or "").strip()
    bare = word[1:-1].strip() if word.startswith("[") and word.endswith("]") else word
    if not bare or _ABSENT.fullmatch(bare):
        return None
    return Failed(bare) if _FAILED.fullmatch(bare.rstrip(".")) else word


def number(word: str) -> float | Failed:
    """Read a number with or without its unit: `36 C`, `66.92 W`, ` 40 % `, `16x`, `96 bank(s)`."""
    found = _NUMBER.fullmatch(word.strip())
    return float(found[1]) if found else Failed(word)


def whole(word: str) -> int | Failed:
    """Read a whole number with or without its unit."""
    told = number(word)
    return told if isinstance(told, Failed) else int(told)


def amount(word: str) -> int | Failed:
    """Read an amount of memory as bytes: `81920 MiB`; without a unit it is MiB, as csv without units has it."""
    found = _NUMBER.fullmatch(word.strip())
    size = _BYTES.get(found[2].lower()) if found else None
    return int(float(found[1]) * size) if found and size and float(found[1]) >= 0 else Failed(word)


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
