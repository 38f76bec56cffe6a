"""Lines that somebody may copy into a terminal."""

import json
import shlex

from django.conf import settings


def curl(model: str) -> str:
    """Return a request to the router for this model; the key is the reader's own."""
    body = {"model": model, "messages": [{"role": "user", "content": "Say hello."}], "stream": True}
    key = "" if settings.LLMGW_ROUTER_OPEN else ' \\\n  -H "Authorization: Bearer $LLMGW_KEY"'
    return (
        f"curl -N {settings.LLMGW_ROUTER_URL.rstrip('/')}/v1/chat/completions{key} \\\n"
        f"  -H 'Content-Type: application/json' \\\n  -d {shlex.quote(json.dumps(body))}"
    )
