"""Tracing over OTLP, when OTEL_EXPORTER_OTLP_ENDPOINT names a collector; without it nothing is loaded or done."""

import importlib.abc
import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final

_ENDPOINT: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"
_PACKAGE: Final = "opentelemetry"
# Spans that come every few seconds and tell nothing.
_QUIET: Final = (
    "llmgw.nodes.heartbeat",
    "llmgw.node.tick",
    "llmgw.replicas.tidy",
    "apply_async/llmgw.replicas.reconcile",
)
# The address of a sign-in link is a secret; the others are asked for often, and tell nothing.
_UNTRACED_PAGES: Final = "/sign-in/,/healthz,/static/"
# These tell something only if there is something below them.
_HOLLOW: Final = ("run/llmgw.replicas.reconcile",)
_is_on = False


class _KeptOut(importlib.abc.MetaPathFinder):
    """Makes OpenTelemetry look as if it were not installed: where it is, redis loads its metrics, in 0.1 s."""

    def find_spec(self, name: str, *_: Any) -> None:
        """Refuse that one package."""
        if name == _PACKAGE:
            raise ModuleNotFoundError(f"{name} is kept out: OTEL_EXPORTER_OTLP_ENDPOINT names no collector", name=name)


if not os.environ.get(_ENDPOINT) and _PACKAGE not in sys.modules:
    sys.meta_path.insert(0, _KeptOut())


def configure(process: str) -> None:
    """Send this process's spans to the collector, those of Django and Celery among them, where there is one."""
    global _is_on  # noqa: PLW0603  # a process traces or does not, and its helpers must know at no cost
    if _is_on or not os.environ.get(_ENDPOINT):
        return
    _set_provider(process)
    _instrument(process)
    _is_on = True


def _set_provider(process: str) -> None:
    from opentelemetry import trace  # noqa: PLC0415  # only where there is a collector
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    open_parents: set[int] = set()

    class Worthwhile(BatchSpanProcessor):
        """Lets go of the heartbeat's spans, and of passes that found nothing to do."""

        def on_end(self, span: ReadableSpan) -> None:
            # A span ends after all that is below it.
            has_children = span.context is not None and span.context.span_id in open_parents
            if span.name.endswith(_QUIET) or (span.name in _HOLLOW and not has_children):
                return
            if span.context is not None:
                open_parents.discard(span.context.span_id)
            if span.parent is not None and not span.parent.is_remote:
                open_parents.add(span.parent.span_id)
            super().on_end(span)

    provider = TracerProvider(resource=Resource.create({"service.name": f"llmgw-{process}"}))
    provider.add_span_processor(Worthwhile(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)


def _instrument(process: str) -> None:
    if process == "router":
        return
    from opentelemetry.instrumentation.celery import CeleryInstrumentor  # noqa: PLC0415

    CeleryInstrumentor().instrument()
    if process == "web":
        from opentelemetry.instrumentation.django import DjangoInstrumentor  # noqa: PLC0415

        excluded = os.environ.get("OTEL_PYTHON_DJANGO_EXCLUDED_URLS", _UNTRACED_PAGES)
        DjangoInstrumentor().instrument(excluded_urls=excluded)


def current_traceparent() -> str:
    """Return the W3C `traceparent` of the span we are in; empty when there is none."""
    if not _is_on:
        return ""
    from opentelemetry.propagate import inject  # noqa: PLC0415

    carrier: dict[str, str] = {}
    inject(carrier)
    return carrier.get("traceparent", "")


def continue_trace(traceparent: str) -> AbstractContextManager[None]:
    """Make what happens inside belong to the trace that another process began."""
    return _continued(traceparent) if _is_on and traceparent else nullcontext()


@contextmanager
def _continued(traceparent: str) -> Iterator[None]:
    from opentelemetry import context  # noqa: PLC0415
    from opentelemetry.propagate import extract  # noqa: PLC0415

    token = context.attach(extract({"traceparent": traceparent}))
    try:
        yield
    finally:
        context.detach(token)


def span(name: str, **attributes: str | float | bool) -> AbstractContextManager[Any]:
    """Record what happens inside as one span."""
    if not _is_on:
        return nullcontext()
    from opentelemetry import trace  # noqa: PLC0415

    return trace.get_tracer("llmgw").start_as_current_span(name, attributes=attributes)
