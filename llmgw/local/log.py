"""The one log of `up`: what each program says, every line with the program's name before it."""

import io
import json
import os
import re
import signal
import sys
from datetime import UTC, datetime
from typing import IO, Any, Final

from llmgw import logs

_REDIS_LINE: Final = re.compile(r"^\d+:[A-Z] \d+ \w+ \d{4} [\d:.]+ (?P<level>[.*#-]) (?P<event>.*)$")
_LONGEST: Final = 16 * 1024
_NOISE: Final = (b"Memory overcommit must be enabled",)
"""Advice for a server of many gigabytes, which ours is not."""


class Log:
    """Writes to one stream; text unless LLMGW_LOG asks for JSON, since `up` is looked at by people."""

    def __init__(self, out: IO[str] | None = None, *, as_json: bool = False) -> None:
        self._out = out or sys.stdout
        if isinstance(self._out, io.TextIOWrapper):
            self._out.reconfigure(errors="replace")  # a terminal that knows no arrows shows question marks
        self.as_json = as_json
        self._colour = not as_json and self._out.isatty()

    def say(self, event: str, *, level: str = "info", **facts: Any) -> None:
        """Say something of our own."""
        self._write({"ts": _now(), "level": level, "process": "up", "event": event, **facts})

    def pass_on(self, program: str, line: bytes) -> None:
        """Say what a program said: one of our events as it is, anything else as plain words."""
        text = line.decode("utf-8", "replace").rstrip()
        if text and not any(noise in line for noise in _NOISE):
            self._write({**(_event(text) or _words(text)), "process": program})

    def block(self, lines: list[str]) -> None:
        """Show an answer that stands by itself; nothing is taken out of it."""
        self._print("\n" + "\n".join(lines) + "\n")

    def answer(self, **facts: Any) -> None:
        """Tell what stands by itself to a program; nothing is taken out of it."""
        self._print(logs.as_json({"ts": _now(), "level": "info", "process": "up", "event": "serving", **facts}))

    def _write(self, fields: dict[str, Any]) -> None:
        clean = logs.redacted(fields)
        self._print(logs.as_json(clean) if self.as_json else logs.as_text(clean, colour=self._colour))

    def _print(self, text: str) -> None:
        try:
            print(text, file=self._out, flush=True)
        except BrokenPipeError:  # nobody reads any more, as with `| head`: end as if we were told to
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._out.fileno())
            os.kill(os.getpid(), signal.SIGTERM)


def _event(text: str) -> dict[str, Any] | None:
    if not text.startswith("{"):
        return None
    try:
        fields = json.loads(text)
    except ValueError:
        return None
    return fields if isinstance(fields, dict) and "event" in fields else None


def _words(text: str) -> dict[str, Any]:
    found = _REDIS_LINE.match(text)
    level = "warning" if found and found["level"] == "#" else "info"
    return {"ts": _now(), "level": level, "event": found["event"] if found else text[:_LONGEST]}


def _now() -> str:
    return datetime.now(UTC).isoformat()
