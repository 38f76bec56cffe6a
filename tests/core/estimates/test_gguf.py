"""The head of GGUF files, whole and mangled."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.core.estimates.architecture import Attention, Quantization, Unreadable
from llmgw.core.estimates.cache import per_token
from llmgw.core.estimates.gguf import Gguf, parse
from tests.core.estimates.files import gguf, safetensors

LLAMA = {
    "general.architecture": "llama",
    "llama.block_count": 32,
    "llama.context_length": 131072,
    "llama.embedding_length": 4096,
    "llama.feed_forward_length": 14336,
    "llama.attention.head_count": 32,
    "llama.attention.head_count_kv": 8,
    "llama.rope.freq_base": 500000.0,
    "tokenizer.ggml.tokens": ["a", "b", "c"] * 3000,
    "tokenizer.ggml.scores": [0.5] * 9000,
    "tokenizer.ggml.add_bos_token": True,
}
TENSORS = (("token_embd.weight", (4096, 1000), 12), ("output_norm.weight", (4096,), 0))


def read(facts, tensors=TENSORS, **more):
    told = parse(gguf(facts, tensors, **more))
    assert isinstance(told, Gguf), told
    return told


@pytest.mark.parametrize("version", [2, 3])
def test_the_shape_of_a_model(version):
    told = read(LLAMA, version=version).architecture
    assert (told.kind, told.layers, told.heads, told.key_value_heads, told.key_length) == ("llama", 32, 32, 8, 128)
    assert (told.context, told.quantization, per_token(told)) == (131072, Quantization("gguf"), 131_072)


def test_the_bytes_of_its_tensors():
    # Q4_K: 144 bytes for 256 elements; F32: four for each.
    assert read(LLAMA).tensors == 4096 * 1000 // 256 * 144 + 4096 * 4
    assert read(LLAMA, TENSORS[1:]).architecture.quantization is None


def test_the_first_of_several_parts_tells_how_many_there_are():
    assert read(LLAMA | {"split.no": 0, "split.count": 3}).parts == 3


def test_layers_may_have_heads_of_their_own():
    told = read(LLAMA | {"llama.block_count": 4, "llama.attention.head_count_kv": [8, 0, 8, 0]}).architecture
    assert (told.key_value_heads, told.count(Attention.FULL), told.count(Attention.CONSTANT)) == (8, 2, 2)


def test_latent_attention():
    facts = {"general.architecture": "deepseek2", "deepseek2.block_count": 61, "deepseek2.attention.head_count": 128}
    facts |= {"deepseek2.attention.kv_lora_rank": 512, "deepseek2.rope.dimension_count": 64}
    assert per_token(read(facts).architecture) == 70_272


def test_layers_of_which_nothing_is_known_are_not_nothing():
    facts = {"general.architecture": "mamba", "mamba.block_count": 48, "mamba.ssm.state_size": 16}
    assert per_token(read(facts).architecture) is None


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "ends within"),
        (safetensors({}), "does not begin"),
        (b"GGUF\x01\x00\x00\x00", "version 1"),
        (gguf(LLAMA)[:60], "ends within"),
        (b"GGUF\x03\x00\x00\x00" + b"\xff" * 16, "18446744073709551615 tensors"),
        (gguf({}, [("a", (1,) * 9, 0)]), "9 dimensions"),
        (gguf({}, [("a", (1,), 38)]), "type 38"),
    ],
)
def test_a_file_that_is_none_is_unreadable(data, why):
    told = parse(data)
    assert isinstance(told, Unreadable)
    assert why in told.text()


@given(st.data())
def test_a_mangled_head_is_read_or_not(data):
    whole = bytearray(gguf({key: LLAMA[key] for key in list(LLAMA)[:8]}, TENSORS))
    for _ in range(data.draw(st.integers(1, 6))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    assert isinstance(parse(bytes(whole[: data.draw(st.integers(0, len(whole)))])), Gguf | Unreadable)
