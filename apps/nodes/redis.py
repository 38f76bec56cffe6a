"""The control plane's own connection to Redis, beside Celery's."""

from contextlib import suppress
from functools import cache
from typing import Final

from django.conf import settings
from redis import Redis, RedisError
from redis.backoff import NoBackoff
from redis.retry import Retry

from llmgw.core import wire

# A sweep or a publication that cannot be had at once is better left to the next tick.
TIMEOUT_S: Final = 1.0


def client() -> Redis:
    """Return the client of this process; whoever uses it expects `redis.RedisError`."""
    return _client(settings.REDIS_URL)


def unhear(node: str) -> None:
    """Drop which tick a node answered last."""
    # While Redis is away it stays: a few bytes, that say nothing of a node that nobody knows.
    with suppress(RedisError):
        client().zrem(wire.HEARD_KEY, node)


@cache
def _client(url: str) -> Redis:
    # One more try at once: a connection that lay idle may have been closed at the other end.
    return Redis.from_url(
        url,
        socket_timeout=TIMEOUT_S,
        socket_connect_timeout=TIMEOUT_S,
        retry=Retry(NoBackoff(), 1),
        decode_responses=False,
    )
