"""What one device must hold, and the longest context that fits; what is not known is said, and never taken for nothing.

Rules of thumb with their sources: vLLM logs what profiling found ("Available KV cache memory"), SGLang's server
arguments reserve memory beside weights and cache (`mem_fraction_static`), llama.cpp prints its compute buffers.
"""

from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Final

from llmgw.core.estimates import cache
from llmgw.core.estimates.architecture import Facts
from llmgw.core.units import GIB, MIB, Bytes, gib

_PARTS_UNSPLIT: Final = 1.02
"""Norms and biases are on every device; files hold a little more than tensors."""
OVERHEAD: Final = MappingProxyType(
    {
        # Activations 1–3 GiB, CUDA graphs 0.5–3 GiB, CUDA's and NCCL's own 0.5–1.5 GiB: the middle of each.
        "vllm": Bytes(3 * GIB + 512 * MIB),
        # It keeps more apart for activations; see `mem_fraction_static` in its server arguments.
        "sglang": Bytes(4 * GIB),
        # A compute buffer for a batch of 512, and CUDA's own.
        "llamacpp": Bytes(1 * GIB),
    }
)
"""Beside weights and cache, on one card."""
OVERHEAD_CPU: Final = Bytes(256 * MIB)
SHARE_OF_CARD: Final = 0.90
"""How much of a card an engine is given at most: the driver and others need the rest."""
_USUAL_CONTEXT: Final = 8192
"""Where nothing is declared and the model does not tell its own, or a longer one."""


@dataclass(frozen=True, slots=True)
class Split:
    """How a replica is spread over devices."""

    engine: str
    tensor: int = 1
    pipeline: int = 1
    on_cpu: bool = False
    cache_dtype: str | None = None
    """`fp8`, `q8_0`; None is that of the model."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """What one device must hold, in bytes."""

    weights: Bytes
    cache: Bytes
    """For one request of the whole context, sliding layers at their bound."""
    overhead: Bytes
    context: int
    """Tokens that the cache is for."""
    cache_best: Bytes
    """What an engine takes that keeps sliding layers' window alone."""

    @property
    def total(self) -> Bytes:
        """Return all of it."""
        return Bytes(self.weights + self.cache + self.overhead)

    def text(self) -> str:
        """Show the sum."""
        told = f"{gib(self.weights)} of weights + {gib(self.cache)} of cache for {self.context} tokens"
        return f"{told} + {gib(self.overhead)} of the engine's own = {gib(self.total)}"


@dataclass(frozen=True, slots=True)
class Unknown:
    """Something that the estimate needs is not known."""

    code: ClassVar[str] = "weights.unknown-size"
    missing: tuple[str, ...]
    """`weights`, `cache`."""

    def text(self) -> str:
        """Say it in one line."""
        return f"how much memory it needs is not known: {' and '.join(self.missing)} cannot be worked out"

    def cure(self) -> str:
        """Say how to supply a figure."""
        return "give `memory` in the profile, or `facts` of the model as `manage.py inspect` prints them"


def estimate(facts: Facts, split: Split, context: int | None = None) -> Estimate | Unknown:
    """Work out what one device must hold for one request of the whole context."""
    tokens = context or min(facts.architecture.context or _USUAL_CONTEXT, _USUAL_CONTEXT)
    kept = cache.of_context(facts.architecture, tokens, split.cache_dtype)
    if facts.weights is None or kept is None:
        lacking = {"weights": facts.weights is None, "cache": kept is None}
        return Unknown(tuple(word for word, is_missing in lacking.items() if is_missing))
    part = cache.share(facts.architecture, tensor=split.tensor, pipeline=split.pipeline)
    return Estimate(
        weights=weights_share(facts.weights, split),
        cache=Bytes(round(kept.bound * part)),
        overhead=overhead(split),
        context=tokens,
        cache_best=Bytes(round(kept.best * part)),
    )


def weights_share(weights: Bytes, split: Split) -> Bytes:
    """Return the weights of one device."""
    devices = split.tensor * split.pipeline
    return weights if devices == 1 else Bytes(round(weights / devices * _PARTS_UNSPLIT))


def overhead(split: Split) -> Bytes:
    """Return what the engine itself needs on one device; one that is not known counts as the largest."""
    return OVERHEAD_CPU if split.on_cpu else OVERHEAD.get(split.engine, max(OVERHEAD.values()))


def longest_context(facts: Facts, split: Split, memory: Bytes) -> int | Unknown:
    """Return how many tokens one request may have where a device gives so much; 0 where not even the weights fit.

    Never more than the model was made for, where it says so.
    """
    one = cache.per_token(facts.architecture, split.cache_dtype)
    if facts.weights is None or one is None:
        lacking = {"weights": facts.weights is None, "cache": one is None}
        return Unknown(tuple(word for word, is_missing in lacking.items() if is_missing))
    left = memory - weights_share(facts.weights, split) - overhead(split)
    part = one * cache.share(facts.architecture, tensor=split.tensor, pipeline=split.pipeline)
    tokens = max(0, int(left / part)) if part else 0
    return min(tokens, facts.architecture.context or tokens)


def card_for(told: Estimate, split: Split) -> Bytes:
    """Return how large a card must be of which the engine gets its share; llama.cpp takes what it needs of any."""
    return told.total if split.engine == "llamacpp" else Bytes(-(-told.total * 100 // round(SHARE_OF_CARD * 100)))


def usable(total: Bytes, held: Bytes = Bytes(0)) -> Bytes:  # noqa: B008 – a number
    """Return what an engine may be given of a card of which others hold so much already."""
    return Bytes(max(0, min(int(total * SHARE_OF_CARD), total - held)))


def fraction(total: Bytes, held: Bytes = Bytes(0)) -> float:  # noqa: B008 – a number
    """Return that as the part of the card that engines are told (`gpu_memory_utilization`), rounded down to hundredths.

    Engines take it of the whole card, not of what is free: with memory held by others it must be smaller.
    """
    return int(usable(total, held) * 100 / total) / 100 if total else 0.0
