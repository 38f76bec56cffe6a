"""The key-value cache: bytes that each token costs, over the whole model and on one device."""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from llmgw.core.estimates.architecture import Architecture, Attention
from llmgw.core.units import Bytes

_ELEMENT: Final = MappingProxyType(
    {
        **dict.fromkeys(("float32", "fp32", "f32"), 4.0),
        **dict.fromkeys(("bfloat16", "float16", "half", "bf16", "fp16", "f16", "auto"), 2.0),
        **dict.fromkeys(("fp8", "fp8_e4m3", "fp8_e5m2", "float8_e4m3fn", "int8"), 1.0),
        # llama.cpp's blocks of 32 elements with a scale of two bytes, or two (ggml-common.h).
        "q8_0": 34 / 32,
        "q5_1": 24 / 32,
        "q5_0": 22 / 32,
        "q4_1": 20 / 32,
        "q4_0": 18 / 32,
    }
)
"""Bytes of one element."""


@dataclass(frozen=True, slots=True)
class Cache:
    """What a context of so many tokens costs."""

    bound: Bytes
    """What an engine may take that keeps sliding layers as if they attended to all."""
    best: Bytes
    """What one takes that keeps no more than their window."""


def element(dtype: str | None) -> float | None:
    """Return the bytes of one element; two where none is told, as engines do; None for a word that is not known."""
    return _ELEMENT.get((dtype or "auto").lower())


def per_token(model: Architecture, dtype: str | None = None) -> Bytes | None:
    """Return the bytes that one more token costs over the whole model, all layers attending to all; None if unknown.

    2 × key-value heads × head length × layers × bytes of an element: keys and values. With MLA, one latent vector of
    `latent` elements per layer instead, whatever the heads (DeepSeek-V2, arXiv:2405.04434, section 2.1.3).
    """
    size, layers = _element_of(model, dtype), _holding(model)
    per_layer = _elements(model)
    return None if size is None or layers is None or per_layer is None else Bytes(round(per_layer * layers * size))


def of_context(model: Architecture, tokens: int, dtype: str | None = None) -> Cache | None:
    """Return what one request of so many tokens costs over the whole model; None if unknown."""
    size, per_layer = _element_of(model, dtype), _elements(model)
    full, sliding = model.count(Attention.FULL), model.count(Attention.SLIDING)
    if size is None or per_layer is None or full is None or sliding is None:
        return None
    kept = min(tokens, model.window or tokens)
    one = per_layer * size
    return Cache(Bytes(round(one * tokens * (full + sliding))), Bytes(round(one * (tokens * full + kept * sliding))))


def share(model: Architecture, *, tensor: int, pipeline: int) -> float:
    """Return which part of the cache one device holds: its layers, and its heads as far as they go round.

    Heads are copied where there are fewer than ranks; a latent vector is on every rank.
    """
    heads = 1 if model.latent else min(tensor, model.key_value_heads or 1)
    return 1 / (pipeline * heads)


def _elements(model: Architecture) -> int | None:
    if model.latent:
        return model.latent
    if model.key_value_heads is None or model.key_length is None or model.value_length is None:
        return None
    return model.key_value_heads * (model.key_length + model.value_length)


def _holding(model: Architecture) -> int | None:
    full, sliding = model.count(Attention.FULL), model.count(Attention.SLIDING)
    return None if full is None or sliding is None else full + sliding


def _element_of(model: Architecture, dtype: str | None) -> float | None:
    return element(dtype if dtype not in {None, "auto"} else model.dtype)
