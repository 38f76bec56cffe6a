"""What a token costs: checked against figures that were published for well-known models."""

import json

import pytest

from llmgw.core.estimates.architecture import Architecture, Attention
from llmgw.core.estimates.cache import Cache, of_context, per_token, share
from llmgw.core.estimates.config import parse
from llmgw.core.units import Bytes
from tests.core.estimates import known


def shape(config):
    told = parse(json.dumps(config))
    assert isinstance(told, Architecture)
    return told


@pytest.mark.parametrize(
    ("config", "figure"),
    [
        # Meta, "The Llama 3 Herd of Models" (arXiv:2407.21783), table 3: layers, key/value heads, 128 a head.
        (known.LLAMA_31_8B, 131_072),
        (known.LLAMA_31_70B, 327_680),
        (known.LLAMA_31_405B, 516_096),
        # Qwen2.5 and Qwen3 technical reports (arXiv:2412.15115, table 1; arXiv:2505.09388, tables 1 and 2).
        (known.QWEN25_7B, 57_344),
        (known.QWEN3_32B, 262_144),
        (known.QWEN3_30B_A3B, 98_304),
        (known.QWEN3_235B_A22B, 192_512),
        # Jiang et al., "Mistral 7B" (arXiv:2310.06825), table 1; "Mixtral of Experts" (arXiv:2401.04088), table 1.
        (known.MISTRAL_7B_V01, 131_072),
        (known.MIXTRAL_8X7B, 131_072),
        # "Gemma 2" (arXiv:2408.00118), table 1: 42 layers, 8 key/value heads of 256.
        (known.GEMMA2_9B, 344_064),
        # "gpt-oss-120b & gpt-oss-20b Model Card" (arXiv:2508.10925), section 2.
        (known.GPT_OSS_120B, 73_728),
        # DeepSeek-V3 (arXiv:2412.19437), section 4.2: 512 + 64 a layer, 61 layers; "70.272 KB" in the insights paper
        # (arXiv:2505.09343), table 1.
        (known.DEEPSEEK_V3, 70_272),
        # "Phi-3 Technical Report" (arXiv:2404.14219), section 2: 32 heads of 96, 32 layers.
        (known.PHI3_MINI, 393_216),
        # The language part of Qwen3-VL-8B is that of Qwen3-8B (36 layers, 8 × 128).
        (known.QWEN3_VL_8B, 147_456),
        # "The Falcon Series" (arXiv:2311.16867): multi-query, one head of 64.
        (known.FALCON_7B, 8_192),
    ],
)
def test_bytes_of_a_token(config, figure):
    assert per_token(shape(config)) == figure


def test_a_cache_of_eight_bits_is_half():
    assert per_token(shape(known.LLAMA_31_8B), "fp8") == 65_536
    assert per_token(shape(known.LLAMA_31_8B), "q8_0") == 69_632


def test_layers_that_slide_are_told_at_their_bound_and_at_their_best():
    model = shape(known.GPT_OSS_120B)
    assert of_context(model, 1000) == Cache(bound=Bytes(73_728_000), best=Bytes(36_864_000 + 128 * 36_864))
    assert of_context(model, 100) == Cache(bound=Bytes(7_372_800), best=Bytes(7_372_800))


def test_layers_of_constant_state_cost_no_token():
    config = known.LLAMA_31_8B | {
        "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"] * 8
    }
    assert per_token(shape(config)) == 32_768
    assert shape(config).count(Attention.CONSTANT) == 24


@pytest.mark.parametrize(
    ("config", "tensor", "pipeline", "part"),
    [
        (known.LLAMA_31_70B, 4, 1, 1 / 4),
        (known.LLAMA_31_70B, 8, 2, 1 / 16),
        (known.LLAMA_31_70B, 16, 1, 1 / 8),
        (known.QWEN3_30B_A3B, 8, 1, 1 / 4),
        (known.DEEPSEEK_V3, 8, 2, 1 / 2),
    ],
)
def test_what_one_device_holds_of_it(config, tensor, pipeline, part):
    assert share(shape(config), tensor=tensor, pipeline=pipeline) == part


@pytest.mark.parametrize(
    "config",
    [
        {"num_hidden_layers": 118, "hidden_size": 8192, "num_attention_heads": 64, "ssm_state_size": 256},
        {"num_hidden_layers": 43, "num_attention_heads": 64, "head_dim": 512, "compress_ratios": [0, 4]},
        {"num_hidden_layers": 4},
        known.LLAMA_31_8B | {"torch_dtype": "float4_of_the_future"},
        known.LLAMA_31_8B | {"layer_types": ["something_new"] * 32},
    ],
)
def test_what_is_not_known_is_not_nothing(config):
    assert per_token(shape(config)) is None
    assert of_context(shape(config), 100) is None
