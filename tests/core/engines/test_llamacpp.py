"""llama.cpp's command line, and what is read from its answers."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.core.engines import ENGINES
from llmgw.core.engines.base import LaunchFacts, Readiness, Reply
from llmgw.core.engines.llamacpp import OWNED, LlamaCpp
from tests.builders import a_gpu_profile, a_launch_order, a_profile

ENGINE = LlamaCpp()
FACTS = LaunchFacts(("/usr/bin/llama-server",), "/models/w.gguf", "127.0.0.1", 40001, 2)
NONE = Reply(0)
LOADING = Reply(503, b'{"error":{"message":"Loading model","type":"unavailable_error","code":503}}')
OK = Reply(200, b'{"status":"ok"}')
SERVES = Reply(200, b'{"object":"list","data":[{"id":"smollm2","object":"model","meta":{"n_ctx":8192}}],"models":[]}')


def test_it_is_listed():
    assert ENGINES["llamacpp"].name == "llamacpp"


class TestCommand:
    def test_on_a_cpu(self):
        command = ENGINE.command(a_launch_order(), FACTS)
        assert command.argv == (
            "/usr/bin/llama-server",
            *("--model", "/models/w.gguf", "--alias", "smollm2", "--host", "127.0.0.1", "--port", "40001"),
            *("--threads", "2", "--threads-batch", "2", "--device", "none"),
            *("--metrics", "--slots", "--offline", "--no-webui"),
        )
        assert command.env["CUDA_VISIBLE_DEVICES"] == ""
        assert command.env["HF_HUB_OFFLINE"] == "1"

    def test_on_gpus_only_those_that_were_given_are_visible(self):
        command = ENGINE.command(a_launch_order(devices=("GPU-a", "GPU-b")), FACTS)
        assert command.env["CUDA_VISIBLE_DEVICES"] == "GPU-a,GPU-b"
        assert "--device" not in command.argv
        assert after(command.argv, "--n-gpu-layers") == "all"
        assert after(command.argv, "--split-mode") == "layer"
        assert "--split-mode" not in ENGINE.command(a_launch_order(devices=("GPU-a",)), FACTS).argv

    def test_context_length_and_the_operator_s_arguments(self):
        argv = ENGINE.command(a_launch_order(context_length=4096, arguments=("--mlock", "--parallel", "2")), FACTS).argv
        assert after(argv, "--ctx-size") == "4096"
        assert argv[-3:] == ("--mlock", "--parallel", "2")

    def test_every_flag_it_sets_is_its_own(self):
        argv = ENGINE.command(a_launch_order(context_length=1, devices=("GPU-a", "GPU-b")), FACTS).argv
        ours = tuple(word for word in argv if word.startswith("-"))
        assert len(problems(*ours)) == len(ours)


def after(argv, flag):
    return argv[argv.index(flag) + 1]


class TestArguments:
    @pytest.mark.parametrize("flag", OWNED)
    def test_owned_flags_are_refused_in_every_spelling(self, flag):
        assert problem_at(flag) == ["arguments[0]"]
        assert problem_at(f"{flag}=x") == ["arguments[0]"]

    @pytest.mark.parametrize("flag", ["--ctx_size", "--no-webui", "--no-models-autoload", "-no-ag", "--n_gpu_layers=3"])
    def test_other_ways_to_write_them_do_not_help(self, flag):
        assert problem_at(flag) == ["arguments[0]"]

    def test_the_place_and_the_way_out_are_told(self):
        (problem,) = problems("--mlock", "-c", "4096")
        assert problem.text() == "arguments[1]: -c is set by llmgw – set context_length in the profile"
        assert problem.code == "argument.owned"

    @pytest.mark.parametrize("flag", ["--mlock", "--parallel", "-np", "--no-mmap", "--embeddings", "-ctk", "--jinja"])
    def test_others_pass(self, flag):
        assert problem_at(flag) == []

    @given(st.lists(st.text()))
    def test_nothing_that_is_typed_raises(self, arguments):
        problems(*arguments)


def problem_at(flag):
    return [problem.field for problem in problems(flag)]


def problems(*arguments):
    return ENGINE.profile_problems(a_profile(arguments=arguments))


def test_what_its_command_line_would_not_honour_is_refused():
    told = ENGINE.profile_problems(a_gpu_profile(devices=2, tensor_parallel=2, pipeline_parallel=1, quantization="fp8"))
    assert [(problem.field, problem.code) for problem in told] == [
        ("quantization", "quantization.in-weights"),
        ("tensor_parallel", "parallel.layers"),
    ]
    assert "GGUF" in told[0].message
    assert ENGINE.profile_problems(a_gpu_profile(devices=2, pipeline_parallel=2)) == ()


class TestReadiness:
    @pytest.mark.parametrize(
        ("health", "models", "found"),
        [
            (NONE, NONE, Readiness.NO_ANSWER),
            (LOADING, LOADING, Readiness.LOADING),
            (LOADING, NONE, Readiness.LOADING),
            (OK, LOADING, Readiness.LOADING),
            (OK, NONE, Readiness.LOADING),
            (OK, SERVES, Readiness.READY),
            (OK, Reply(200, b'{"data":[{"id":"other"}]}'), Readiness.FOREIGN),
            (OK, Reply(200, b'{"data":[]}'), Readiness.FOREIGN),
            (OK, Reply(200, b"<html>"), Readiness.FOREIGN),
            (OK, Reply(404, b"not found"), Readiness.FOREIGN),
            (Reply(404), SERVES, Readiness.FOREIGN),
            (Reply(401), Reply(401), Readiness.FOREIGN),
        ],
    )
    def test_both_answers_count(self, health, models, found):
        assert ENGINE.readiness(health, models, "smollm2") is found

    @given(st.integers(0, 599), st.binary(), st.integers(0, 599), st.binary())
    def test_no_answer_raises_and_none_by_chance_is_ready(self, health, told, models, listed):
        found = ENGINE.readiness(Reply(health, told), Reply(models, listed), "smollm2")
        assert found is not Readiness.READY


class TestBusy:
    def test_slots_at_work_are_counted(self):
        reply = Reply(200, b'[{"id":0,"is_processing":true,"n_ctx":1},{"id":1,"is_processing":false}]')
        assert ENGINE.busy(reply) == 1
        assert ENGINE.busy(Reply(200, b"[]")) == 0

    @pytest.mark.parametrize("reply", [NONE, LOADING, Reply(404, b"[]"), Reply(200, b"{"), Reply(200, b'[{"id":0}]')])
    def test_what_does_not_say_is_not_guessed(self, reply):
        assert ENGINE.busy(reply) is None


def test_flags_are_written_as_llama_server_writes_them():
    assert all(re.fullmatch(r"-{1,2}[a-z][a-z0-9-]*", flag) for flag in OWNED)


class TestNoise:
    NOISE = (
        "0.02.070.102 I slot print_timing: id  3 | task 0 | prompt eval time =     622.58 ms /    33 tokens",
        "slot print_timing: id  0 | task 5 | ",
        "       eval time =      23.77 ms /     2 tokens (   11.88 ms per token,    84.15 tokens per second)",
        "0.01.423.463 I slot get_availabl: id  3 | task -1 | selected slot by LRU, t_last = -1",
        "0.02.070.149 I slot      release: id  3 | task 0 | stop processing: n_tokens = 34, truncated = 0",
        "slot update_slots: id  0 | task 5 | prompt done, n_past = 31, n_tokens = 31",
        "srv  update_slots: all slots are idle",
        "srv  log_server_r: request: POST /v1/chat/completions 127.0.0.1 200",
        "0.00.004.213 W srv          init: security: no API key is set and CORS allows all origins",
    )
    NEWS = (
        "0.01.121.797 I srv          init: model loaded",
        "0.00.017.765 E srv    load_model: failed to load model, '/models/w.gguf'",
        "srv  update_slots: failed to find free space in the KV cache, retrying with smaller batch size",
        "0.02.070.102 W slot update_slots: id  0 | task 5 | input truncated, n_ctx = 4096",
        "0.02.070.102 E slot update_slots: id  0 | task 5 | decode error",
        "ggml_abort: GGML_ASSERT(n_tokens > 0)",
    )

    @pytest.mark.parametrize("line", NOISE)
    def test_each_request_is_noise(self, line):
        assert ENGINE.is_noise(line)

    @pytest.mark.parametrize("line", NEWS)
    def test_loading_and_trouble_are_not(self, line):
        assert not ENGINE.is_noise(line)
