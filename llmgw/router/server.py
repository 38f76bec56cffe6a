"""The running router: takes connections, follows the table, sweeps out what is too slow, and stops without hurry."""

import asyncio
import ipaddress
import resource
import signal
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import structlog
import uvloop

from llmgw.core.routing import Table
from llmgw.core.units import Seconds
from llmgw.router.balance import Balancer
from llmgw.router.client import ClientConnection
from llmgw.router.shared import Limits, Shared
from llmgw.router.table import TableKeeper, follow_file, follow_redis, launch_ids, take_from_file
from llmgw.router.upstream import Pool

log = structlog.get_logger(__name__)

BACKLOG: Final = 4096


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line says."""

    host: str = "127.0.0.1"
    port: int = 8080
    redis_url: str | None = None
    """Either this or a file of endpoints."""
    endpoints: Path | None = None
    state: Path | None = None
    drain_s: float = 30.0
    reuse_port: bool = False
    log_every: int = 0
    limits: Limits = field(default_factory=Limits)


class Server:
    """One router in one event loop."""

    def __init__(self, options: Options) -> None:
        self.options = options
        keeper = TableKeeper(state=None if options.endpoints else options.state, on_change=self._table_changed)
        limits = options.limits
        pool = Pool(connect_s=limits.connect_s, per_endpoint=limits.idle_connections)
        self.shared = Shared(limits, keeper, Balancer(), pool, log_every=options.log_every)
        self._listener: asyncio.Server | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._is_open = False

    @property
    def port(self) -> int:
        """The port that was taken, also when the system chose it."""
        return int(self._listener.sockets[0].getsockname()[1]) if self._listener else 0

    async def start(self) -> None:
        """Listen, and begin to follow the table; raises OSError when the address cannot be had."""
        options, loop = self.options, asyncio.get_running_loop()
        self._listener = await loop.create_server(
            lambda: ClientConnection(self.shared),
            options.host,
            options.port,
            backlog=BACKLOG,
            reuse_port=options.reuse_port or None,
        )
        self.shared.keeper.recall(Seconds(loop.time()))
        self._spawn(self._sweep())
        if options.endpoints:
            take_from_file(self.shared.keeper, options.endpoints)
            self._spawn(follow_file(self.shared.keeper, options.endpoints))
        elif options.redis_url:
            self._spawn(follow_redis(self.shared.keeper, options.redis_url))
        log.info("listening", host=options.host, port=self.port)

    async def stop(self, drain_s: float) -> None:
        """Take nothing new, let open requests finish for at most `drain_s` seconds, then close."""
        shared = self.shared
        if self._listener:
            self._listener.close()
        shared.draining = True
        shared.pool.close()
        for connection in list(shared.connections):
            connection.drain()
        log.info("draining", open_connections=len(shared.connections), drain_s=drain_s)
        if shared.connections and drain_s > 0:
            with suppress(TimeoutError):
                await asyncio.wait_for(shared.emptied.wait(), drain_s)
        if shared.connections:
            log.warning("connections cut", connections=len(shared.connections))
        for connection in list(shared.connections):
            connection.abort()
        await _end(set(self._tasks))
        shared.pool.close()
        log.info("stopped")

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(_tell_if_broken)
        self._tasks.append(task)

    async def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self.options.limits.sweep_s)
            now = Seconds(loop.time())
            self.shared.pool.sweep(now)
            for connection in list(self.shared.connections):
                connection.check(now)

    def _table_changed(self, table: Table) -> None:
        self.shared.balancer.forget_all_but(launch_ids(table))
        was_open, self._is_open = self._is_open, table.open
        if table.open and not was_open and not is_loopback(self.options.host):
            log.warning(
                "anonymous access from elsewhere",
                host=self.options.host,
                told="anybody who reaches this address can use every model without a key; "
                "switch anonymous access off, or listen on 127.0.0.1",
            )


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


async def _end(tasks: set[asyncio.Task[None]]) -> None:
    """Cancel until they have ended: in Python 3.11 `wait_for` may lose a cancellation that meets its result."""
    while tasks:
        for task in tasks:
            task.cancel()
        _, tasks = await asyncio.wait(tasks, timeout=0.1)


def _tell_if_broken(task: asyncio.Task[None]) -> None:
    """A background task ends by being cancelled, or it is a fault of ours that must be seen."""
    if not task.cancelled() and (wrong := task.exception()):
        log.error("background task failed", exc_info=wrong)


async def serve(options: Options) -> None:
    """Run until SIGTERM or SIGINT; a second one does not wait for open requests."""
    loop = asyncio.get_running_loop()
    server = Server(options)
    asked, again = asyncio.Event(), asyncio.Event()

    def stop() -> None:
        (again if asked.is_set() else asked).set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    await server.start()
    await asked.wait()
    stopping = loop.create_task(server.stop(options.drain_s))
    hurry = loop.create_task(again.wait())
    await asyncio.wait({stopping, hurry}, return_when=asyncio.FIRST_COMPLETED)
    if not stopping.done():
        stopping.cancel()
        await server.stop(0.0)
    hurry.cancel()


def run(options: Options) -> None:
    """Run the router in this process; raises OSError when the address cannot be had."""
    _allow_many_connections()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(options))


def _allow_many_connections() -> None:
    """Each request in flight takes two file descriptors; the usual soft limit of 1024 is soon reached."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
