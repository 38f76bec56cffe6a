"""Names the class of a card by what the driver tells, and knows the compute capability of those that do not tell it."""

import re
from typing import Final

from llmgw.core.units import GIB, MIB, Bytes

_FORM_WORDS: Final = re.compile(
    r"nvidia|tesla|geforce|grid|quadro|graphics|device|generation|edition|gpu|pcie?|sxm\d?|nvl|hbm\w*|\d{2,}gb?|ac|lc",
    re.IGNORECASE,
)
"""Vendor, board, cooling and memory; what is left is the product."""
_VGPU: Final = re.compile(r"(.+?)-((?:\d+-)?\d+(?:CME|[ABCQ](?:GFX|NOGFX|ME)?))", re.IGNORECASE)
"""A profile of a virtual card: `A100-10C`, and `A100X-1-5C` for one backed by a MIG instance."""
_UNIFIED: Final = re.compile(r"\bGB10\b|\bThor\b|\bOrin\b|\bXavier\b|\bTegra\b", re.IGNORECASE)
_UNIFIED_CAPABILITY: Final = "12.1"
"""Of GB10 alone, whatever it is called."""

# Compute capability by product, from NVIDIA's table of CUDA GPUs; the first that matches decides.
_CAPABILITIES: Final = tuple(
    (re.compile(pattern, re.IGNORECASE), capability)
    for pattern, capability in (
        (r"\bGB10\b", "12.1"),
        (r"\bRTX PRO\b|\bRTX 50[5-9]0", "12.0"),
        (r"\bThor\b", "11.0"),
        (r"\bG?B300\b", "10.3"),
        (r"\b(?:G?B200|B100)\b", "10.0"),
        (r"\b(?:GH200|H[128]00|H20)[A-Z]*\b", "9.0"),
        (r"\bL(?:2|4|20|40S?|40G)\b|\bAda\b|\bRTX 40[5-9]0", "8.9"),
        (r"\bOrin\b", "8.7"),
        (r"\bA(?:100|800|30)[A-Z]*\b", "8.0"),
        (r"\bA(?:2|10|10G|10M|16|40)\b|\bRTX 30[5-9]0|\b(?:RTX ?)?A(?:[45]00|[1-6]000|[45]500)\b", "8.6"),
        (r"\bT4G?\b|\bT[46]00\b|\bT1000\b|Quadro RTX|TITAN RTX|\bRTX 20[5-8]0|\bGTX 16[5-6]0", "7.5"),
        (r"\bXavier\b", "7.2"),
        (r"\bV100[A-Z]*\b|TITAN V\b|\bGV100\b", "7.0"),
        (r"\bP(?:40|4|6)\b|\bGTX 10\d\d|Quadro P\d+|TITAN Xp?\b", "6.1"),
        (r"\bP100\b|\bGP100\b", "6.0"),
        (r"\bM(?:60|40|4|6|10)\b", "5.2"),
    )
)

# Product, MiB that its drivers tell, and the GiB of its class. Drivers differ by a little in what they keep for
# themselves, so a figure that is near one of these is the same class; all others are rounded.
_KNOWN: Final = (
    ("a100", 40960, 40),
    ("a100", 81920, 80),
    ("a800", 81920, 80),
    ("a30", 24576, 24),
    ("h100", 81559, 80),
    ("h100", 95830, 94),
    ("h800", 81559, 80),
    ("h20", 97871, 96),
    ("h200", 143771, 140),
    ("gh200", 97871, 96),
    ("b200", 183359, 179),
    ("gb200", 189471, 185),
    ("l4", 23034, 22),
    ("l40", 46068, 45),
    ("l40s", 46068, 45),
    ("a10", 23028, 22),
    ("a10g", 23028, 22),
    ("a40", 46068, 45),
    ("t4", 15360, 15),
    ("v100", 16384, 16),
    ("v100", 32768, 32),
    ("v100s", 32510, 32),
)
_LONGEST: Final = 36
"""Characters of a product; a class has 64 with memory and an instance's profile."""
_NEAR: Final = 0.02
_USUAL_GIB: Final = (
    (re.compile(r"\bH200\b"), 140),
    (re.compile(r"\bB200\b"), 179),
    (re.compile(r"\bGB200\b"), 185),
    (re.compile(r"\bH100 NVL\b"), 94),
    (re.compile(r"\bH[18]00 PCIe\b"), 80),
    (re.compile(r"\bGH200 480GB\b"), 96),
    (re.compile(r"\bA30\b"), 24),
    (re.compile(r"RTX PRO 6000"), 96),
)
"""Memory of cards that come in one size alone and can be cut, for where the card's own may not be read."""


def gpu_class(name: str, memory: Bytes | None) -> str | None:
    """Name a class by the product and the driver's own count of whole GiB, not by what the vendor sells: `l40s-45g`."""
    model = _model(name)
    if not model or memory is None:
        return model or None
    return f"{model}-{_gib(model, memory)}g"


def _gib(model: str, memory: Bytes) -> int:
    usual = (gib for product, mib, gib in _KNOWN if product == model and abs(memory / MIB / mib - 1) <= _NEAR)
    return next(usual, round(memory / GIB))


def mig_class(name: str, memory: Bytes | None, profile: str) -> str | None:
    """Name the class of an instance after its card and profile: `a100-80g-mig-3g.40gb`.

    In a container the card's memory may not be read: then it is taken from the product, if that comes in one size.
    """
    card = gpu_class(name, memory or usual_memory(name))
    return f"{card}-mig-{profile.lower()}" if card else None


def usual_memory(name: str) -> Bytes | None:
    """Return the memory of a card by its name, where the name tells: `80GB`, or one that comes in one size alone."""
    usual = next((gib for pattern, gib in _USUAL_GIB if pattern.search(name)), None)
    told = re.search(r"\b(\d{2,3})GB\b", name)
    gib = usual or (int(told[1]) if told else None)
    return None if gib is None else Bytes(gib * GIB)


def capability(name: str | None) -> str | None:
    """Return a product's compute capability; None for one that is not in the table."""
    return next((told for pattern, told in _CAPABILITIES if pattern.search(name or "")), None)


def is_unified(name: str | None, capability: str | None = None) -> bool:
    """Tell whether a product has no memory of its own and uses the machine's."""
    return capability == _UNIFIED_CAPABILITY or _UNIFIED.search(name or "") is not None


def is_vgpu_on_mig(name: str | None) -> bool:
    """Tell whether a virtual card's name says that a MIG instance is behind it: to its guest it is a whole card."""
    virtual = _VGPU.fullmatch(name or "")
    return virtual is not None and "-" in virtual[2]


def _model(name: str) -> str:
    if virtual := _VGPU.fullmatch(name.strip()):
        return f"{_model(virtual[1])}-{virtual[2]}".lower()
    bare = re.sub(r"\(.*?\)", " ", name)
    words = [word.lower() for word in re.split(r"[\s-]+", bare) if word and not _FORM_WORDS.fullmatch(word)]
    if words[:1] == ["rtx"] and words[1:] and words[1].startswith("a"):
        words = words[1:]  # an RTX A6000 is called A6000; an RTX 6000 Ada is another card
    model = re.sub(r"[^a-z0-9.]", "", "".join(words)).strip(".")
    return (model or re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-"))[:_LONGEST]
