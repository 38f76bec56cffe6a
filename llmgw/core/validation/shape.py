"""Rules that go by the model's own shape: whether it can be split as a profile says, which context it knows."""

from collections.abc import Iterator
from typing import Final

from llmgw.core.estimates.architecture import Architecture
from llmgw.core.wanted import Problem, Profile

_MOST_RANKS: Final = 65
_LAYERS_ONLY: Final = frozenset({"llamacpp"})
"""Engines that split a model by its layers alone, and take a context longer than the model knows."""


def shape_problems(profile: Profile, model: Architecture) -> Iterator[Problem]:
    """Find what the engine would turn down when it loads the model; `field` is relative to the profile."""
    yield from _layers(profile, model)
    if profile.engine in _LAYERS_ONLY:
        return
    yield from _heads(profile, model)
    yield from _blocks(profile, model)
    yield from _context(profile, model)


def _layers(profile: Profile, model: Architecture) -> Iterator[Problem]:
    if model.layers is not None and profile.pipeline_parallel > model.layers:
        message = f"pipeline_parallel is {profile.pipeline_parallel}, but the model has {model.layers} layers"
        yield Problem("pipeline_parallel", "arith.layers-pp", message, f"use at most {model.layers}")


def _heads(profile: Profile, model: Architecture) -> Iterator[Problem]:
    """Attention heads are shared out evenly; fewer key-value heads than ranks are copied, which is no problem."""
    tensor = profile.tensor_parallel
    if model.heads is not None and tensor > 0 and model.heads % tensor:
        message = f"{model.heads} attention heads / tensor_parallel {tensor} = {model.heads / tensor:.2f} for each"
        fitting = [str(n) for n in range(1, min(model.heads + 1, _MOST_RANKS)) if model.heads % n == 0]
        yield Problem("tensor_parallel", "arith.heads", message, f"use one of {', '.join(fitting)}")


def _blocks(profile: Profile, model: Architecture) -> Iterator[Problem]:
    """Where blocks of weights share a scale, each rank must get whole blocks of each projection."""
    block = model.quantization.block if model.quantization else None
    tensor = profile.tensor_parallel
    if block is None or tensor <= 1:
        return
    for name, size in _projections(model).items():
        edge = next((edge for edge in block if not _is_whole(size, tensor, edge)), None)
        if edge is not None:
            share = f"{size} / tensor_parallel {tensor} = {size / tensor:g}"
            message = f"{name}: {share}, which is no whole number of blocks of {edge}"
            yield Problem("tensor_parallel", "arith.fp8-block", message, _smaller(model, block, tensor))


def _is_whole(size: int, tensor: int, edge: int) -> bool:
    return size % tensor == 0 and size // tensor % edge == 0


def _projections(model: Architecture) -> dict[str, int]:
    """Return the sides of the model's matrices that ranks share out."""
    told = {"feed forward": model.intermediate, "experts": model.expert_intermediate}
    if model.experts and model.expert_intermediate is None:
        told = {"experts": model.intermediate}
    if model.latent is None and model.heads and model.key_length:
        told["attention"] = model.heads * model.key_length
    return {name: size for name, size in told.items() if size}


def _smaller(model: Architecture, block: tuple[int, int], tensor: int) -> str:
    sizes = _projections(model).values()
    fitting = [
        str(n)
        for n in range(min(tensor, _MOST_RANKS) - 1, 0, -1)
        if all(_is_whole(size, n, edge) for size in sizes for edge in block) and (model.heads or n) % n == 0
    ]
    return f"use tensor_parallel {' or '.join(fitting)}" if fitting else "use a model that is stored otherwise"


def _context(profile: Profile, model: Architecture) -> Iterator[Problem]:
    if profile.context_length is not None and model.context is not None and profile.context_length > model.context:
        message = f"context_length is {profile.context_length}, but the model knows {model.context} tokens"
        cure = f"use at most {model.context}; where the engine is told to stretch it, correct `facts.context`"
        yield Problem("context_length", "context.too-long", message, cure)
