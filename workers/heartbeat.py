"""Answers ticks: one Redis pipeline from memory, which waits for nothing slow."""

import threading
from collections.abc import Callable
from typing import Final

import msgspec
import structlog
from redis import Redis, RedisError
from redis.backoff import NoBackoff
from redis.retry import Retry

from llmgw.core import wire

log = structlog.get_logger(__name__)

KEPT_S: Final = 60
"""How long an answer lives in Redis: many ticks, so that only a node that has gone is without one."""
_PATIENCE_S: Final = 0.5


class Heart:
    """Answers each tick once and in order; an answer that cannot be given is given up, the next tick comes soon."""

    def __init__(self, redis_url: str, node: str, told: Callable[[int], wire.Beat]) -> None:
        self._node = node
        self._told = told
        self._lock = threading.Lock()
        self._last = (0, 0.0)
        self._is_away = False
        self._redis = Redis.from_url(
            redis_url,
            socket_timeout=_PATIENCE_S,
            socket_connect_timeout=_PATIENCE_S,
            # Once more at once: the first try may find a connection that a restarted Redis has closed.
            retry=Retry(NoBackoff(), 1),
        )

    def answer(self, tick: int, at: float) -> bool:
        """Say that we heard this tick; False when it was an old one, or could not be said."""
        with self._lock:
            last_tick, last_at = self._last
            # A lower number at a later time is a counter that has begun anew, not a tick that came late.
            if tick <= last_tick and at <= last_at:
                return False
            self._last = (tick, at)
            return self._say(tick)

    def close(self) -> None:
        """Close the connection."""
        self._redis.close()

    def _say(self, tick: int) -> bool:
        fields = msgspec.to_builtins(self._told(tick))
        try:
            with self._redis.pipeline(transaction=False) as pipe:
                pipe.hset(wire.beat_key(self._node), mapping=fields)
                pipe.expire(wire.beat_key(self._node), KEPT_S)
                pipe.zadd(wire.HEARD_KEY, {self._node: tick})
                pipe.execute()
        except (RedisError, OSError) as error:
            self._fail(tick, error)
            return False
        self._is_away = False
        return True

    def _fail(self, tick: int, error: Exception) -> None:
        """Say once that Redis is away."""
        say = log.debug if self._is_away else log.warning
        say("tick not answered", tick=tick, error=str(error))
        self._is_away = True
