"""One request's way to an engine and back; tried elsewhere as long as nothing was sent to the client."""

import asyncio
from typing import Final, Protocol

import structlog

from llmgw.core.routing import Endpoint, ModelUnknown, NotServing
from llmgw.core.units import Seconds
from llmgw.router import door, replies
from llmgw.router.door import Ask
from llmgw.router.replies import Reply
from llmgw.router.request import Request
from llmgw.router.shared import Shared
from llmgw.router.upstream import Upstream

log = structlog.get_logger(__name__)

# Framing is made anew for each side, and the request id is ours.
NOT_RELAYED: Final = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"x-request-id",
    }
)
NOWHERE: Final = Endpoint("", "", "", 0)
FAILED: Final = replies.error(502, "engine_failed", "The engines that were tried failed before they answered.")


class Client(Protocol):
    """The other end of an exchange."""

    def reply(self, request: Request, reply: Reply) -> None:
        """Give the whole answer."""
        ...

    def send(self, data: bytes) -> None:
        """Give these bytes of the answer."""
        ...

    def finish(self, request: Request) -> None:
        """The answer is complete."""
        ...

    def cut(self, *, hard: bool) -> None:
        """Close, so that the client notices that the answer is not complete."""
        ...

    def connection_header(self, request: Request) -> bytes | None:
        """What the answer must say about the connection."""
        ...

    @property
    def full(self) -> bool:
        """True while the client does not take what was sent."""
        ...


class Exchange:
    """One request for an engine until it is answered, refused or abandoned."""

    def __init__(self, shared: Shared, client: Client, request: Request, ask: Ask) -> None:
        self._shared = shared
        self._client = client
        self._request = request
        self._model, self._body = ask.model, ask.body
        self._tried: list[str] = []
        self._deaths = 0
        self._endpoint = NOWHERE
        self._counted = False
        self._connecting: asyncio.Task[None] | None = None
        self._upstream: Upstream | None = None
        self._loop = asyncio.get_running_loop()
        self._chunked = False
        self._without_end = False
        """True when the client can only tell by the connection's end that the answer has ended."""
        self.started = False
        """True once a byte was sent to the client: from then on there is no other try."""

    # --- asked by the client's connection

    def start(self) -> None:
        """Choose an endpoint and send the request there, or say that nobody takes it."""
        table = self._shared.table
        if table is None:
            self._client.reply(self._request, door.NO_TABLE)
            return
        chosen = self._shared.balancer.choose(table, self._model, self._tried, self._now())
        if isinstance(chosen, ModelUnknown | NotServing):
            self._client.reply(self._request, door.refused(chosen))
            return
        self._endpoint, self._counted = chosen, True
        self._tried.append(chosen.launch_id)
        self._shared.balancer.enter(chosen.launch_id)
        if kept := self._shared.pool.take(chosen):
            self._send(kept)
        else:
            self._open()

    def abandon(self) -> None:
        """The client has gone: the engine must stop working on this."""
        if self._connecting:
            self._connecting.cancel()
        if self._upstream:
            self._upstream.abandon()
        self._leave()

    def hold(self, *, held: bool) -> None:
        """Take nothing from the engine while the client is full."""
        if self._upstream:
            self._upstream.hold(held=held)

    @property
    def where(self) -> dict[str, str]:
        """Which endpoint, for a log line."""
        return {"replica": self._endpoint.replica, "launch_id": self._endpoint.launch_id}

    # --- towards the engine

    def _open(self) -> None:
        self._connecting = self._loop.create_task(self._connect())

    async def _connect(self) -> None:
        try:
            upstream = await self._shared.pool.connect(self._endpoint)
        except (OSError, TimeoutError, ValueError, OverflowError) as no:
            # The last two: a host or port in the table that cannot be one.
            self._connecting = None
            self._failed(f"cannot be reached: {str(no) or 'no answer'}")
            return
        self._connecting = None
        self._send(upstream)

    def _send(self, upstream: Upstream) -> None:
        self._upstream = upstream
        if self._client.full:
            upstream.hold(held=True)
        self._shared.balancer.reached(self._endpoint.launch_id)
        upstream.ask(self, self._head_for_engine(), self._body)

    def _head_for_engine(self) -> bytes:
        request, endpoint = self._request, self._endpoint
        query = b"?" + request.query if request.query else b""
        host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
        return (
            b"POST %b%b HTTP/1.1\r\nhost: %b:%d\r\n" % (request.path.encode(), query, host.encode(), endpoint.port)
            + request.for_engine()
            + b"x-request-id: %b\r\ncontent-length: %d\r\n\r\n" % (request.id, len(self._body))
        )

    # --- from the engine

    def received(self, upstream: Upstream, body: bytes, *, complete: bool) -> None:
        """Relay what has come; the head waits for the first of the body, and both go in one write."""
        if self.started:
            data = self._framed(body, complete=complete)
        elif body or complete:
            self.started = True
            self._body = b""  # there is no other try; a long stream need not hold a large prompt
            self._request.status = upstream.status
            self._shared.balancer.answered(self._endpoint.launch_id)
            data = self._head(upstream) + self._framed(body, complete=complete)
        else:
            return
        if data:
            self._client.send(data)
        if complete:
            self._leave()
            self._client.finish(self._request)

    def lost(self, why: str) -> None:
        """The engine's connection has ended: cut the answer short, or try again elsewhere."""
        upstream, self._upstream = self._upstream, None
        if self.started:
            log.warning("answer cut short", why=why, request_id=self._request.id.decode(), **self.where)
            self._leave()
            self._client.cut(hard=self._without_end)
        elif upstream and not upstream.fresh and not upstream.answering:
            # An engine may close an idle connection at any moment; that says nothing about the engine.
            self._open()
        else:
            self._deaths += 1
            self._failed(why)

    def _failed(self, why: str) -> None:
        """This endpoint did not answer: leave it alone for a while, and ask another one."""
        pause = self._shared.balancer.suspend(self._endpoint.launch_id, self._now())
        request_id = self._request.id.decode()
        log.warning("engine failed", why=why, suspended_s=pause, request_id=request_id, **self.where)
        self._leave()
        limits = self._shared.limits
        if len(self._tried) >= limits.attempts or self._deaths >= limits.deaths:
            self._client.reply(self._request, FAILED)
        else:
            self.start()

    def _leave(self) -> None:
        """Count out of the endpoint, once."""
        if self._counted:
            self._counted = False
            self._shared.balancer.leave(self._endpoint.launch_id)

    # --- towards the client

    def _head(self, upstream: Upstream) -> bytes:
        """Return the engine's status and headers, with our framing."""
        self._settle_framing(upstream)
        lines = [replies.status_line(upstream.status)]
        lines += [b"%b: %b\r\n" % header for header in upstream.headers if header[0] not in NOT_RELAYED]
        lines.append(b"x-request-id: %b\r\n" % self._request.id)
        if self._chunked:
            lines.append(b"transfer-encoding: chunked\r\n")
        if connection := self._client.connection_header(self._request):
            lines.append(b"connection: %b\r\n" % connection)
        lines.append(b"\r\n")
        return b"".join(lines)

    def _settle_framing(self, upstream: Upstream) -> None:
        open_ended = not upstream.has_length and upstream.status not in {204, 304}
        self._chunked = open_ended and not self._request.old
        self._without_end = open_ended and self._request.old
        if self._without_end:
            self._request.keep_alive = False

    def _framed(self, body: bytes, *, complete: bool) -> bytes:
        if not self._chunked:
            return body
        chunk = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
        return chunk + b"0\r\n\r\n" if complete else chunk

    def _now(self) -> Seconds:
        return Seconds(self._loop.time())
