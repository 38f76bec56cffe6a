"""Connections to engines: kept open between requests, closed the moment a client leaves."""

import asyncio
import socket
from typing import Any, Final, Protocol

import httptools

from llmgw.core.routing import Endpoint
from llmgw.core.units import Seconds

# Engines close idle connections after five seconds; a request must not meet that moment.
IDLE_S: Final = 4.0
UNACKNOWLEDGED_S: Final = 25.0
# A dead machine sends nothing, not even an end. Long answers are normal, so the kernel asks whether it still is there.
_ALIVE: Final = (
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, name), value)
        for name, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))
        if hasattr(socket, name)
    ),
)


class Asker(Protocol):
    """Who waits for the answer on a connection."""

    def received(self, upstream: "Upstream", body: bytes, *, complete: bool) -> None:
        """The head is there, in `upstream.status` and `upstream.headers`, and this much more of the body."""
        ...

    def lost(self, why: str) -> None:
        """The connection ended before the answer was complete."""
        ...


def keep_watched(transport: asyncio.BaseTransport, unacknowledged_s: float) -> None:
    """Send small writes at once, and let the kernel notice a peer that is gone.

    Data that nobody takes for `unacknowledged_s` ends the connection; without it the kernel tries for a quarter hour.
    """
    sock = transport.get_extra_info("socket")
    for level, option, value in _ALIVE:
        sock.setsockopt(level, option, value)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(unacknowledged_s * 1000))


class Upstream(asyncio.Protocol):
    """One connection to one engine; has at most one request at a time."""

    def __init__(self, pool: "Pool", endpoint: Endpoint) -> None:
        self._pool = pool
        self.endpoint = endpoint
        self.fresh = True
        """False once it has carried a request."""
        self.idle_since = Seconds(0.0)
        self._transport: Any = None
        self._lost = False
        self._held = False
        self._parser: Any = httptools.HttpResponseParser(self)
        self._asker: Asker | None = None
        self._ready_for_answer()

    def _ready_for_answer(self) -> None:
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self._body: list[bytes] = []
        self._head_read = False
        self._complete = False
        self._keep_alive = False
        self.until_end = False
        """True when only the end of the connection ends the answer."""

    # --- asked by the exchange

    def ask(self, asker: Asker, head: bytes, body: bytes) -> None:
        """Send a request; `asker` hears what comes back."""
        self._asker = asker
        if self._lost:
            asyncio.get_running_loop().call_soon(self._lose, "closed the connection")
        else:
            self._transport.writelines((head, body))

    def abandon(self) -> None:
        """Close at once, so that the engine stops working on it."""
        self._asker = None
        self._transport.abort()

    def hold(self, *, held: bool) -> None:
        """Stop reading while the client cannot take more, and go on."""
        if held != self._held and not self._transport.is_closing():
            self._held = held
            (self._transport.pause_reading if held else self._transport.resume_reading)()

    @property
    def answering(self) -> bool:
        """True once anything of an answer has come."""
        return self._head_read

    @property
    def has_length(self) -> bool:
        """True when the head says how long the body is."""
        return any(name == b"content-length" for name, _ in self.headers)

    # --- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        keep_watched(transport, UNACKNOWLEDGED_S)

    def data_received(self, data: bytes) -> None:
        if self._asker is None:
            self._transport.abort()
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as wrong:
            self._keep_alive = False
            if not self._complete:
                self._lose(f"sent what is not HTTP: {wrong}")
                return
        self._pass_on()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        self._parser = None
        self._pool.drop(self)
        if self._asker is None:
            return
        if self.until_end and exc is None:
            self._complete = True
            self._pass_on()
        else:
            self._lose(str(exc) if exc else "closed the connection")

    def _lose(self, why: str) -> None:
        asker, self._asker = self._asker, None
        self._transport.abort()
        if asker:
            asker.lost(why)

    def _pass_on(self) -> None:
        """Hand on what one read has brought, in one piece."""
        if not self._head_read or self._asker is None:
            return
        asker, body, complete = self._asker, b"".join(self._body), self._complete
        self._body = []
        if complete:
            self._asker = None
        asker.received(self, body, complete=complete)
        if complete:
            self._retire()

    def _retire(self) -> None:
        """The answer is complete: keep the connection for the next request if both sides may."""
        unsent = self._transport.get_write_buffer_size()
        if not self._keep_alive or unsent or self._transport.is_closing():
            self._transport.abort()
            return
        self.hold(held=False)
        self.fresh = False
        self._ready_for_answer()
        self._pool.put_back(self)

    # --- called by the parser

    def on_message_begin(self) -> None:
        if self._complete:
            # More than one answer to one question: what follows cannot be trusted.
            self._keep_alive = False

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._head_read:
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        if self._complete:
            return
        status = self._parser.get_status_code()
        if status < 200:
            self.headers = []
            return
        self.status = status
        self._head_read = True
        self._keep_alive = self._parser.should_keep_alive()
        names = {name for name, _ in self.headers}
        self.until_end = not names & {b"content-length", b"transfer-encoding"} and status not in {204, 304}

    def on_body(self, body: bytes) -> None:
        if not self._complete:
            self._body.append(body)

    def on_message_complete(self) -> None:
        # An answer with a status below 200 only announces the real one.
        if self._head_read:
            self._complete = True


class Pool:
    """Open connections by launch id, the last one used first."""

    def __init__(self, *, connect_s: float, per_endpoint: int) -> None:
        self._connect_s = connect_s
        self._per_endpoint = per_endpoint
        self._idle: dict[str, list[Upstream]] = {}

    def take(self, endpoint: Endpoint) -> Upstream | None:
        """Return an open connection that nobody uses."""
        idle = self._idle.get(endpoint.launch_id)
        return idle.pop() if idle else None

    async def connect(self, endpoint: Endpoint) -> Upstream:
        """Open a connection; raises OSError or TimeoutError."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(self._connect_s):
            _, upstream = await loop.create_connection(lambda: Upstream(self, endpoint), endpoint.host, endpoint.port)
        return upstream

    def put_back(self, upstream: Upstream) -> None:
        """Keep a connection for the next request."""
        idle = self._idle.setdefault(upstream.endpoint.launch_id, [])
        if len(idle) >= self._per_endpoint:
            upstream.abandon()
            return
        upstream.idle_since = Seconds(asyncio.get_running_loop().time())
        idle.append(upstream)

    def drop(self, upstream: Upstream) -> None:
        """Forget a connection that has ended."""
        idle = self._idle.get(upstream.endpoint.launch_id)
        if idle and upstream in idle:
            idle.remove(upstream)

    def sweep(self, now: Seconds) -> None:
        """Close what has been idle for too long."""
        for launch_id, idle in list(self._idle.items()):
            for upstream in [one for one in idle if now - one.idle_since > IDLE_S]:
                idle.remove(upstream)
                upstream.abandon()
            if not idle:
                del self._idle[launch_id]

    def close(self) -> None:
        """Close all that are idle."""
        for idle in self._idle.values():
            for upstream in idle:
                upstream.abandon()
        self._idle.clear()
