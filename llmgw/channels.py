"""Channels to Redis that say when they are closed."""

from collections.abc import Iterator
from contextlib import contextmanager
from queue import Empty
from typing import Any, Final, Literal

import msgspec
import structlog
from kombu.transport import redis as kombu_redis
from redis.exceptions import ConnectionError as RedisConnectionError

log = structlog.get_logger(__name__)


class Properties(msgspec.Struct):
    """Where a message is from, and how its body is written."""

    delivery_tag: str
    delivery_info: dict[str, Any]
    body_encoding: Literal["base64"]


class Headers(msgspec.Struct):
    """What is to run, with what Celery believes unseen."""

    task: str
    id: str
    retries: int = 0
    timelimit: tuple[float | None, float | None] = (None, None)
    stamps: dict[str, Any] | None = None
    stamped_headers: list[str] | None = None


class Envelope(msgspec.Struct, rename="kebab"):
    """A task as Celery writes it into a queue: what is of another form would end the whole worker."""

    headers: Headers
    properties: Properties
    body: bytes
    content_type: Literal["application/json"]
    content_encoding: Literal["utf-8"]

    def check(self) -> None:
        """Raise ValueError unless the body holds positional arguments, keywords, and what Celery adds."""
        msgspec.json.decode(self.body, type=tuple[list[Any], dict[str, Any], dict[str, Any] | None])


_UNREADABLE: Final = (ValueError, ArithmeticError, RecursionError)


@contextmanager
def _minding_no_bytes() -> Iterator[None]:
    try:
        yield
    except _UNREADABLE as wrong:
        log.warning("what is no message was thrown away", why=str(wrong))
        raise Empty from None


class Channel(kombu_redis.Channel):
    """Says that it is closed, where kombu 5.7 fails in a way that nobody expects and takes the worker with it.

    A worker that loses its broker in the middle of a task acknowledges the task, or gives it back, on the old channel.
    What cannot be told that way comes back by the visibility time-out.

    It throws away what is no JSON, which has left the queue by then: that would take the worker with it, too.
    """

    def _connparams(self, asynchronous: bool = False) -> dict[str, Any]:  # noqa: FBT001, FBT002  # kombu's signature
        connection: Any = self.connection
        if connection is None or connection.client is None:
            raise RedisConnectionError("this channel is closed")
        params: dict[str, Any] = super()._connparams(asynchronous)  # type: ignore[misc]
        return params

    def _brpop_read(self, **how: Any) -> Any:
        with _minding_no_bytes():
            return super()._brpop_read(**how)  # type: ignore[misc]

    def _receive_one(self, client: Any) -> Any:
        with _minding_no_bytes():
            return super()._receive_one(client)  # type: ignore[misc]


class Transport(kombu_redis.Transport):
    """Redis, by our channels; what is no task is thrown away, whether it lay in a queue or was published."""

    Channel = Channel

    def _deliver(self, message: Any, queue: str | None) -> None:
        try:
            msgspec.convert(message, Envelope).check()
        except _UNREADABLE as wrong:
            log.warning("what is no task was thrown away", queue=queue, why=str(wrong))
        else:
            super()._deliver(message, queue)
