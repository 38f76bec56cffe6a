"""Whatever clients and engines send, the router goes on and has no fault to log."""

import asyncio

import pytest
import uvloop
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from llmgw.core.routing import Endpoint
from llmgw.router.server import Options, Server
from tests.router.conftest import a_table, give, soon
from tests.router.stand_in import LOOPBACK, Client, Engine, get, request, says

ANY = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
IN_REQUESTS = st.sampled_from(
    [
        b"GET /health HTTP/1.1\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\n",
        b"content-length: 5\r\n",
        b"transfer-encoding: chunked\r\n",
        b"expect: 100-continue\r\n",
        b"connection: upgrade\r\nupgrade: x\r\n",
        b"\r\n",
        b"0\r\n\r\n",
        b'{"model": "m"}',
        b"HEAD",
        b" ",
    ]
)
IN_ANSWERS = st.sampled_from(
    [
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.0 200 OK\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: x\r\n",
        b"content-length: 5\r\n",
        b"transfer-encoding: chunked\r\n",
        b"connection: close\r\n",
        b"\r\n",
        b"5\r\nhello\r\n",
        b"0\r\n\r\n",
        b"hello",
    ]
)


class Place:
    """A router with an engine, on a loop of their own, for many examples."""

    def __init__(self):
        self.runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self.faults: list[object] = []
        self.engine, self.server = self.runner.run(self._start())

    async def _start(self):
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: self.faults.append(context))
        engine, server = await Engine(says(b"{}")).start(), Server(Options(port=0))
        await server.start()
        return engine, server

    def sound_after(self, work):
        """Run it; afterwards the router still answers, holds nothing, and has logged no fault."""
        with capture_logs() as logs:
            self.runner.run(self._sound_after(work))
        self.faults.extend(line for line in logs if line["log_level"] in {"error", "critical"})
        assert not self.faults

    async def _sound_after(self, work):
        await asyncio.wait_for(work, 5)
        client = await Client.to(self.server.port)
        client.send(get("/health"))
        assert (await client.answer()).status == 200
        client.leave()
        await soon(lambda: not self.server.shared.connections)

    def close(self):
        self.runner.run(self.server.stop(0.0))
        self.runner.run(self.engine.stop())
        self.runner.close()


@pytest.fixture(scope="module")
def place():
    place = Place()
    yield place
    place.close()


@ANY
@example([b"POST /v1/completions HTTP/1.1\r\n", b"connection: upgrade\r\nupgrade: x\r\n", b"\r\n", b"hello"])
@given(st.lists(st.one_of(IN_REQUESTS, st.binary(max_size=40)), max_size=12))
def test_from_a_client(place, pieces):
    async def send():
        give(place.server, a_table(place.engine))
        client = await Client.to(place.server.port)
        for piece in pieces:
            client.send(piece)
            await asyncio.sleep(0)
        client.send(b"\r\n\r\n")
        client.writer.write_eof()
        await client.ended()
        client.leave()

    place.sound_after(send())


@ANY
@example([b"HTTP/1.1 200 OK\r\n", b"content-length: 5\r\n", b"\r\n", b"hello", b"hello"])
@example([b"HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: x\r\n", b"\r\n", b"hello"])
@given(st.lists(st.one_of(IN_ANSWERS, st.binary(max_size=40)), max_size=12))
def test_from_an_engine(place, pieces):
    async def babble(seen, writer):
        for piece in pieces:
            if not writer.transport.is_closing():
                writer.write(piece)
            await asyncio.sleep(0)
        writer.transport.close()

    async def ask():
        place.engine.behave = babble
        fresh = Endpoint("m/0", f"launch-{next(NUMBERS)}", LOOPBACK, place.engine.port)
        place.engine.endpoint = lambda **_: fresh
        give(place.server, a_table(place.engine, revision=next(NUMBERS)))
        client = await Client.to(place.server.port)
        client.send(request({"model": "m"}, connection="close"))
        said = await client.ended()
        assert said.startswith(b"HTTP/1.1 ")
        client.leave()

    place.sound_after(ask())


NUMBERS = iter(range(1, 10**9))
