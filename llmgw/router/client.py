"""A client's connection: reads requests, answers them in order, and notices at once when the client leaves."""

import asyncio
import socket
import struct
import time
from collections import deque
from typing import Any, Final

import httptools
import structlog

from llmgw.core.units import Seconds
from llmgw.router import door, health, replies
from llmgw.router.door import Ask
from llmgw.router.exchange import Exchange
from llmgw.router.replies import Reply
from llmgw.router.request import Request, request_id
from llmgw.router.shared import Shared
from llmgw.router.upstream import keep_watched

log = structlog.get_logger(__name__)

NEVER: Final = Seconds(float("inf"))
CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
RESET: Final = struct.pack("ii", 1, 0)
MALFORMED: Final = replies.last_words(400, "malformed_request", "This is not a valid HTTP request.")
BROKEN: Final = replies.last_words(500, "internal_error", "The router has failed; this is a fault of its own.")
HEAD_TOO_LARGE: Final = replies.last_words(431, "headers_too_large", "The request's headers are too large.")
OTHER_VERSION: Final = replies.last_words(505, "http_version", "This server speaks HTTP/1.1 and HTTP/1.0.")
TOO_SLOW: Final = replies.last_words(408, "request_timeout", "The request was not complete in time.")


class ClientConnection(asyncio.Protocol):
    """One connection. `_reading` is the request being read, `_waiting` those read and not begun."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._loop = asyncio.get_running_loop()
        self._transport: Any = None
        self._parser: Any = httptools.HttpRequestParser(self)
        self._reading: Request | None = None
        self._waiting: deque[Request] = deque()
        self._answering: Request | None = None
        self._exchange: Exchange | None = None
        self._deaf = False
        """True when what still comes in is thrown away: nothing after it can be understood or will be answered."""
        self._closing = False
        """True once the last answer was written."""
        self._reading_paused = False
        self._full_since = NEVER
        self._deadline = NEVER

    # --- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        keep_watched(transport, self._shared.limits.stalled_s)
        self._shared.connections.add(self)
        self._deadline = self._in(self._shared.limits.idle_s)

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        self._feed(data)
        self._check_size(len(data))
        self._proceed()

    def eof_received(self) -> bool:
        # A client that has closed cannot be told from one that only says that it has sent all: both end here.
        return False

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._shared.went(self)
        self._parser = None
        self._waiting.clear()
        self._deaf = self._closing = True
        exchange, self._exchange = self._exchange, None
        if exchange:
            exchange.abandon()

    def pause_writing(self) -> None:
        self._full_since = self._now()
        if self._exchange:
            self._exchange.hold(held=True)

    def resume_writing(self) -> None:
        self._full_since = NEVER
        if self._exchange:
            self._exchange.hold(held=False)
        else:
            self._proceed()

    # --- called by the parser

    def on_message_begin(self) -> None:
        self._reading = Request()
        self._reading.began_at = self._now()
        self._deadline = self._in(self._shared.limits.head_s)

    def on_url(self, url: bytes) -> None:
        if request := self._reading:
            request.target += url
            request.head_bytes += len(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        # What comes after the head are trailers, which nobody needs.
        if (request := self._reading) and not request.verb:
            request.add_header(name, value)

    def on_headers_complete(self) -> None:
        request = self._reading
        if request is None:
            return
        parser, limits = self._parser, self._shared.limits
        request.close_head(parser.get_method(), parser.get_http_version(), keep_alive=parser.should_keep_alive())
        request.path, request.query = door.split_target(request.target)
        self._deadline = self._in(limits.body_s)
        if request.head_bytes > limits.head or len(request.handed_on) > limits.headers:
            request.refusal = HEAD_TOO_LARGE
        elif parser.get_http_version() not in {"1.1", "1.0"}:
            request.refusal = OTHER_VERSION
        else:
            now = Seconds(time.time())
            request.refusal = door.refuse_head(request, self._shared.table, limits.body, now)

    def on_body(self, body: bytes) -> None:
        request = self._reading
        if request is None or request.refusal:
            return
        request.received += len(body)
        if request.received > self._shared.limits.body:
            request.refusal = door.too_large(self._shared.limits.body)
            request.body.clear()
        else:
            request.body.append(body)

    def on_message_complete(self) -> None:
        request, self._reading = self._reading, None
        if request:
            request.complete = True
            self._deadline = NEVER
            self._waiting.append(request)

    # --- what was read

    def _feed(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            self._decline(offer, data[offer.args[0] :])
        except httptools.HttpParserError as wrong:
            self._stop_listening(wrong)

    def _decline(self, offer: Exception, rest: bytes) -> None:
        """Go on in HTTP/1.1. The parser takes an offered protocol for accepted, and leaves the body to it.

        Java's HTTP client offers HTTP/2 on each new connection, so the request is read again without the offer.
        """
        request = self._waiting.pop() if self._waiting else None
        if request and b"upgrade" in request.kept:
            self._parser = httptools.HttpRequestParser(self)
            self._feed(request.without_offer() + rest)
        else:
            self._stop_listening(offer)

    def _stop_listening(self, wrong: Exception) -> None:
        """Read no more; what has been read until here is still answered, and then what is wrong is said."""
        self._deaf = True
        if isinstance(wrong, httptools.HttpParserCallbackError):
            log.error("request broke the router", exc_info=wrong)
            self._refuse_rest(BROKEN)
        elif self._reading or not (self._waiting or self._answering):
            self._refuse_rest(MALFORMED)
        elif self._waiting:
            # Complete requests, and data after one that said that it is the last.
            self._waiting[-1].keep_alive = False
        else:
            self._refuse_rest(MALFORMED)

    def _refuse_rest(self, reply: Reply) -> None:
        """Queue the last answer of this connection."""
        request, self._reading = self._reading or Request(), None
        request.id = request.id or request_id(None)
        request.refusal = reply
        self._waiting.append(request)
        self._deaf = True

    def _check_size(self, arrived: int) -> None:
        """Bound what a request may take that is not complete, chunk headers and trailers with it."""
        request, limits = self._reading, self._shared.limits
        if request is None:
            return
        request.on_wire += arrived
        if request.refusal:
            # Say so now, before all of a long body has come.
            self._refuse_rest(request.refusal)
        elif request.verb and request.on_wire > limits.head + 2 * limits.body:
            self._refuse_rest(door.too_large(limits.body))
        elif not request.verb and request.on_wire > 2 * limits.head:
            self._refuse_rest(HEAD_TOO_LARGE)

    def _proceed(self) -> None:
        """Answer what waits, one after the other, as long as answers can be written."""
        while self._waiting and not (self._answering or self._closing or self._full_since != NEVER):
            self._begin(self._waiting.popleft())
        self._settle_reading()

    def _settle_reading(self) -> None:
        """Read ahead a little, not without bound; go on reading while an engine works, to see the client leave."""
        if self._closing or self._transport.is_closing():
            return
        request = self._reading
        if request and request.expects_continue and request.verb and not self._answering and not self._waiting:
            request.expects_continue = False
            self._transport.write(CONTINUE)
        if self._far_ahead() != self._reading_paused:
            self._reading_paused = not self._reading_paused
            (self._transport.pause_reading if self._reading_paused else self._transport.resume_reading)()

    def _far_ahead(self) -> bool:
        waiting, limits = self._waiting, self._shared.limits
        return len(waiting) > limits.waiting or sum(request.received for request in waiting) > limits.waiting_bytes

    # --- answering

    def _begin(self, request: Request) -> None:
        self._answering = request
        self._deadline = NEVER
        found = request.refusal or self._decide(request)
        if isinstance(found, Ask):
            self._exchange = Exchange(self._shared, self, request, found)
            self._exchange.start()
        else:
            self.reply(request, found)

    def _decide(self, request: Request) -> Reply | Ask:
        shared, table, key = self._shared, self._shared.table, request.key
        if request.path == door.HEALTH:
            return health.report(shared, Seconds(self._loop.time()))
        if table is None or key is None:
            return door.NO_TABLE
        if request.path == door.MODELS:
            return door.models(key, table)
        if request.path in door.FOR_ENGINES:
            body = b"".join(request.body)
            request.body.clear()
            return door.read_ask(body, key, table)
        return door.one_model(request.path, key, table)

    def reply(self, request: Request, reply: Reply) -> None:
        """Give the whole answer."""
        request.status = reply.status
        if reply.close or not request.complete:
            request.keep_alive = False
        connection = self.connection_header(request)
        self.send(replies.encode(reply, request.id, connection=connection, head_only=request.head_only))
        self.finish(request)

    def send(self, data: bytes) -> None:
        """Give these bytes of the answer."""
        self._transport.write(data)

    def finish(self, request: Request) -> None:
        """The answer is complete: go on with the next request, or close."""
        self._note(request)
        self._answering = self._exchange = None
        if not self._goes_on_after(request):
            self._close(request)
            return
        self._deadline = self._in(self._shared.limits.head_s if self._reading else self._shared.limits.idle_s)
        if self._waiting or self._reading:
            # Not from here: a long queue of quick answers would become a deep stack.
            self._loop.call_soon(self._proceed)

    def _note(self, request: Request) -> None:
        shared = self._shared
        shared.answered += 1
        if shared.log_every and shared.answered % shared.log_every == 0:
            where = self._exchange.where if self._exchange else {}
            took_ms = round((self._loop.time() - request.began_at) * 1000, 3)
            path, request_id = request.path, request.id.decode()
            log.info("request", path=path, status=request.status, took_ms=took_ms, request_id=request_id, **where)

    def cut(self, *, hard: bool) -> None:
        """Close, so that the client notices that the answer is not complete."""
        self._exchange = None
        self._closing = self._deaf = True
        if hard:
            self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            self._transport.abort()
        else:
            self._transport.close()

    def connection_header(self, request: Request) -> bytes | None:
        """What the answer must say about the connection."""
        if not self._goes_on_after(request):
            return b"close"
        return b"keep-alive" if request.old else None

    @property
    def full(self) -> bool:
        """True while the client does not take what was sent."""
        return self._full_since != NEVER

    def _goes_on_after(self, request: Request) -> bool:
        return request.keep_alive and not self._shared.draining

    def _close(self, request: Request) -> None:
        """Close after the last answer. A client that is still sending gets time to read it, or it would be lost."""
        self._closing = self._deaf = True
        self._waiting.clear()
        if request.complete:
            self._transport.close()
            return
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self._deadline = self._in(self._shared.limits.linger_s)

    # --- asked by the server

    def check(self, now: Seconds) -> None:
        """Close what is too slow."""
        if now - self._full_since > self._shared.limits.stalled_s:
            self._transport.abort()
        elif now > self._deadline:
            self._deadline = NEVER
            if self._reading and not self._deaf:
                self._refuse_rest(TOO_SLOW)
                self._proceed()
            else:
                self._transport.abort()

    def drain(self) -> None:
        """Close once nothing is under way."""
        if not (self._answering or self._waiting or self._reading):
            self._transport.close()

    def abort(self) -> None:
        """Close now."""
        self._transport.abort()

    def _in(self, seconds: float) -> Seconds:
        return Seconds(self._loop.time() + seconds)

    def _now(self) -> Seconds:
        return Seconds(self._loop.time())
