"""What lies in a queue, or was published, and is no task: it is thrown away, and the next message is read."""

import base64
import json
from contextlib import suppress
from typing import Any

import pytest
from celery import Celery
from kombu import Consumer, Exchange, Queue
from kombu.common import Broadcast
from redis import Redis

from llmgw import broker
from tests.servers import eventually

QUEUE = Queue("tolerant", Exchange("tolerant"), routing_key="tolerant")
SHOUTS = Broadcast("tolerant.shouts", queue="tolerant.mine", routing_key="shout")


def _message(body: bytes = b"[[], {}, null]", headers: Any = None, **properties: Any) -> bytes:
    told = {"delivery_tag": "d", "body_encoding": "base64", "delivery_info": {"exchange": "", "routing_key": ""}}
    message = {
        "body": base64.b64encode(body).decode(),
        "content-type": "application/json",
        "content-encoding": "utf-8",
        "headers": {"task": "llmgw.good", "id": "good"} if headers is None else headers,
        "properties": told | properties,
    }
    return json.dumps(message).encode()


NO_TASKS = {
    "no text": b"\xff\xfe",
    "no JSON": b"garbage",
    "no object": b"[]",
    "null": b"null",
    "an empty object": b"{}",
    "too deep a list": b"[" * 100_000,
    "too deep an object": b'{"a":' * 20_000 + b"1" + b"}" * 20_000,
    "a huge number": b"1" * 10_000,
    "a strange number": b'{"__type__": "decimal", "__value__": "x"}',
    "no properties": b'{"body": "", "headers": {"task": "x"}}',
    "no delivery tag": _message(delivery_tag=None),
    "a body in clear": _message(body_encoding="utf-8"),
    "a body of another form": _message(b"{}"),
    "a body that is no JSON": _message(b"garbage"),
    "no headers": _message(headers=[]),
    "a task without an id": _message(headers={"task": "x"}),
    "a task with a strange time limit": _message(headers={"task": "x", "id": "i", "timelimit": 5}),
}


def _drain(url: str, queue: Queue, *messages: bytes) -> list[str]:
    """Put messages on their way, and return the ids of the tasks that arrive until there is one."""
    heard: list[str] = []
    app = Celery(broker=url, amqp=broker.AMQP_CLASS)
    app.conf.update(broker.SETTINGS)
    with app.connection_for_read() as connection, Redis.from_url(url) as redis:

        def read(patience: float) -> list[str]:
            with suppress(TimeoutError):
                connection.drain_events(timeout=patience)
            return heard

        with Consumer(connection, [queue], on_message=lambda message: heard.append(message.headers["id"]), no_ack=True):
            if isinstance(queue, Broadcast):
                eventually(lambda: read(0.01) or redis.pubsub_numpat(), 5)
            for data in messages:
                if isinstance(queue, Broadcast):
                    redis.publish("/0.tolerant.shouts/shout", data)
                else:
                    redis.lpush("tolerant", data)
            eventually(lambda: read(0.2), 5)
    return heard


@pytest.mark.parametrize("wrong", NO_TASKS.values(), ids=NO_TASKS)
@pytest.mark.parametrize("queue", [QUEUE, SHOUTS], ids=["queue", "broadcast"])
def test_what_is_no_task_is_thrown_away(redis_url: str, queue: Queue, wrong: bytes) -> None:
    assert _drain(redis_url, queue, wrong, _message()) == ["good"]
