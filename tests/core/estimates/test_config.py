"""config.json as many families write it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.core.estimates.architecture import Architecture, Attention, Quantization, Unreadable
from llmgw.core.estimates.config import parse
from tests.core.estimates import known


def shape(config, quantization=""):
    told = parse(json.dumps(config), quantization)
    assert isinstance(told, Architecture)
    return told


def test_a_length_that_is_told_counts_and_not_the_quotient():
    assert shape(known.QWEN3_32B).key_length == 128
    assert shape(known.LLAMA_31_8B).key_length == 128


def test_a_tower_for_pictures_counts_for_nothing():
    told = shape(known.QWEN3_VL_8B)
    assert (told.heads, told.layers, told.kind, told.dtype) == (32, 36, "qwen3_vl_text", "bfloat16")


@pytest.mark.parametrize("name", ["text_config", "llm_config"])
def test_the_language_part_may_stand_lower(name):
    assert shape({"model_type": "outer", name: known.LLAMA_31_8B}).heads == 32


def test_it_may_stand_two_levels_lower():
    omni = {"model_type": "omni", "dtype": "bfloat16", "thinker_config": {"text_config": known.QWEN3_32B}}
    assert shape(omni).layers == 64


@pytest.mark.parametrize(
    ("config", "sliding"),
    [
        (known.GEMMA2_9B, 21),
        (known.GEMMA2_9B | {"sliding_window_pattern": 6}, 35),
        (known.GPT_OSS_120B, 18),
        (known.QWEN25_7B, 0),
        (known.MISTRAL_7B_V01, 0),
        (known.LLAMA_31_8B, 0),
    ],
)
def test_which_layers_slide(config, sliding):
    assert shape(config).count(Attention.SLIDING) == sliding


def test_a_pattern_of_letters():
    config = {"num_hidden_layers": 6, "hybrid_override_pattern": "M-M*M-", "num_attention_heads": 8}
    assert shape(config).count(Attention.FULL) == 1


@pytest.mark.parametrize(
    ("config", "quantization"),
    [
        (known.DEEPSEEK_V3, Quantization("fp8", (128, 128))),
        (known.GPT_OSS_120B, Quantization("mxfp4")),
        (known.LLAMA_31_8B, None),
        (known.LLAMA_31_8B | {"quantization_config": {"quant_method": "AWQ", "bits": 4}}, Quantization("awq")),
        (
            known.LLAMA_31_8B | {"quantization_config": {"quant_method": "fp8", "weight_block_size": [0]}},
            Quantization("fp8"),
        ),
    ],
)
def test_how_the_weights_are_stored(config, quantization):
    assert shape(config).quantization == quantization


def test_model_optimizer_says_it_in_a_file_of_its_own():
    told = shape(known.LLAMA_31_8B, json.dumps({"quantization": {"quant_algo": "NVFP4"}}))
    assert told.quantization == Quantization("nvfp4")


@pytest.mark.parametrize(
    "text", ["", "[]", "{", "{}", '{"num_hidden_layers": "many"}', '{"num_hidden_layers": 999999}']
)
def test_a_file_that_does_not_tell_is_unreadable(text):
    assert isinstance(parse(text), Unreadable)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@given(
    st.sampled_from([*known.DEEPSEEK_V3, *known.GPT_OSS_120B, "text_config", "hybrid_override_pattern"]), json_values
)
def test_whatever_stands_in_a_field_is_read_or_not(name, value):
    told = parse(json.dumps(known.GPT_OSS_120B | {name: value}))
    assert isinstance(told, Architecture | Unreadable)


@given(st.text(), st.text())
def test_whatever_the_files_hold_is_read_or_not(text, quantization):
    assert isinstance(parse(text, quantization), Architecture | Unreadable)
    assert isinstance(parse(json.dumps(known.LLAMA_31_8B), quantization), Architecture)
