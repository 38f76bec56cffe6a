"""The routing table: taken from Redis or a file as it changes, kept while they are away, remembered over a restart."""

import asyncio
import os
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Final

import redis.asyncio
import structlog
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from llmgw.core import routing, wire
from llmgw.core.routing import Table
from llmgw.core.units import Seconds
from llmgw.router import endpoints_file

log = structlog.get_logger(__name__)

POLL_S: Final = 2.0
"""A message on the channel brings news at once; this is for messages that were lost."""
ANSWER_S: Final = 2.0
RECONNECT_S: Final = 0.25
STATE_FILE: Final = "routing-table.json"


class TableKeeper:
    """Holds the last good table, and knows how old it is and where it came from."""

    def __init__(self, *, state: Path | None = None, on_change: Callable[[Table], None] = lambda _: None) -> None:
        self.table: Table | None = None
        self.source = ""
        """Where the table came from: `redis`, `file` or `state`."""
        self.problem = ""
        """Why the source gives nothing now; empty when it does."""
        self._state = state / STATE_FILE if state else None
        self._on_change = on_change
        self._raw = b""
        self._confirmed_at = Seconds(0.0)
        self._saving: asyncio.Task[None] | None = None

    def take(self, raw: bytes, read: Callable[[bytes], Table | str], source: str, now: Seconds) -> None:
        """Take what a source has. `read` returns a table, or why there is none: then the last good one stays."""
        if raw != self._raw or self.source != source:
            found = read(raw)
            if isinstance(found, str):
                self.missed(found)
                return
            self._change(raw, found, source)
        if self.problem:
            log.info("table source is back", source=source)
        self.problem, self._confirmed_at = "", now

    def _change(self, raw: bytes, table: Table, source: str) -> None:
        self.table, self._raw, self.source = table, raw, source
        log.info("table changed", source=source, revision=table.revision, models=len(table.models))
        self._on_change(table)
        if self._state and (self._saving is None or self._saving.done()):
            self._saving = asyncio.get_running_loop().create_task(self._save(self._state))

    def missed(self, problem: str) -> None:
        """The source gave no table: say so once, and keep what there is."""
        if problem != self.problem:
            log.warning(
                "table source gives nothing", problem=problem, have="the last good table" if self.table else "no table"
            )
        self.problem = problem

    def age(self, now: Seconds) -> float | None:
        """Return for how many seconds nobody has said that the table is still right; None without a table."""
        return max(0.0, now - self._confirmed_at) if self.table else None

    def describe(self, now: Seconds) -> dict[str, Any]:
        """Return what `/health` tells of the table."""
        age = self.age(now)
        return {
            "revision": self.table.revision if self.table else None,
            "models": len(self.table.models) if self.table else 0,
            "source": self.source or None,
            "age_s": None if age is None else round(age, 3),
            "problem": self.problem or None,
        }

    # --- over a restart

    def recall(self, now: Seconds) -> None:
        """Start with the table that an earlier run has saved, until the source says better."""
        if self._state is None:
            return
        try:
            raw, written_at = self._state.read_bytes(), self._state.stat().st_mtime
        except FileNotFoundError:
            return
        except OSError as wrong:
            log.warning("saved table unreadable", file=str(self._state), why=str(wrong))
            return
        table = routing.decode(raw)
        if table is None:
            log.warning("saved table unreadable", file=str(self._state), why="no routing table of this version")
            return
        self.table, self._raw, self.source = table, raw, "state"
        self._confirmed_at = Seconds(now - max(0.0, time.time() - written_at))
        self._on_change(table)

    async def _save(self, file: Path) -> None:
        """Save the table as often as it changes meanwhile; in a thread, since a disk may take its time."""
        saved = b""
        while saved != self._raw:
            saved = self._raw
            try:
                await asyncio.to_thread(_replace, file, saved)
            except OSError as wrong:
                log.warning("table not saved", file=str(file), why=str(wrong))


def _replace(file: Path, raw: bytes) -> None:
    """Write a file so that a reader sees the old or the new one; it holds hashes of keys, so only we may read it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_name(f"{file.name}.{os.getpid()}")
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
        out.write(raw)
        out.flush()
        os.fsync(out.fileno())
    new.replace(file)


# --- sources ----------------------------------------------------------------------------------------------------


async def follow_redis(keeper: TableKeeper, url: str) -> None:
    """Keep the table as it stands in Redis, for ever; Redis may come and go."""
    while True:
        try:
            await _follow_while_connected(keeper, url)
        except Exception as lost:  # noqa: BLE001 - whatever the driver raises, serving goes on and so does trying
            keeper.missed(f"Redis does not answer: {type(lost).__name__}")
        await asyncio.sleep(RECONNECT_S)


async def _follow_while_connected(keeper: TableKeeper, url: str) -> None:
    """Read the table once subscribed, then whenever it is said to be new, and every few seconds."""
    client = redis.asyncio.Redis.from_url(
        url, socket_timeout=ANSWER_S, socket_connect_timeout=ANSWER_S, retry=Retry(NoBackoff(), 0)
    )
    async with client, client.pubsub() as listening:
        await listening.subscribe(wire.ROUTES_CHANNEL)
        while True:
            raw: Any = await client.get(wire.ROUTES_KEY)
            _take_from_redis(keeper, raw)
            await listening.get_message(ignore_subscribe_messages=True, timeout=POLL_S)


def _take_from_redis(keeper: TableKeeper, raw: bytes | None) -> None:
    if raw is None:
        keeper.missed("Redis holds no routing table; is the control plane running?")
    else:
        keeper.take(raw, _read_published, "redis", _now())


def _read_published(raw: bytes) -> Table | str:
    return routing.decode(raw) or f"what Redis holds is no routing table of version {routing.TABLE_VERSION}"


async def follow_file(keeper: TableKeeper, file: Path) -> None:
    """Keep the table as a file of endpoints says, for ever; an edit is taken when it can be read."""
    while True:
        await asyncio.sleep(POLL_S)
        take_from_file(keeper, file)


def take_from_file(keeper: TableKeeper, file: Path) -> None:
    """Read a file of endpoints."""
    try:
        raw = file.read_bytes()
    except OSError as wrong:
        keeper.missed(f"cannot read {file}: {wrong.strerror}")
        return
    keeper.take(raw, endpoints_file.parse, "file", _now())


def _now() -> Seconds:
    return Seconds(asyncio.get_running_loop().time())


def launch_ids(table: Table) -> Collection[str]:
    """Return the launch ids that a table names."""
    return {endpoint.launch_id for route in table.routes.values() for endpoint in route.endpoints}
