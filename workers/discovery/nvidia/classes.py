"""Names the class of a card by what the driver tells, and knows the compute capability of those that do not tell it."""

import re
from typing import Final

from llmgw.core.units import GIB, Bytes

_FORM_WORDS: Final = re.compile(
    r"nvidia|tesla|geforce|grid|quadro|graphics|device|generation|edition|gpu|pcie?|sxm\d?|nvl|hbm\w*|\d+gb",
    re.IGNORECASE,
)
_VGPU: Final = re.compile(r"\b([A-Z]+\d+[A-Z]*)-((?:\d+-)?\d+(?:CME|[ABCQ]))$", re.IGNORECASE)
"""A profile of a virtual card: `A100-10C`, and `A100X-1-5C` for one backed by a MIG instance."""
_MIG_VGPU: Final = re.compile(r"-\d+-\d+(?:CME|[ABCQ])$", re.IGNORECASE)
_UNIFIED: Final = re.compile(r"\bGB10\b|\bThor\b|\bOrin\b|\bXavier\b|\bTegra\b", re.IGNORECASE)

# Compute capability by product, from NVIDIA's table of CUDA GPUs; the first that matches decides.
_CAPABILITIES: Final = tuple(
    (re.compile(pattern, re.IGNORECASE), capability)
    for pattern, capability in (
        (r"\bGB10\b", "12.1"),
        (r"\bRTX PRO\b.*Blackwell|\bRTX 50\d\d", "12.0"),
        (r"\bThor\b", "11.0"),
        (r"\bG?B300\b", "10.3"),
        (r"\b(?:G?B200|B100)\b", "10.0"),
        (r"\b(?:GH200|H[128]00|H20)\w*\b", "9.0"),
        (r"\bL(?:2|4|20|40S?|40G)\b|\bAda\b|\bRTX 40\d\d", "8.9"),
        (r"\bOrin\b", "8.7"),
        (r"\bA(?:100|800|30)\w*\b", "8.0"),
        (r"\bA(?:2|10|10G|10M|16|40)\b|\bA[2-6][05]00\b|\bRTX 30\d\d|\bRTX A\d+", "8.6"),
        (r"\bT4G?\b|\bT[46]00\b|\bT1000\b|Quadro RTX|TITAN RTX|\bRTX 20\d\d|\bGTX 16\d\d", "7.5"),
        (r"\bV100\w*\b|TITAN V\b|\bGV100\b", "7.0"),
        (r"\bP(?:40|4|6)\b|\bGTX 10\d\d|Quadro P\d+|TITAN Xp?\b", "6.1"),
        (r"\bP100\b|\bGP100\b", "6.0"),
        (r"\bM(?:60|40|4|6|10)\b", "5.2"),
    )
)
_USUAL_GIB: Final = (
    (re.compile(r"\bH200\b"), 140),
    (re.compile(r"\bB200\b"), 179),
    (re.compile(r"\bGB200\b"), 185),
    (re.compile(r"\bH100 NVL\b"), 94),
    (re.compile(r"\bGH200\b"), 96),
    (re.compile(r"\bA30\b"), 24),
    (re.compile(r"RTX PRO 6000"), 96),
)
"""Memory of cards that come in one size alone and can be cut, for where the card's own may not be read."""


def gpu_class(name: str, memory: Bytes | None) -> str | None:
    """Name a class by the product and the driver's own count of whole GiB, not by what the vendor sells: `l40s-45g`."""
    model = _model(name)
    if not model or memory is None:
        return model or None
    return f"{model}-{round(memory / GIB)}g"


def mig_class(name: str, memory: Bytes | None, profile: str) -> str | None:
    """Name the class of an instance after its card and profile: `a100-80g-mig-3g.40gb`.

    In a container the card's memory may not be read: then it is taken from the product, if that comes in one size.
    """
    card = gpu_class(name, memory or usual_memory(name))
    return f"{card}-mig-{profile.lower()}" if card else None


def usual_memory(name: str) -> Bytes | None:
    """Return the memory of a card by its name, where the name tells: `80GB`, or one that comes in one size alone."""
    told = re.search(r"(?<!GH200 )\b(\d{2,3})GB\b", name)
    gib = int(told[1]) if told else next((gib for pattern, gib in _USUAL_GIB if pattern.search(name)), None)
    return None if gib is None else Bytes(gib * GIB)


def capability(name: str | None) -> str | None:
    """Return a product's compute capability; None for one that is not in the table."""
    return next((told for pattern, told in _CAPABILITIES if pattern.search(name or "")), None)


def is_unified(name: str | None) -> bool:
    """Tell whether a product has no memory of its own and uses the machine's."""
    return _UNIFIED.search(name or "") is not None


def is_vgpu_on_mig(name: str | None) -> bool:
    """Tell whether a virtual card's name says that a MIG instance is behind it: to its guest it is a whole card."""
    return _MIG_VGPU.search(name or "") is not None


def _model(name: str) -> str:
    if virtual := _VGPU.search(name):
        return f"{virtual[1]}-{virtual[2]}".lower()
    words = [word.lower() for word in re.split(r"[\s-]+", name) if word and not _FORM_WORDS.fullmatch(word)]
    if words[:1] == ["rtx"] and words[1:] and words[1].startswith("a"):
        words = words[1:]  # an RTX A6000 is called A6000; an RTX 6000 Ada is another card
    model = re.sub(r"[^a-z0-9.]", "", "".join(words))
    return model or re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
