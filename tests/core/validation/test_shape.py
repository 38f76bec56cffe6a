"""Rules that need the model's own shape."""

import json

import pytest

from llmgw.core.estimates.architecture import Architecture
from llmgw.core.estimates.config import parse
from llmgw.core.validation.shape import shape_problems
from tests.builders import a_gpu_profile
from tests.core.estimates import known


def problems(config, **profile):
    model = parse(json.dumps(config))
    assert isinstance(model, Architecture)
    wanted = a_gpu_profile(**{"engine": "vllm", "pipeline_parallel": 1, **profile})
    return [(each.code, each.message, each.cure) for each in shape_problems(wanted, model)]


@pytest.mark.parametrize("tensor", [1, 2, 4, 8, 16, 32])
def test_heads_that_divide(tensor):
    assert problems(known.LLAMA_31_8B, tensor_parallel=tensor) == []


def test_heads_that_do_not_are_shown_as_a_sum():
    ((code, message, cure),) = problems(known.QWEN25_7B, tensor_parallel=8)
    assert (code, message) == ("arith.heads", "28 attention heads / tensor_parallel 8 = 3.50 for each")
    assert cure == "use one of 1, 2, 4, 7, 14, 28"


def test_heads_of_a_tower_for_pictures_do_not_count():
    assert problems(known.QWEN3_VL_8B, tensor_parallel=32) == []


def test_fewer_key_value_heads_than_ranks_are_no_problem():
    assert problems(known.QWEN3_30B_A3B, tensor_parallel=8) == []


def test_each_rank_needs_whole_blocks_of_each_projection():
    blocks = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    # Published: Qwen3-235B-A22B-FP8 does not start with tensor parallel 8 ("… is not divisible by block_n = 128").
    ((code, message, cure),) = problems(known.QWEN3_235B_A22B | blocks, tensor_parallel=8)
    assert (code, cure) == ("arith.fp8-block", "use tensor_parallel 4 or 2 or 1")
    assert message == "experts: 1536 / tensor_parallel 8 = 192, which is no whole number of blocks of 128"
    assert problems(known.QWEN3_235B_A22B | blocks, tensor_parallel=4) == []
    assert problems(known.QWEN3_235B_A22B, tensor_parallel=8) == []
    assert problems(known.DEEPSEEK_V3, tensor_parallel=16) == []
    assert [code for code, _, _ in problems(known.DEEPSEEK_V3, tensor_parallel=32)] == ["arith.fp8-block"] * 2


def test_more_ranks_than_layers():
    assert [code for code, _, _ in problems(known.LLAMA_31_8B, pipeline_parallel=33)] == ["arith.layers-pp"]


def test_a_context_beyond_what_the_model_knows():
    ((code, message, _),) = problems(known.LLAMA_31_8B, context_length=200_000)
    assert (code, message) == ("context.too-long", "context_length is 200000, but the model knows 131072 tokens")


def test_llama_cpp_splits_layers_alone_and_stretches_the_context():
    assert problems(known.QWEN25_7B, engine="llamacpp", tensor_parallel=8, context_length=200_000) == []


def test_what_is_not_known_is_no_problem():
    assert problems({"num_hidden_layers": 3}, tensor_parallel=7, context_length=10**6) == []
