"""Which files of a repository are loaded, and how many bytes that is."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.core.estimates.architecture import Unreadable
from llmgw.core.estimates.weights import Header, header_length, of_listing, parse_header, parse_index
from tests.core.estimates.files import safetensors

PARTS = [(f"model-0000{n}-of-00004.safetensors", 100) for n in range(1, 5)]


@pytest.mark.parametrize(
    ("files", "total"),
    [
        ([("model.safetensors", 100), ("config.json", 5)], 100),
        (PARTS, 400),
        # Llama's repositories hold the same weights again, as its makers' own code reads them.
        ([*PARTS, ("original/consolidated.00.pth", 400)], 400),
        ([("model.safetensors", 100), ("consolidated.safetensors", 100)], 100),
        ([("model.safetensors", 100), ("pytorch_model.bin", 100), ("optimizer.pt", 200)], 100),
        ([("pytorch_model.bin", 100), ("training_args.bin", 1)], 100),
        ([("model.safetensors", 100), ("checkpoint-500/model.safetensors", 100)], 100),
        ([("model.safetensors", 100), ("onnx/model.onnx", 90), ("adapter_model.safetensors", 3)], 100),
        ([("a-q4_k_m.gguf", 40)], 40),
        ([("a-q4_k_m-00001-of-00002.gguf", 40), ("a-q4_k_m-00002-of-00002.gguf", 30)], 70),
    ],
)
def test_each_weight_counts_once(files, total):
    assert of_listing(files) == total


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ([], "holds no weights"),
        ([("README.md", 3)], "holds no weights"),
        (PARTS[:3], "3 of its 4 parts"),
        ([("a-q4_k_m.gguf", 40), ("a-q8_0.gguf", 80)], "holds 2 GGUF models"),
    ],
)
def test_what_cannot_be_summed_is_not_nothing(files, why):
    told = of_listing(files)
    assert isinstance(told, Unreadable)
    assert why in told.text()


def test_the_index_decides_where_there_is_one():
    index = parse_index(json.dumps({"weight_map": {"a": PARTS[0][0], "b": PARTS[1][0]}}))
    assert not isinstance(index, Unreadable)
    assert of_listing([*PARTS, ("model.safetensors", 400)], index) == 200
    missing = of_listing(PARTS[:1], index)
    assert isinstance(missing, Unreadable)
    assert "named by the index" in missing.why


def test_a_header_tells_bytes_by_type():
    told = parse_header(safetensors({"a": ("BF16", 200), "b": ("F8_E4M3", 50), "c": ("BF16", 100)}))
    assert isinstance(told, Header)
    assert (dict(told.bytes_of), told.tensors, told.total) == ({"BF16": 300, "F8_E4M3": 50}, 3, 350)


def test_more_of_the_file_does_no_harm():
    assert isinstance(parse_header(safetensors({"a": ("BF16", 200)}) + bytes(200)), Header)


@pytest.mark.parametrize(
    "start",
    [
        b"",
        b"1234567",
        (10**12).to_bytes(8, "little") + b"{}",
        (2).to_bytes(8, "little") + b"[]",
        (3).to_bytes(8, "little") + b"{..",
        safetensors({"a": ("BF16", 200)})[:-3],
        (41).to_bytes(8, "little") + b'{"a": {"dtype": "F", "data_offsets": [9, 1]}}',
    ],
)
def test_a_file_that_is_none_is_unreadable(start):
    assert isinstance(parse_header(start), Unreadable)


@given(st.binary(max_size=200), st.text(max_size=200))
def test_whatever_the_files_hold_is_read_or_not(start, text):
    assert isinstance(parse_header(start), Header | Unreadable)
    assert header_length(start) is None or len(start) >= 8
    assert isinstance(parse_index(text), frozenset | Unreadable)


@given(st.lists(st.tuples(st.text(max_size=40), st.integers(-5, 10**15)), max_size=8))
def test_no_listing_is_worth_more_than_its_files(files):
    told = of_listing(files)
    assert isinstance(told, Unreadable) or 0 < told <= sum(size for _, size in files if size > 0)
