"""A small engine that does as it is told, and a client that sees every byte."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from llmgw.core.routing import Endpoint

LOOPBACK = "127.0.0.1"


@dataclass
class Seen:
    """A request as the engine read it."""

    line: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)


Behaviour = Callable[[Seen, asyncio.StreamWriter], Awaitable[None]]


def head(status=200, **headers):
    """The head of an answer: `head(content_length=3)`."""
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} Any\r\n{lines}\r\n".encode()


def chunk(data):
    return b"%x\r\n%b\r\n" % (len(data), data)


LAST_CHUNK = b"0\r\n\r\n"


def says(data, status=200, **headers):
    """An engine that answers with these bytes at once."""

    async def answer(seen, writer):
        writer.write(head(status, content_length=len(data), **headers) + data)

    return answer


def streams(*pieces, pause=0.0, **headers):
    """An engine that streams pieces, each in a write of its own."""

    async def answer(seen, writer):
        writer.write(head(transfer_encoding="chunked", content_type="text/event-stream", **headers))
        for piece in pieces:
            await asyncio.sleep(pause)
            writer.write(chunk(piece))
            await writer.drain()
        writer.write(LAST_CHUNK)

    return answer


def writes_and_dies(data):
    """An engine that gets this far and crashes."""

    async def answer(seen, writer):
        writer.write(data)
        await writer.drain()
        writer.transport.close() if data else writer.transport.abort()

    return answer


async def never(seen, writer):
    """An engine that thinks for ever."""
    await asyncio.sleep(3600)


@dataclass
class Engine:
    """Listens; `behave` may be changed between requests."""

    behave: Behaviour
    seen: list[Seen] = field(default_factory=list)
    connections: int = 0
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    left: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a connection has ended while a request was being answered."""
    port: int = 0
    _server: asyncio.Server | None = None
    _open: set[asyncio.StreamWriter] = field(default_factory=set)

    async def start(self, port=0):
        self._server = await asyncio.start_server(self._serve, LOOPBACK, port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def stop(self):
        """Refuse connections from now on, and end those that are open."""
        if self._server:
            self._server.close()
        self.drop()

    def drop(self):
        """End all open connections."""
        for writer in list(self._open):
            writer.transport.abort()

    @property
    def open_connections(self):
        return len(self._open)

    def endpoint(self, launch_id=None, replica="m/0"):
        return Endpoint(replica, launch_id or f"launch-{self.port}", LOOPBACK, self.port)

    async def _serve(self, reader, writer):
        self.connections += 1
        self._open.add(writer)
        try:
            while seen := await _read(reader):
                self.seen.append(seen)
                self.arrived.set()
                if not await self._answer(seen, reader, writer):
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self._open.discard(writer)
            writer.transport.abort()

    async def _answer(self, seen, reader, writer):
        """Behave until done, or until the peer has left; nothing more may come meanwhile."""
        work = asyncio.ensure_future(self.behave(seen, writer))
        more = asyncio.ensure_future(reader.read(1))
        done, running = await asyncio.wait({work, more}, return_when=asyncio.FIRST_COMPLETED)
        for task in running:
            task.cancel()
        await asyncio.gather(work, more, return_exceptions=True)
        if work in done and not isinstance(work.exception(), ConnectionError):
            work.result()
            return not writer.transport.is_closing()
        self.left.set()
        return False


async def _read(reader):
    try:
        raw = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    line, *lines = raw.rstrip("\r\n").split("\r\n")
    headers = {name.lower(): value for name, _, value in (header.partition(": ") for header in lines)}
    return Seen(line, headers, await reader.readexactly(int(headers.get("content-length", 0))))


@dataclass
class Answer:
    """What a client got."""

    status: int
    headers: dict[str, str]
    body: bytes
    whole: bool
    """False when the connection ended before the answer did."""

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        return self.json["error"]


class Client:
    """One connection to a router."""

    def __init__(self, reader, writer):
        self.reader: asyncio.StreamReader = reader
        self.writer: asyncio.StreamWriter = writer

    @classmethod
    async def to(cls, port, **how):
        return cls(*await asyncio.open_connection(LOOPBACK, port, **how))

    def send(self, data):
        self.writer.write(data)

    def ask(self, body, path="/v1/chat/completions", **headers):
        self.send(request(body, path, **headers))

    async def answer(self, *, head_only=False):
        """Read one answer."""
        status, headers = await self.head()
        whole, body = True, b""
        try:
            if not head_only:
                await self._body(headers, pieces := [])
        except asyncio.IncompleteReadError as cut:
            whole = False
            pieces.append(cut.partial)
        except ConnectionError:
            whole = False
        if not head_only:
            body = b"".join(pieces)
        return Answer(status, headers, body, whole)

    async def head(self):
        """Read the head of an answer."""
        raw = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        line, *lines = raw.rstrip("\r\n").split("\r\n")
        return int(line.split(" ")[1]), {n.lower(): v for n, _, v in (text.partition(": ") for text in lines)}

    async def _body(self, headers, pieces):
        if "content-length" in headers:
            pieces.append(await self.reader.readexactly(int(headers["content-length"])))
        elif headers.get("transfer-encoding") == "chunked":
            while piece := await self.chunk():
                pieces.append(piece)
        else:
            pieces.append(await self.reader.read())

    async def chunk(self):
        """Read one chunk of an answer; empty at the end."""
        size = int(await self.reader.readuntil(b"\r\n"), 16)
        return (await self.reader.readexactly(size + 2))[:-2]

    async def ended(self):
        """Wait until the router closes; returns what came before."""
        return await self.reader.read()

    def leave(self):
        self.writer.transport.abort()


def request(body, path="/v1/chat/completions", verb="POST", version="1.1", **headers):
    """The bytes of a request; `body` is bytes, or what becomes JSON."""
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    told = {"host": "router", "content-length": len(body)}
    told |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines = "".join(f"{name}: {value}\r\n" for name, value in told.items() if value is not None)
    return f"{verb} {path} HTTP/{version}\r\n{lines}\r\n".encode() + body


def get(path, **headers):
    return request(b"", path, "GET", content_length=None, **headers)
