"""One log for every process: readable on a terminal, JSON elsewhere, and nowhere a secret."""

import json
import logging
import os
import re
import sys
from collections.abc import Mapping, MutableMapping
from datetime import datetime
from typing import Any, Final

import structlog

Fields = MutableMapping[str, Any]

GONE: Final = "[redacted]"

# --- what must never be written ---------------------------------------------------------------------------------

_SECRET_KEYS: Final = re.compile(
    r"passw|passphrase|secret|authorization|cookie|credential|(^|[_-])token$|(api|private|access|inference)[_-]?key$",
    re.IGNORECASE,
)
_SECRET_VALUES: Final = (
    # keys and tokens of ours, and those of places that weights come from
    (re.compile(r"\bllmgw[-_][A-Za-z0-9_-]{20,}"), GONE),
    (re.compile(r"\b(hf_|sk-)[A-Za-z0-9_-]{20,}"), GONE),
    # the password in a URL
    (re.compile(r"(?P<before>\b[a-z][a-z0-9+.-]*://[^\s/:@]*):[^\s/@]+@", re.IGNORECASE), rf"\g<before>:{GONE}@"),
    (re.compile(r"(?P<before>/sign-in/)[^/\s\"']+"), rf"\g<before>{GONE}"),
    (re.compile(r"(?P<before>\b(bearer|basic)\s+)[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE), rf"\g<before>{GONE}"),
    # `password=…`, `"api_key": "…"`
    (
        re.compile(
            r"(?P<before>(passw(or)?d|passphrase|secret(_key)?|signature|authorization|(api|access|auth)[_-]?(key|token)|token)"
            r"[\"']?\s*[:=]\s*[\"']?)(?!bearer|basic|\[redacted)[^\s\"',;&)}]+",
            re.IGNORECASE,
        ),
        rf"\g<before>{GONE}",
    ),
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL), GONE),
)


def redacted(value: Any) -> Any:
    """Return the value with what looks like a secret taken out, however deep it lies."""
    if isinstance(value, str):
        return _redacted_text(value)
    if isinstance(value, Mapping):
        return {key: _redacted_under(str(key), inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [redacted(inner) for inner in value]
    return value


def _redacted_text(text: str) -> str:
    for pattern, instead in _SECRET_VALUES:
        text = pattern.sub(instead, text)
    return text


def _redacted_under(key: str, value: Any) -> Any:
    # A number is never a secret, but may be a count of tokens.
    if _SECRET_KEYS.search(key) and value and not isinstance(value, int | float):
        return GONE
    return redacted(value)


# --- one event, two forms ---------------------------------------------------------------------------------------

_SAID_FIRST: Final = ("ts", "level", "process", "event", "exception", "logger", "pid")
_COLOURS: Final = {"warning": "\x1b[33m", "error": "\x1b[31m", "critical": "\x1b[31m"}
_DIM: Final = "\x1b[2m"
_PLAIN: Final = "\x1b[0m"


def as_text(fields: Mapping[str, Any], *, colour: bool = False) -> str:
    """Say one event as an operator reads it: `12:04:31 node     launch started  replica=smollm2/1`."""
    head = f"{_clock(str(fields.get('ts', '')))} {fields.get('process', ''):<8} "
    level = str(fields.get("level", "info"))
    said = f"{level}: " if level not in {"info", "debug"} else ""
    said += str(fields.get("event", ""))
    facts = " ".join(f"{key}={_word(value)}" for key, value in fields.items() if key not in _SAID_FIRST)
    lines = [*said.splitlines(), *str(fields.get("exception") or "").splitlines()] or [""]
    lines[0] += f"  {facts}" if facts else ""
    tint = _COLOURS.get(level, "") if colour else ""
    dim, plain = (_DIM, _PLAIN) if colour else ("", "")
    return "\n".join(f"{dim}{head}{plain}{tint}{line}{plain if tint else ''}" for line in lines)


def _clock(ts: str) -> str:
    try:
        return datetime.fromisoformat(ts).astimezone().strftime("%H:%M:%S")
    except ValueError:
        return "--:--:--"


def _word(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    text = value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
    return json.dumps(text, ensure_ascii=False) if not text or re.search(r"[\s\"]", text) else text


def as_json(fields: Mapping[str, Any]) -> str:
    """Say one event as a machine reads it, on one line."""
    first = {key: fields[key] for key in _SAID_FIRST if key in fields}
    return json.dumps(first | dict(fields), default=str, ensure_ascii=False)


# --- putting it together ----------------------------------------------------------------------------------------

# What these say at the level `info` is of no use to an operator, every two seconds.
_QUIET: Final = (
    "amqp",
    "asyncio",
    "celery.app.trace",
    "celery.beat",
    "celery.worker.consumer.consumer",
    "celery.worker.request",
    "celery.worker.strategy",
    "httpx",
    "httpx2",
    "kombu",
    "uvicorn.access",
    "uvicorn.error",
)
# Programs that bring handlers of their own, which would print a second time.
_BRING_HANDLERS: Final = ("uvicorn", "uvicorn.access", "uvicorn.error", "celery", "celery.task", "django")


class Handler(logging.StreamHandler[Any]):
    """Ours: `configure` may be called again, and leaves other handlers (those of tests, say) alone."""


def wants_json(*, terminal: bool) -> bool:
    """Decide the form: what LLMGW_LOG says, or text on a terminal and JSON elsewhere."""
    asked = os.environ.get("LLMGW_LOG", "")
    return asked == "json" or (asked != "text" and not terminal)


def configure(process: str, level: str = "") -> None:
    """Send all that this process logs, by structlog or by `logging`, through one renderer to standard error.

    `level` goes before LLMGW_LOG_LEVEL, and that before INFO.
    """
    terminal = sys.stderr.isatty()
    as_one = [structlog.contextvars.merge_contextvars, *_shared(process)]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *as_one,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = Handler(sys.stderr)
    render = _json_line if wants_json(terminal=terminal) else _coloured_line if terminal else _text_line
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=as_one,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, _redact, render],
        )
    )
    _install(handler, (level or os.environ.get("LLMGW_LOG_LEVEL") or "INFO").upper())


def _shared(process: str) -> list[structlog.typing.Processor]:
    def name_process(_: Any, __: str, fields: Fields) -> Fields:
        return {"process": process, **fields}

    return [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts"),
        name_process,
        _name_trace,
        _shorten_outages,
        structlog.processors.format_exc_info,
    ]


def _install(handler: Handler, level: str) -> None:
    root = logging.getLogger()
    for old in [old for old in root.handlers if isinstance(old, Handler)]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level)
    for name in _BRING_HANDLERS:
        logging.getLogger(name).handlers.clear()
        logging.getLogger(name).propagate = True
    for name in _QUIET:
        logging.getLogger(name).setLevel(max(root.level, logging.WARNING) if root.level > logging.DEBUG else root.level)


def _redact(_: Any, __: str, fields: Fields) -> Fields:
    cleaned: Fields = redacted(fields)
    return cleaned


def _json_line(_: Any, __: str, fields: Fields) -> str:
    return as_json(fields)


def _text_line(_: Any, __: str, fields: Fields) -> str:
    return as_text(fields)


def _coloured_line(_: Any, __: str, fields: Fields) -> str:
    return as_text(fields, colour=True)


def _name_trace(_: Any, __: str, fields: Fields) -> Fields:
    # Looked up, not imported: without tracing nothing of it is loaded.
    if tracing := sys.modules.get("opentelemetry.trace"):
        context = tracing.get_current_span().get_span_context()
        if context.is_valid:
            fields["trace_id"] = f"{context.trace_id:032x}"
    return fields


_OUTAGES: Final = frozenset(
    {"ConnectionError", "ConnectionRefusedError", "ConnectionResetError", "OperationalError", "SchedulingError"}
)


def _shorten_outages(_: Any, __: str, fields: Fields) -> Fields:
    """Say a lost connection to Redis or the database in a line: where we stood then is of no use to anybody."""
    caught = fields.get("exc_info")
    error = sys.exc_info()[1] if caught is True else caught[1] if isinstance(caught, tuple) else caught
    if type(error).__name__ in _OUTAGES:
        event, _, _ = str(fields["event"]).partition("\n")
        fields["event"] = event
        del fields["exc_info"]
        if str(error) not in event:
            fields["error"] = str(error)
    return fields
