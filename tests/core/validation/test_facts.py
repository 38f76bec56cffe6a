"""What is known of a model, as people write it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.core.estimates.architecture import Architecture, Attention, Facts, Quantization
from llmgw.core.estimates.config import parse
from llmgw.core.units import GIB, Bytes
from llmgw.core.validation import facts_from_document, facts_to_document, model_from_document, model_to_document
from llmgw.core.wanted import Model
from tests.core.estimates import known

SAID = {
    "weights": "14GiB",
    "layers": 32,
    "heads": 32,
    "attention": {"full": 16, "sliding": 16},
    "window": 4096,
    "quantization": {"method": "fp8", "block": [128, 128]},
}


def read(facts):
    return model_from_document({"name": "m", "source": "hf://a/b/c.gguf", "facts": facts})


def test_what_is_known_can_be_said():
    model = read(SAID)
    assert isinstance(model, Model)
    assert model.facts == Facts(
        Architecture(
            layers=32,
            heads=32,
            window=4096,
            attention={Attention.FULL: 16, Attention.SLIDING: 16},
            quantization=Quantization("fp8", (128, 128)),
        ),
        Bytes(14 * GIB),
    )


def test_a_word_is_enough_for_a_quantisation_without_blocks():
    model = read({"quantization": "awq"})
    assert isinstance(model, Model)
    assert model.facts == Facts(Architecture(quantization=Quantization("awq")))


@pytest.mark.parametrize("config", [known.DEEPSEEK_V3, known.GPT_OSS_120B, known.GEMMA2_9B, known.QWEN3_VL_8B])
def test_what_was_read_of_a_file_comes_back_from_a_document(config):
    architecture = parse(json.dumps(config))
    assert isinstance(architecture, Architecture)
    facts = Facts(architecture, Bytes(5))
    assert facts_from_document(json.loads(json.dumps(facts_to_document(facts)))) == facts


def test_a_model_with_facts_comes_back_whole():
    model = read(SAID)
    assert isinstance(model, Model)
    assert model_from_document(model_to_document(model)) == model


@pytest.mark.parametrize(
    ("facts", "problem"),
    [
        ([], ("facts", "type.wrong")),
        ({"layer": 3}, ("facts.layer", "key.unknown")),
        ({"layers": "many"}, ("facts.layers", "type.wrong")),
        ({"layers": 0}, ("facts.layers", "number.range")),
        ({"weights": -1}, ("facts.weights", "number.range")),
        ({"attention": {"half": 1}}, ("facts.attention.half", "key.unknown")),
        ({"quantization": {"block": [1, 2]}}, ("facts.quantization.method", "key.missing")),
        ({"quantization": {"method": "fp8", "block": [1]}}, ("facts.quantization.block", "type.wrong")),
    ],
)
def test_what_is_wrong_is_told_with_its_place(facts, problem):
    problems = read(facts)
    assert not isinstance(problems, Model)
    assert [(each.field, each.code) for each in problems] == [problem]


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=5),
        lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from([*SAID, "method", "block", "full"]), inner),
        max_leaves=10,
    )
)
def test_whatever_stands_there_is_read_or_not(raw):
    assert isinstance(read(raw), Model | tuple)
    assert isinstance(facts_from_document(raw), Facts | None)
