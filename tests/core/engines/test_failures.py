"""Ends told apart by what was printed, and by how the process went."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.core.engines.failures import CLASSES, ORDER_REFUSED, classify, sentence

PRINTED = [
    (
        "out-of-memory",
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 45108.64 MiB: cudaMalloc failed: out of memory",
    ),
    ("out-of-memory", "llama_init_from_model: failed to allocate buffer for kv cache"),
    ("out-of-memory", "graph_reserve: failed to allocate compute pp buffers"),
    ("out-of-memory", "error loading model: unable to allocate CUDA0 buffer"),
    ("out-of-memory", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"),
    ("host-oom", "ggml_backend_cpu_buffer_type_alloc_buffer: failed to allocate CPU buffer of size 50000000000"),
    ("host-oom", "terminate called after throwing an instance of 'std::bad_alloc'"),
    ("port-in-use", "start: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 40001"),
    ("port-in-use", "OSError: [Errno 98] Address already in use"),
    ("model-missing", "gguf_init_from_file: failed to open GGUF file '/models/w.gguf' (No such file or directory)"),
    ("corrupt", "gguf_init_from_file_impl: invalid magic characters: 'abcd', expected 'GGUF'"),
    (
        "corrupt",
        "error: tensor 'blk.0.attn_q.weight' data is not within the file bounds, model is corrupted or incomplete",
    ),
    ("arch-unsupported", "error loading model: error loading model architecture: unknown model architecture: 'gpt9'"),
    ("arch-unsupported", "error loading model hyperparameters: key not found in model: llama.context_length"),
    ("bad-flag", "error: invalid argument: --frobnicate"),
    ("bad-flag", "llama-server: error: unrecognized arguments: --frobnicate"),
    ("disk-full", "OSError: [Errno 28] No space left on device"),
    ("driver", "CUDA driver version is insufficient for CUDA runtime version"),
    ("gpu-fault", "CUDA error: an illegal memory access was encountered"),
    ("libraries", "llama-server: error while loading shared libraries: libgomp.so.1: cannot open shared object file"),
    ("load-failed", "main: exiting due to model loading error"),
]


@pytest.mark.parametrize(("code", "line"), PRINTED)
def test_a_line_that_is_known_decides(code, line):
    found, told = classify(["build: 11434", line, "echo"], 1, None, before_ready=True)
    assert found == code
    assert line[:100] in told
    assert " (before it served): “" in told
    assert told.endswith(CLASSES[code].advice)


def test_the_first_line_counts_since_echoes_follow():
    tail = ["cudaMalloc failed: out of memory", "error loading model: x", "Address already in use"]
    assert classify(tail, 1, None, before_ready=True)[0] == "out-of-memory"


@pytest.mark.parametrize(
    ("exit_code", "signal", "code", "how"),
    [
        (None, 9, "killed", "SIGKILL"),
        (137, None, "killed", "SIGKILL"),
        (None, 15, "killed", "signal 15"),
        (None, 11, "crashed", "SIGSEGV"),
        (None, 6, "crashed", "SIGABRT"),
        (134, None, "crashed", "SIGABRT"),
        (None, 4, "crashed", "SIGILL"),
        (0, None, "exited", "exit code 0"),
        (1, None, "unknown", "exit code 1"),
        (128, None, "unknown", "exit code 128"),
        (255, None, "unknown", "exit code 255"),
        (None, None, "unknown", "its end was not seen"),
    ],
)
def test_without_a_known_line_the_end_itself_decides(exit_code, signal, code, how):
    found, told = classify(["all slots are idle"], exit_code, signal, before_ready=False)
    assert found == code
    assert f"({how}, while it served)" in told


def test_an_exit_code_of_zero_is_no_excuse():
    assert classify(["cudaMalloc failed: out of memory"], 0, None, before_ready=True)[0] == "out-of-memory"


def test_a_long_line_is_quoted_in_part():
    _, told = classify(["std::bad_alloc" + "x" * 1000], 1, None, before_ready=True)
    assert len(told) < 500
    assert "…" in told


@pytest.mark.parametrize("code", CLASSES)
def test_every_class_says_what_to_do(code):
    kind = CLASSES[code]
    assert kind.code == code
    assert kind.meaning
    assert kind.advice
    told = sentence(code, "12 GiB missing")
    assert told == f"{kind.meaning}: 12 GiB missing – {kind.advice}"
    assert sentence(code) == f"{kind.meaning} – {kind.advice}"


def test_what_the_node_finds_has_a_class():
    wanted = {"fetch-failed", "disk-full", "checksum", "engine-missing", "launch-failed", "vanished", "never-ready"}
    assert wanted <= set(CLASSES)


def test_so_has_what_the_node_would_not_start():
    assert CLASSES["order-refused"] is ORDER_REFUSED


def test_a_class_that_is_not_known_is_said_to_be():
    assert sentence("of-another-version").startswith("the engine ended for a reason that is not known")


@given(
    st.lists(st.text(), max_size=5), st.none() | st.integers(-300, 300), st.none() | st.integers(0, 64), st.booleans()
)
def test_every_end_has_a_class_and_a_sentence(tail, exit_code, signal, before_ready):
    code, told = classify(tail, exit_code, signal, before_ready=before_ready)
    assert code in CLASSES
    assert told
