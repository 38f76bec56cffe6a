"""The sweep: judges who has answered the ticks, and sends the next one.

Redis holds all of it (`llmgw.core.wire`): the counter, the sorted set of who answered which tick last, each node's
beat, and here, beside them, which ticks were really sent and when. A tick that could not be published is in no list,
so nobody can have missed it. Redis away means no sweep; Redis back and empty means that everybody starts afresh.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import msgspec
import structlog
from celery import current_app
from django.conf import settings
from django.db.models import Max
from kombu.common import Broadcast, maybe_declare
from kombu.exceptions import KombuError
from redis import RedisError

from apps.audit.actions import BEAT
from apps.nodes import actions
from apps.nodes.models import NodeRow
from apps.nodes.redis import client
from apps.nodes.signals import ticked
from llmgw.core import liveness, wire
from llmgw.core.units import NodeName, Seconds
from llmgw.core.world import NodeState

log = structlog.get_logger(__name__)

SENT_KEY: Final = "llmgw:ticks"
"""Sorted set: number of a tick that was sent → when, by the control plane's clock."""
GATE_KEY: Final = "llmgw:tick:gate"
"""Lives for half a period after a tick: as long as it does, no other is sent."""

# What every node's worker reads; each has a queue of its own on this exchange, so the name here is never declared.
TICKS: Final = Broadcast(wire.TICK_EXCHANGE, queue="ticks", routing_key=wire.TICK_ROUTING_KEY)


@dataclass(frozen=True, slots=True)
class Heard:
    """What Redis tells of the ticks so far."""

    ticks: tuple[liveness.Tick, ...]
    answered: Mapping[str, int]
    """Node name → the last tick it answered."""
    beats: Mapping[str, wire.Beat]
    """Node name → its answer to the last tick sent; nodes that have not answered that one are missing."""


class _Outage:
    """Remembers that Redis is away, so that the log says so once and not at every tick."""

    def __init__(self) -> None:
        self.since: datetime | None = None

    def begins(self, now: datetime, error: Exception) -> None:
        if self.since is None:
            log.warning("Redis cannot be reached: no ticks are sent and no node is judged", error=str(error))
            self.since = now

    def ends(self, now: datetime) -> None:
        if self.since is not None:
            log.info("Redis is back: ticks go on", away_s=round((now - self.since).total_seconds(), 1))
            self.since = None


_outage = _Outage()


def sweep(now: datetime) -> int | None:
    """Judge the ticks so far and send the next; return its number, None when it was too early or Redis is away."""
    try:
        if not _pass_gate():
            return None
        heard = read_heard()
        tick = _send_tick(now)
    except (RedisError, KombuError, OSError) as error:
        _outage.begins(now, error)
        return None
    _outage.ends(now)
    _apply(heard, now)
    for listener, outcome in ticked.send_robust(NodeRow, tick=tick, beats=heard.beats, now=now):
        if isinstance(outcome, Exception):
            log.error("what follows a tick has failed", listener=repr(listener), exc_info=outcome)
    return tick


def read_heard() -> Heard:
    """Read the ticks that were sent and who answered them, in two round trips."""
    with client().pipeline(transaction=False) as pipe:
        pipe.zrange(SENT_KEY, 0, -1, withscores=True)
        pipe.zrange(wire.HEARD_KEY, 0, -1, withscores=True)
        sent, heard = pipe.execute()
    ticks = tuple(liveness.Tick(int(number), Seconds(at)) for number, at in sent)
    answered = {name.decode(errors="replace"): int(tick) for name, tick in heard}
    last = max((tick.number for tick in ticks), default=None)
    return Heard(ticks, answered, _read_beats([name for name, tick in answered.items() if tick == last]))


def last_heard(now: datetime) -> Mapping[str, float]:
    """Return for each node how many seconds ago the last tick was sent that it answered; {} while Redis is away."""
    try:
        heard = read_heard()
    except RedisError:
        return {}
    sent = {tick.number: tick.sent_at for tick in heard.ticks}
    return {name: max(now.timestamp() - sent[tick], 0.0) for name, tick in heard.answered.items() if tick in sent}


def _read_beats(names: list[str]) -> Mapping[str, wire.Beat]:
    with client().pipeline(transaction=False) as pipe:
        for name in names:
            pipe.hgetall(wire.beat_key(name))
        found = zip(names, pipe.execute(), strict=True)
    beats = ((name, _beat_of(raw)) for name, raw in found)
    return {name: beat for name, beat in beats if beat is not None}


def _beat_of(raw: Mapping[bytes, bytes]) -> wire.Beat | None:
    """Read the fields of a node's hash; None when it has expired or is none."""
    told = {key.decode(errors="replace"): value.decode(errors="replace") for key, value in raw.items()}
    try:
        return msgspec.convert(told, wire.Beat, strict=False)
    except msgspec.ValidationError:
        return None


# --- sending ------------------------------------------------------------------------------------------------------


def _pass_gate() -> bool:
    """Let one sweep through in half a period, so that a backlog of them is not a burst of ticks."""
    return bool(client().set(GATE_KEY, 1, nx=True, px=int(settings.LLMGW_HEARTBEAT_S * 500)))


def _send_tick(now: datetime) -> int:
    redis = client()
    if not redis.exists(wire.TICK_KEY):
        redis.set(wire.TICK_KEY, NodeRow.objects.aggregate(last=Max("last_tick"))["last"] or 0, nx=True)
    tick = int(redis.incr(wire.TICK_KEY))
    at = now.timestamp()
    with current_app.producer_or_acquire() as producer:
        # Not by the argument `declare`: OpenTelemetry takes what is in it for queues.
        maybe_declare(TICKS.exchange, producer.channel)
        # No `expires`: the node would judge that by its own clock, which may be wrong.
        current_app.send_task(
            wire.TICK_TASK,
            kwargs={"tick": tick, "at": at},
            queue=TICKS,  # type: ignore[arg-type]  # Celery takes a queue as well as its name
            routing_key=wire.TICK_ROUTING_KEY,
            producer=producer,
            retry=False,
        )
    with redis.pipeline() as pipe:
        pipe.zadd(SENT_KEY, {str(tick): at})
        pipe.zremrangebyrank(SENT_KEY, 0, -2 * settings.LLMGW_LOST_TICKS - 2)
        pipe.execute()
    return tick


# --- judging ------------------------------------------------------------------------------------------------------


def _apply(heard: Heard, now: datetime) -> None:
    """Carry out the verdicts, each in a transaction of its own."""
    rows = NodeRow.objects.values_list("name", "state", "last_heard_at")
    watched = [_watched(name, state, at, heard.answered.get(name)) for name, state, at in rows]
    for verdict in liveness.judge(
        watched,
        heard.ticks,
        unreachable_after=settings.LLMGW_UNREACHABLE_TICKS,
        lost_after=settings.LLMGW_LOST_TICKS,
    ):
        _carry_out(verdict, heard.answered.get(verdict.name), now)
    for name in heard.beats.keys() - {node.name for node in watched}:
        if actions.introduce(name, heard.beats[name], now=now):
            log.warning("a node answers ticks that nobody knows: it is told hello", node=name)


def _watched(name: str, state: str, reported_at: datetime | None, answered: int | None) -> liveness.Watched:
    return liveness.Watched(
        NodeName(name),
        NodeState(state),
        answered,
        None if reported_at is None else Seconds(reported_at.timestamp()),
    )


def _carry_out(verdict: liveness.Verdict, answered: int | None, now: datetime) -> None:
    moved = actions.mark(
        verdict.name, verdict.before, verdict.after, why=verdict.why, by=BEAT, now=now, last_tick=answered
    )
    if moved:
        log.warning("a node has changed its state", node=verdict.name, state=verdict.after.value, why=verdict.why)
