"""One trace from the reconcile pass over the order and the node's launch back to the report."""

import http.server
import json
import sys
import threading
from dataclasses import dataclass
from functools import partial

import httpx
import pytest

from llmgw.telemetry import _KeptOut
from tests.scenarios.cluster import Cluster, eventually

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Span:
    """What matters of a span here."""

    service: str
    name: str
    trace: str
    id: str
    parent: str


def a_span(service, span):
    return Span(service, span.name, span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex())


class Collector:
    """Takes spans as any OTLP/HTTP collector does."""

    def __init__(self, monkeypatch):
        # The tests' own process traces nothing, so OpenTelemetry is kept out of it, too.
        monkeypatch.setattr(sys, "meta_path", [finder for finder in sys.meta_path if not isinstance(finder, _KeptOut)])
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        self.spans: list[Span] = []
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                assert self.path == "/v1/traces"
                collector.take(ExportTraceServiceRequest.FromString(body))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def take(self, request):
        for resource in request.resource_spans:
            facts = {fact.key: fact.value.string_value for fact in resource.resource.attributes}
            self.spans += [
                Span(
                    facts["service.name"], span.name, span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex()
                )
                for scope in resource.scope_spans
                for span in scope.spans
            ]

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server.server_port}"

    def find(self, service, name):
        return [span for span in self.spans if (span.service, span.name) == (service, name)]


@pytest.fixture
def collector(monkeypatch):
    collector = Collector(monkeypatch)
    yield collector
    collector.server.shutdown()
    collector.server.server_close()


@pytest.fixture
def traced(tmp_path, collector):
    """Start a cluster whose processes know the collector."""
    told = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_BSP_SCHEDULE_DELAY": "100", "LLMGW_LOG": "json"}
    cluster = Cluster(tmp_path / "cluster", extra_env=told)
    try:
        cluster.start_all()
        yield cluster
    finally:
        cluster.close()


def test_a_launch_is_one_trace_over_control_and_node(traced, collector, a_model):
    traced.declare(a_model("traced"))
    traced.wait_for("traced", "ready")
    (begun,) = eventually(lambda: collector.find("llmgw-control", "reconcile.pass"), "the pass is told")

    def in_trace(service, name):
        return [span for span in collector.find(service, name) if span.trace == begun.trace]

    for service, name in (
        ("llmgw-control", "apply_async/llmgw.node.order"),
        ("llmgw-node", "run/llmgw.node.order"),
        ("llmgw-control", "run/llmgw.control.report"),
    ):
        eventually(partial(in_trace, service, name), f"{name} of {service} is in the trace")
    (sent,) = in_trace("llmgw-control", "apply_async/llmgw.node.order")
    (taken,) = in_trace("llmgw-node", "run/llmgw.node.order")
    assert (sent.parent, taken.parent) == (begun.id, sent.id)
    assert f'"trace_id": "{begun.trace}"' in traced.log("n1")
    traced.start_web()
    for page in ("sign-in/a-secret/", "admin/login/"):
        httpx.get(f"http://127.0.0.1:{traced.web_port}/{page}", trust_env=False)
    eventually(lambda: collector.find("llmgw-web", "GET admin/login/"), "the web process tells of requests")
    assert not [span for span in collector.spans if "sign-in" in span.name], "its address is a secret"
    assert not [span for span in collector.spans if "heartbeat" in span.name or "tick" in span.name]
    log = [json.loads(line) for line in traced.log("control").splitlines() if line.startswith("{")]
    assert traced.ask("last_tick") > 1
    assert not [line for line in log if line["level"] != "info"], "ticks and orders are sent without a complaint"
    passes = {span.parent for span in collector.find("llmgw-control", "reconcile.pass")}
    looks = {span.id for span in collector.find("llmgw-control", "run/llmgw.replicas.reconcile")}
    assert looks == passes, "a look that found nothing to do is not told"
