"""Asks an engine how it is, straight and without any proxy."""

import http.client
from contextlib import closing
from typing import Final

from llmgw.core.engines.base import Engine, Readiness, Reply

_LARGEST: Final = 1024**2
_ANY: Final = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104 - what is listened on, not by us


def is_any(host: str) -> bool:
    """Tell whether an engine that listens on `host` listens on every address of the machine."""
    return host in _ANY


def reachable(host: str) -> str:
    """Return the address to ask at for an engine that listens on `host`."""
    return _ANY.get(host, host)


def ask(host: str, port: int, path: str, timeout: float) -> Reply:
    """Get one path; status 0 when there was no answer."""
    with closing(http.client.HTTPConnection(reachable(host), port, timeout=timeout)) as connection:
        try:
            connection.request("GET", path, headers={"Connection": "close"})
            answer = connection.getresponse()
            return Reply(answer.status, answer.read(_LARGEST))
        except (OSError, http.client.HTTPException):
            return Reply(0)


def readiness(engine: Engine, host: str, port: int, expected: str, timeout: float) -> Readiness:
    """Ask the two questions: is the process up, and does it serve the expected name."""
    health = ask(host, port, "/health", timeout)
    models = ask(host, port, "/v1/models", timeout) if health.status == 200 else Reply(0)
    return engine.readiness(health, models, expected)
