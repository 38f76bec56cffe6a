"""What fits on which device."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.core.estimates.architecture import Architecture, Facts
from llmgw.core.estimates.config import parse
from llmgw.core.estimates.fit import Estimate, Split, Unknown, estimate, fraction, longest_context, overhead, usable
from llmgw.core.units import GIB, Bytes
from tests.core.estimates import known


def facts(config, gigabytes=None):
    """Facts with the bytes that the hub lists for the safetensors files."""
    told = parse(json.dumps(config))
    assert isinstance(told, Architecture)
    return Facts(told, None if gigabytes is None else Bytes(int(gigabytes * 1e9)))


# Sizes as the files of each repository add up to on the hub (`model.safetensors.index.json`, metadata.total_size).
EIGHT, SEVENTY = facts(known.LLAMA_31_8B, 16.06), facts(known.LLAMA_31_70B, 141.1)
V3, OSS = facts(known.DEEPSEEK_V3, 688.6), facts(known.GPT_OSS_120B, 65.2)


def fits(model, card_gib, **split):
    """Whether one request of the whole context fits, on cards of so many GiB."""
    context = split.pop("context", None)
    told = estimate(model, Split("vllm", **split), context)
    assert isinstance(told, Estimate)
    return told.total <= usable(Bytes(int(card_gib * GIB)))


@pytest.mark.parametrize(
    ("model", "card", "split", "does"),
    [
        # vLLM's documentation runs Llama 3.1 8B on one 24 GiB card with a shortened context, and 70B on four of 80 GiB.
        (EIGHT, 24, {"context": 8192}, True),
        (EIGHT, 24, {"context": 131072}, False),
        (EIGHT, 16, {"context": 8192}, False),
        (EIGHT, 80, {"context": 131072}, True),
        (SEVENTY, 80, {"tensor": 1, "context": 8192}, False),
        (SEVENTY, 80, {"tensor": 2, "context": 32768}, False),
        (SEVENTY, 80, {"tensor": 4, "context": 131072}, True),
        # "runs within a single 80 GB GPU": OpenAI's own card of gpt-oss-120b.
        (OSS, 80, {"context": 8192}, True),
        (OSS, 40, {"context": 8192}, False),
        # DeepSeek-V3 in FP8 is served on eight H200, or on two nodes of eight H100, and not on one of them.
        (V3, 80, {"tensor": 8, "context": 32768}, False),
        (V3, 140, {"tensor": 8, "context": 131072}, True),
        (V3, 80, {"tensor": 8, "pipeline": 2, "context": 32768}, True),
    ],
)
def test_well_known_models_fit_where_they_are_known_to(model, card, split, does):
    assert fits(model, card, **split) is does


def test_the_sum_is_shown():
    told = estimate(EIGHT, Split("vllm"), 8192)
    assert isinstance(told, Estimate)
    assert (
        told.text() == "15.0 GiB of weights + 1.0 GiB of cache for 8192 tokens + 3.5 GiB of the engine's own = 19.5 GiB"
    )


def test_the_longest_context_is_that_of_the_memory_or_of_the_model():
    assert longest_context(EIGHT, Split("vllm"), Bytes(24 * GIB)) == 45_407
    assert longest_context(EIGHT, Split("vllm"), Bytes(80 * GIB)) == 131_072
    assert longest_context(EIGHT, Split("vllm"), Bytes(10 * GIB)) == 0
    assert longest_context(EIGHT, Split("vllm", cache_dtype="fp8"), Bytes(24 * GIB)) == 90_815


@pytest.mark.parametrize(
    ("model", "missing"),
    [
        (facts(known.LLAMA_31_8B), ("weights",)),
        (Facts(Architecture(layers=3), Bytes(GIB)), ("cache",)),
        (Facts(Architecture()), ("weights", "cache")),
    ],
)
def test_what_is_not_known_is_never_nothing_and_never_fits(model, missing):
    told = estimate(model, Split("vllm"))
    assert told == longest_context(model, Split("vllm"), Bytes(80 * GIB)) == Unknown(missing)
    assert isinstance(told, Unknown)
    assert "manage.py inspect" in told.cure()


def test_memory_that_others_hold_is_not_given():
    assert usable(Bytes(80 * GIB)) == 72 * GIB
    assert usable(Bytes(80 * GIB), Bytes(30 * GIB)) == 50 * GIB
    assert (fraction(Bytes(80 * GIB)), fraction(Bytes(80 * GIB), Bytes(30 * GIB)), fraction(Bytes(0))) == (
        0.9,
        0.62,
        0.0,
    )


def test_an_engine_that_is_not_known_counts_as_the_largest():
    assert overhead(Split("of-my-own")) == 4 * GIB
    assert overhead(Split("llamacpp", on_cpu=True)) < GIB


@given(st.integers(1, 16), st.integers(1, 8), st.integers(1, 200_000), st.integers(1, 400))
def test_the_longest_context_fits_and_one_more_does_not(tensor, pipeline, context, card):
    split, memory = Split("vllm", tensor, pipeline), Bytes(card * GIB)
    longest = longest_context(SEVENTY, split, memory)
    assert isinstance(longest, int)
    told = estimate(SEVENTY, split, context)
    assert isinstance(told, Estimate)
    if context <= 131_072:
        # Either way of asking gives the same answer, but for rounding by a byte.
        assert (told.total <= memory) == (context <= longest) or abs(told.total - memory) <= 2
