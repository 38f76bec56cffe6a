"""Channels to Redis that say when they are closed."""

from typing import Any

from kombu.transport import redis as kombu_redis
from redis.exceptions import ConnectionError as RedisConnectionError


class Channel(kombu_redis.Channel):
    """Says that it is closed, where kombu 5.7 fails in a way that nobody expects and takes the worker with it.

    A worker that loses its broker in the middle of a task acknowledges the task, or gives it back, on the old channel.
    What cannot be told that way comes back by the visibility time-out.
    """

    def _connparams(self, asynchronous: bool = False) -> dict[str, Any]:  # noqa: FBT001, FBT002  # kombu's signature
        connection: Any = self.connection
        if connection is None or connection.client is None:
            raise RedisConnectionError("this channel is closed")
        params: dict[str, Any] = super()._connparams(asynchronous)  # type: ignore[misc]
        return params


class Transport(kombu_redis.Transport):
    """Redis, by our channels."""

    Channel = Channel
