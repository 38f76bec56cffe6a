"""How many bytes of weights an engine loads from a repository: each weight once, and nothing else.

Formats: the header of the safetensors format (github.com/huggingface/safetensors, README), the index that Transformers
writes beside files in parts (`model.safetensors.index.json`).
"""

import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from llmgw.core.estimates.architecture import Unreadable
from llmgw.core.units import Bytes

_LENGTH: Final = 8
_LONGEST_HEADER: Final = 100 * 1024**2
"""The format's own limit."""
_NOT_LOADED: Final = re.compile(
    r"(^|/)(original|consolidated|checkpoint-\d+|optimizer|onnx|openvino|gguf|coreml|flax|mlx)([./_-]|$)"
    r"|(^|/)(training_args|optimizer|scheduler|rng_state|trainer_state)[^/]*$"
    r"|(^|/)(adapter_model|consolidated)[^/]*$",
    re.IGNORECASE,
)
"""Other forms of the same weights, and what is left of their training."""
_PART: Final = re.compile(r"-(\d{5})-of-(\d{5})(?=\.\w+$)")
_FORMS: Final = (".safetensors", ".gguf", ".bin", ".pth", ".pt")
"""Of weights that are there in several, engines load the first."""


@dataclass(frozen=True, slots=True)
class Header:
    """What the head of a safetensors file tells of its tensors."""

    bytes_of: Mapping[str, int]
    """Bytes by type of element: `BF16`, `F8_E4M3`."""
    tensors: int

    @property
    def total(self) -> Bytes:
        """Return the bytes of all tensors."""
        return Bytes(sum(self.bytes_of.values()))


def header_length(start: bytes) -> int | None:
    """Return how long the header behind the first eight bytes is; None where there cannot be one."""
    if len(start) < _LENGTH:
        return None
    length = int.from_bytes(start[:_LENGTH], "little")
    return length if 2 <= length <= _LONGEST_HEADER else None


def parse_header(start: bytes) -> Header | Unreadable:
    """Read the head of a safetensors file, of which at least the header must be there; raises nothing."""
    length = header_length(start)
    if length is None or len(start) < _LENGTH + length:
        return Unreadable("safetensors", "the file ends within its header, or has none")
    try:
        document = json.loads(start[_LENGTH : _LENGTH + length])
    except (ValueError, RecursionError):
        return Unreadable("safetensors", "the header is no JSON")
    if not isinstance(document, dict):
        return Unreadable("safetensors", "the header holds no mapping")
    return _header(document)


def _header(document: Mapping[str, Any]) -> Header | Unreadable:
    bytes_of: dict[str, int] = {}
    tensors = 0
    for name, told in document.items():
        if name == "__metadata__":
            continue
        size = _size(told)
        if size is None:
            return Unreadable("safetensors", f"the header does not tell where tensor {name[:80]} is")
        kind = str(told.get("dtype"))[:16]
        bytes_of[kind] = bytes_of.get(kind, 0) + size
        tensors += 1
    return Header(MappingProxyType(bytes_of), tensors)


def _size(told: object) -> int | None:
    offsets = told.get("data_offsets") if isinstance(told, dict) else None
    if not (isinstance(offsets, list) and len(offsets) == 2 and all(type(each) is int for each in offsets)):
        return None
    begin, end = offsets
    return end - begin if 0 <= begin <= end else None


def parse_index(text: str) -> Collection[str] | Unreadable:
    """Return the files that `model.safetensors.index.json` names; what else lies beside them is not loaded."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return Unreadable("model.safetensors.index.json", "is no JSON")
    told = document.get("weight_map") if isinstance(document, dict) else None
    if not isinstance(told, dict) or not all(isinstance(name, str) for name in told.values()):
        return Unreadable("model.safetensors.index.json", "has no `weight_map` of names")
    return frozenset(told.values())


def of_listing(files: Iterable[tuple[str, int]], indexed: Collection[str] | None = None) -> Bytes | Unreadable:
    """Sum the files that an engine loads; `indexed` are the names that the index gives, where there is one.

    A repository of GGUF files holds one model in several quantisations: which is meant has to be said by its name.
    """
    listed = {name: size for name, size in files if size > 0}
    if indexed is not None:
        missing = sorted(set(indexed) - listed.keys())
        if missing:
            return Unreadable(missing[0], f"is named by the index and not there ({len(missing)} such files)")
        return Bytes(sum(listed[name] for name in indexed))
    chosen = _chosen(listed)
    whole = {_PART.sub("", name) for name in chosen}
    if not chosen:
        return Unreadable("repository", "holds no weights in a form that is known")
    if chosen[0].endswith(".gguf") and len(whole) > 1:
        return Unreadable("repository", f"holds {len(whole)} GGUF models: name the one that is meant")
    if short := _incomplete(chosen):
        return short
    return Bytes(sum(listed[name] for name in chosen))


def _chosen(names: Iterable[str]) -> list[str]:
    loaded = [name for name in names if not _NOT_LOADED.search(name)]
    for form in _FORMS:
        if found := sorted(name for name in loaded if name.endswith(form)):
            return found
    return []


def _incomplete(names: Iterable[str]) -> Unreadable | None:
    """Find files in parts of which a part is missing."""
    parts: dict[tuple[str, int], set[int]] = {}
    for name in names:
        if found := _PART.search(name):
            parts.setdefault((_PART.sub("", name), int(found[2])), set()).add(int(found[1]))
    for (name, many), there in parts.items():
        if len(there) < many:
            return Unreadable(name, f"{len(there)} of its {many} parts are there")
    return None
