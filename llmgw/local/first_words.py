"""Asks a model for a word or two through the router, as a client would: the one proof that it serves."""

import http.client
import json
from contextlib import closing
from typing import Final
from urllib.parse import urlsplit

_PATIENCE_S: Final = 30.0


def answers(router_url: str, key: str, model: str) -> bool:
    """Tell whether a chat completion succeeds."""
    where = urlsplit(router_url)
    body = {"model": model, "max_tokens": 2, "messages": [{"role": "user", "content": "Say hello."}]}
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    with closing(http.client.HTTPConnection(where.hostname or "", where.port, timeout=_PATIENCE_S)) as connection:
        try:
            connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
            reply = connection.getresponse()
            return reply.status == 200 and bool(reply.read())
        except (OSError, http.client.HTTPException):
            return False


def curl(router_url: str, key: str, model: str) -> str:
    """Return a command that streams an answer."""
    body = {"model": model, "stream": True, "messages": [{"role": "user", "content": "Why is the sky blue?"}]}
    return (
        f"curl -N {router_url}/v1/chat/completions -H 'Authorization: Bearer {key}' "
        f"-H 'Content-Type: application/json' -d '{json.dumps(body)}'"
    )
