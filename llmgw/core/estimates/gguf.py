"""Reads the head of a GGUF file: the model's shape and the bytes of its tensors.

Format: `docs/gguf.md` of the ggml project, versions 2 and 3, little-endian. Sizes of blocks: `ggml-common.h`.
"""

import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from llmgw.core.estimates.architecture import Architecture, Attention, Quantization, Unreadable
from llmgw.core.units import Bytes

_MAGIC: Final = b"GGUF"
_VERSIONS: Final = (2, 3)
_MOST_KEYS: Final = 10_000
_MOST_TENSORS: Final = 200_000
_LONGEST_TEXT: Final = 1 << 20
_SCALARS: Final[Mapping[int, str]] = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d",
}  # fmt: skip
_STRING, _ARRAY = 8, 9
_KEPT: Final = 4096
"""So many elements of an array are kept: the tokens of a vocabulary are passed over."""
_BLOCKS: Final[Mapping[int, tuple[int, int]]] = {
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 9: (32, 40),
    10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 15: (256, 292),
    16: (256, 66), 17: (256, 74), 18: (256, 98), 19: (256, 50), 20: (32, 18), 21: (256, 110), 22: (256, 82),
    23: (256, 136), 24: (1, 1), 25: (1, 2), 26: (1, 4), 27: (1, 8), 28: (1, 8), 29: (256, 56), 30: (1, 2),
    34: (256, 54), 35: (256, 66), 39: (32, 17), 40: (64, 36), 41: (128, 18),
}  # fmt: skip
"""Type of a tensor → elements of a block and its bytes."""


class _Odd(Exception):
    """The bytes are not what the format says."""


@dataclass(frozen=True, slots=True)
class Gguf:
    """What a file, or the first of several parts, tells."""

    architecture: Architecture
    tensors: Bytes
    """Of this file alone."""
    parts: int = 1


class _Reader:
    """Bytes, read in order; what is not there is `_Odd`, whatever length somebody has written down."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, many: int) -> bytes:
        """Return the next bytes."""
        if many < 0 or self._at + many > len(self._data):
            raise _Odd("the file ends within its head")
        self._at += many
        return self._data[self._at - many : self._at]

    def number(self, form: str) -> Any:
        """Return one number."""
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def count(self, most: int, what: str) -> int:
        """Return a count, which must be one that can be."""
        told: int = self.number("<Q")
        if told > most:
            raise _Odd(f"it tells of {told} {what}")
        return told

    def text(self) -> str:
        """Return a text."""
        return self.take(self.count(_LONGEST_TEXT, "bytes of one text")).decode("utf-8", "replace")

    def value(self, kind: int, depth: int = 0) -> Any:
        """Return one value of the metadata; of long arrays the first elements."""
        if kind == _STRING:
            return self.text()
        if kind == _ARRAY and depth < 4:
            inner: int = self.number("<I")
            return [
                value for value in self._elements(inner, self.count(1 << 32, "elements"), depth) if value is not None
            ]
        if kind not in _SCALARS:
            raise _Odd(f"it holds a value of type {kind}, which is not known")
        return self.number(_SCALARS[kind])

    def _elements(self, kind: int, many: int, depth: int) -> Iterator[Any]:
        if kind in _SCALARS:
            size = struct.calcsize(_SCALARS[kind])
            kept = min(many, _KEPT)
            yield from (self.number(_SCALARS[kind]) for _ in range(kept))
            self.take(size * (many - kept))
            return
        for at in range(many):
            value = self.value(kind, depth + 1)
            yield value if at < _KEPT else None


def parse(data: bytes) -> Gguf | Unreadable:
    """Read the head of a file; raises nothing."""
    try:
        return _parse(_Reader(data))
    except (_Odd, struct.error) as odd:
        return Unreadable("GGUF", str(odd))


def _parse(reader: _Reader) -> Gguf:
    if reader.take(4) != _MAGIC:
        raise _Odd("it does not begin as GGUF")
    version: int = reader.number("<I")
    if version not in _VERSIONS:
        raise _Odd(f"it is of version {version}, read are {' and '.join(map(str, _VERSIONS))}")
    tensors, keys = reader.count(_MOST_TENSORS, "tensors"), reader.count(_MOST_KEYS, "keys")
    facts = {}
    for _ in range(keys):
        name = reader.text()
        facts[name] = reader.value(reader.number("<I"))
    kinds: dict[int, int] = {}
    for _ in range(tensors):
        kind, size = _tensor(reader)
        kinds[kind] = kinds.get(kind, 0) + size
    parts = facts.get("split.count")
    return Gguf(
        _architecture(facts, kinds), Bytes(sum(kinds.values())), parts if isinstance(parts, int) and parts else 1
    )


def _tensor(reader: _Reader) -> tuple[int, int]:
    """Return the type of a tensor and its bytes."""
    reader.text()
    dimensions: int = reader.number("<I")
    if dimensions > 8:
        raise _Odd(f"a tensor has {dimensions} dimensions")
    elements = 1
    for _ in range(dimensions):
        elements *= reader.number("<Q")
    kind: int = reader.number("<I")
    reader.number("<Q")  # where it is
    if kind not in _BLOCKS:
        raise _Odd(f"a tensor is of type {kind}, which is not known")
    block, size = _BLOCKS[kind]
    return kind, elements // block * size


# --- the shape ----------------------------------------------------------------------------------------------------


def _architecture(facts: Mapping[str, Any], kinds: Mapping[int, int]) -> Architecture:
    kind = facts.get("general.architecture")
    told = {name.removeprefix(f"{kind}."): value for name, value in facts.items() if name.startswith(f"{kind}.")}
    layers, heads = _count(told.get("block_count")), _largest(told.get("attention.head_count"))
    hidden = _count(told.get("embedding_length"))
    length = hidden // heads if hidden and heads else None
    key = _count(told.get("attention.key_length")) or length
    rank, rope = _count(told.get("attention.kv_lora_rank")), _count(told.get("rope.dimension_count"))
    return Architecture(
        kind=kind if isinstance(kind, str) else None,
        layers=layers,
        heads=heads,
        key_value_heads=_largest(told.get("attention.head_count_kv")) or heads,
        key_length=key,
        value_length=_count(told.get("attention.value_length")) or length,
        hidden=hidden,
        intermediate=_largest(told.get("feed_forward_length")),
        expert_intermediate=_count(told.get("expert_feed_forward_length")),
        experts=_count(told.get("expert_count")),
        vocabulary=_count(told.get("vocab_size")),
        context=_count(told.get("context_length")),
        dtype="float16",
        latent=rank + rope if rank and rope else None,
        window=_count(told.get("attention.sliding_window")),
        attention=_attention(told, layers),
        quantization=Quantization("gguf") if any(_BLOCKS[each][0] > 1 for each in kinds) else None,
    )


def _attention(told: Mapping[str, Any], layers: int | None) -> Mapping[Attention, int] | None:
    """Tell layers without key-value heads, as those of Mamba, from those with; sliding ones count at their bound."""
    heads = told.get("attention.head_count_kv")
    if layers is None or layers > 10_000:
        return None
    if any(name.startswith("ssm.") for name in told) and not isinstance(heads, list):
        return None
    if isinstance(heads, list) and len(heads) == layers:
        return Counter(Attention.FULL if many else Attention.CONSTANT for many in heads)
    return {Attention.FULL: layers}


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**40 else None


def _largest(value: object) -> int | None:
    """Read a number, or the largest of one for each layer."""
    if isinstance(value, list):
        return max((found for each in value if (found := _count(each))), default=None)
    return _count(value)
