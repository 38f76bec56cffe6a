"""What all connections of one router share: its limits, the table, the balance of load and the open connections."""

import asyncio
from dataclasses import dataclass, field
from typing import Protocol

from llmgw.core.routing import Table
from llmgw.core.units import MIB, Seconds
from llmgw.router.balance import Balancer
from llmgw.router.table import TableKeeper
from llmgw.router.upstream import Pool


@dataclass(frozen=True, slots=True)
class Limits:
    """How much and how long; sizes in bytes, times in seconds."""

    body: int = 32 * MIB
    head: int = 64 * 1024
    headers: int = 128
    """How many header lines."""
    waiting: int = 16
    """Requests read ahead on one connection before reading stops, …"""
    waiting_bytes: int = MIB
    """… and the bytes of their bodies together."""
    head_s: float = 10.0
    """From the first byte of a request to the end of its head."""
    body_s: float = 60.0
    """From the end of the head to the end of the body."""
    idle_s: float = 75.0
    """Between two requests of one connection."""
    stalled_s: float = 60.0
    """How long a client may take nothing of what is ready for it."""
    linger_s: float = 2.0
    """How long the rest of a refused body is thrown away before closing, so that the client can read the refusal."""
    sweep_s: float = 1.0
    """How often all of these times are looked at."""
    connect_s: float = 3.0
    attempts: int = 3
    """Endpoints that one request may try."""
    deaths: int = 2
    """Endpoints that may die of one request, which may be what kills them."""
    idle_connections: int = 64
    """Kept open to each endpoint."""


class Connection(Protocol):
    """A client's connection, as the server sees it."""

    def check(self, now: Seconds) -> None:
        """Close what is too slow."""
        ...

    def drain(self) -> None:
        """Close once nothing is under way."""
        ...

    def abort(self) -> None:
        """Close now."""
        ...


@dataclass(slots=True)
class Shared:
    """All of it."""

    limits: Limits
    keeper: TableKeeper
    balancer: Balancer
    pool: Pool
    connections: set[Connection] = field(default_factory=set)
    draining: bool = False
    emptied: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the last connection has ended while draining."""
    log_every: int = 0
    """Each so many requests one is logged; 0 logs none."""
    answered: int = 0

    @property
    def table(self) -> Table | None:
        """The last good table."""
        return self.keeper.table

    def went(self, connection: Connection) -> None:
        """A connection has ended."""
        self.connections.discard(connection)
        if self.draining and not self.connections:
            self.emptied.set()
