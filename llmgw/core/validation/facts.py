"""What is known of a model's shape and weights, as people write it under `facts`, and back."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from llmgw.core.estimates.architecture import Architecture, Attention, Facts, Quantization
from llmgw.core.validation.form import AMOUNT, TEXT, WHOLE, Form
from llmgw.core.wanted import Problem

_NUMBERS: Final = (
    "layers",
    "heads",
    "key_value_heads",
    "key_length",
    "value_length",
    "hidden",
    "intermediate",
    "expert_intermediate",
    "experts",
    "vocabulary",
    "context",
    "latent",
    "window",
)
_WORDS: Final = ("kind", "dtype")
FACT_KEYS: Final = ("weights", *_WORDS, *_NUMBERS, "attention", "quantization")
_ATTENTION_KEYS: Final = tuple(kind.value for kind in Attention)
_LARGEST: Final = 2**40


def facts_of(model: Form) -> Facts | None:
    """Read `facts`; None where nothing stands there."""
    raw = model.values.get("facts")
    if raw is None:
        return None
    form = Form(raw, model.at("facts"), FACT_KEYS, model.problems)
    numbers = {name: _number(form, name) for name in _NUMBERS}
    words = {name: form.maybe(name, TEXT) for name in _WORDS}
    weights = form.maybe("weights", AMOUNT)
    if weights is not None and weights <= 0:
        form.problems.append(_not_positive(form.at("weights"), weights))
    told: dict[str, Any] = {**numbers, **words}
    return Facts(Architecture(**told, attention=_attention(form), quantization=_quantization(form)), weights)


def facts_from_document(raw: object) -> Facts | None:
    """Read facts that were written as a document; what cannot be read is left out."""
    return facts_of(Form({"facts": raw}, "", ("facts",), []))


def _number(form: Form, name: str) -> int | None:
    told = form.maybe(name, WHOLE)
    if told is not None and not 0 < told < _LARGEST:
        form.problems.append(_not_positive(form.at(name), told))
        return None
    return told


def _not_positive(at: str, told: int) -> Problem:
    return Problem(
        at, "number.range", f"`{told}` stands here", f"use 1 to {_LARGEST - 1}, or leave it out if not known"
    )


def _attention(facts: Form) -> Mapping[Attention, int] | None:
    """Read how many layers attend in which way; what is left out is none."""
    raw = facts.values.get("attention")
    if raw is None:
        return None
    form = Form(raw, facts.at("attention"), _ATTENTION_KEYS, facts.problems)
    counts = {kind: form.take(kind.value, WHOLE, 0) for kind in Attention}
    return MappingProxyType({kind: count for kind, count in counts.items() if count > 0})


def _quantization(facts: Form) -> Quantization | None:
    raw = facts.values.get("quantization")
    if raw is None:
        return None
    if isinstance(raw, str):
        return Quantization(raw)
    form = Form(raw, facts.at("quantization"), ("method", "block"), facts.problems)
    block: Any = form.values.get("block")
    if block is not None and not _is_block(block):
        problem = Problem(form.at("block"), "type.wrong", "no block stands here", "write rows and columns: [128, 128]")
        form.problems.append(problem)
        block = None
    return Quantization(form.need("method", TEXT, ""), None if block is None else tuple(block))


def _is_block(raw: object) -> bool:
    return isinstance(raw, list | tuple) and len(raw) == 2 and all(type(each) is int and each > 0 for each in raw)


def facts_to_document(facts: Facts) -> dict[str, Any]:
    """Write facts as a document that reads back as the same; what is not known is left out."""
    model = facts.architecture
    told: dict[str, Any] = {"weights": facts.weights}
    told |= {name: getattr(model, name) for name in (*_WORDS, *_NUMBERS)}
    if model.attention is not None:
        told["attention"] = {kind.value: count for kind, count in sorted(model.attention.items())}
    if model.quantization is not None:
        told["quantization"] = _quantization_to_document(model.quantization)
    return {name: value for name, value in told.items() if value is not None}


def _quantization_to_document(told: Quantization) -> str | dict[str, Any]:
    return told.method if told.block is None else {"method": told.method, "block": list(told.block)}
