"""Tracing: nothing of it is loaded unless there is a collector, and then a trace goes on from process to process."""

import os
import subprocess
import sys

import pytest

OFF = """
import sys
from llmgw import telemetry
telemetry.configure("control")
with telemetry.continue_trace("00-" + "a" * 32 + "-" + "b" * 16 + "-01"), telemetry.span("pass", by="beat"):
    print(repr(telemetry.current_traceparent()))
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""
ON = """
from llmgw import telemetry
telemetry.configure("node")
with telemetry.continue_trace("00-" + "a" * 32 + "-" + "b" * 16 + "-01"), telemetry.span("launch"):
    print(telemetry.current_traceparent())
"""


def run(code, **environment):
    told = {**os.environ, **environment}
    return subprocess.run([sys.executable, "-c", code], env=told, check=True, capture_output=True, text=True).stdout


def test_off_it_loads_nothing():
    assert run(OFF).split("\n") == ["''", "[]", ""]


@pytest.mark.parametrize("module", ["llmgw.asgi", "llmgw.celery", "llmgw.router.cli", "workers.cli, workers.tasks"])
def test_off_it_is_loaded_by_no_process(module):
    assert run(f"import sys, {module}; print('opentelemetry' in sys.modules)").strip() == "False"


def test_on_a_trace_goes_on():
    # Nobody listens on port 1: that the span cannot be delivered disturbs nobody.
    parent = run(ON, OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:1", OTEL_EXPORTER_OTLP_TIMEOUT="1").strip()
    version, trace, span, flags = parent.split("-")
    assert (version, trace, flags) == ("00", "a" * 32, "01")
    assert span != "b" * 16
