"""Requests on their way to engines and back."""

import asyncio
import json
import socket

import pytest

from llmgw.core.routing import Endpoint, Route, Table
from tests.router.conftest import a_table, give, soon
from tests.router.stand_in import LAST_CHUNK, chunk, head, never, request, says, streams, writes_and_dies

ASK = {"model": "m", "messages": []}
STREAM = head(transfer_encoding="chunked", content_type="text/event-stream")


# --- relaying


async def test_an_answer_comes_back_as_the_engine_gave_it(an_engine, a_router, a_client):
    engine = await an_engine(says(b'{"choices": [\x00\xff]}', status=418, x_engine="yes", content_type="application/x"))
    client = await a_client(await a_router(engine))
    client.ask(ASK)
    answer = await client.answer()
    assert (answer.status, answer.body, answer.whole) == (418, b'{"choices": [\x00\xff]}', True)
    assert answer.headers["x-engine"] == "yes"
    assert answer.headers["content-type"] == "application/x"


async def test_a_stream_is_passed_on_byte_for_byte_as_it_comes(an_engine, a_router, a_client):
    go_on: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def answer(seen, writer):
        writer.write(STREAM)
        while (piece := await go_on.get()) is not None:
            writer.write(chunk(piece))
        writer.write(LAST_CHUNK)

    client = await a_client(await a_router(await an_engine(answer)))
    client.ask({**ASK, "stream": True})
    pieces = [b"data: {}\n\n", bytes(range(256)), b"\r\n0\r\n\r\n", "data: žluť\n\n".encode()]
    go_on.put_nowait(pieces[0])
    await client.head()
    assert await client.chunk() == pieces[0]
    for piece in pieces[1:]:
        go_on.put_nowait(piece)
        assert await client.chunk() == piece
    go_on.put_nowait(None)
    assert await client.chunk() == b""


async def test_head_and_first_piece_come_in_one_write(an_engine, a_router, a_client):
    client = await a_client(await a_router(await an_engine(streams(b"first", b"second", pause=0.05))))
    client.ask(ASK)
    first = await client.reader.read(65536)
    assert first.endswith(chunk(b"first"))


@pytest.mark.parametrize("size", [0, 1, 65_536, 3_000_000])
async def test_long_answers_arrive_whole(an_engine, a_router, a_client, size):
    data = bytes(n % 251 for n in range(size))
    client = await a_client(await a_router(await an_engine(says(data))))
    client.ask(ASK)
    assert (await client.answer()).body == data


async def test_an_answer_without_length_gets_chunks(an_engine, a_router, a_client):
    client = await a_client(await a_router(await an_engine(writes_and_dies(head() + b"until the end"))))
    client.ask(ASK)
    answer = await client.answer()
    assert (answer.body, answer.whole) == (b"until the end", True)
    assert answer.headers["transfer-encoding"] == "chunked"


async def test_an_answer_without_body_is_complete(an_engine, a_router, a_client):
    async def answer(seen, writer):
        writer.write(head(204))

    client = await a_client(await a_router(await an_engine(answer)))
    client.ask(ASK)
    status, headers = await client.head()
    assert status == 204
    assert "transfer-encoding" not in headers
    client.ask(ASK)
    assert (await client.head())[0] == 204


async def test_announcements_are_not_the_answer(an_engine, a_router, a_client):
    async def answer(seen, writer):
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\nx-a: 1\r\n\r\n")
        writer.write(head(content_length=2) + b"ok")

    client = await a_client(await a_router(await an_engine(answer)))
    client.ask(ASK)
    answer_ = await client.answer()
    assert (answer_.status, answer_.body, "x-a" in answer_.headers) == (200, b"ok", False)


async def test_what_an_engine_hears(an_engine, a_router, a_client):
    engine = await an_engine()
    client = await a_client(await a_router(engine))
    body = b'{ "model" : "m",\n"n":1.0 }'
    client.ask(
        body,
        path="/v1/completions?a=b",
        authorization="Bearer secret",
        cookie="session=1",
        connection="keep-alive, x-private",
        x_private="1",
        keep_alive="timeout=5",
        te="trailers",
        traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        x_request_id="abc-1",
        content_type="application/json",
    )
    answer = await client.answer()
    seen = engine.seen[0]
    assert seen.line == "POST /v1/completions?a=b HTTP/1.1"
    assert seen.body == body
    assert seen.headers == {
        "host": f"127.0.0.1:{engine.port}",
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "content-type": "application/json",
        "x-request-id": "abc-1",
        "content-length": str(len(body)),
    }
    assert answer.headers["x-request-id"] == "abc-1"


@pytest.mark.parametrize("offered", ["a b", "x" * 129, "é", "<script>"])
async def test_a_request_id_that_could_do_harm_is_replaced(an_engine, a_router, a_client, offered):
    engine = await an_engine(says(b"{}", x_request_id="the-engine's"))
    client = await a_client(await a_router(engine))
    client.ask(ASK, x_request_id=offered)
    given = (await client.answer()).headers["x-request-id"]
    assert given not in {offered, "the-engine's"}
    assert engine.seen[0].headers["x-request-id"] == given


async def test_an_alias_reaches_the_engine_as_the_name_it_serves(an_engine, a_router, a_client):
    engine = await an_engine()
    client = await a_client(await a_router(engine))
    client.ask({"n": 1, "model": "alias", "messages": [{"model": "alias"}]})
    await client.answer()
    assert engine.seen[0].json == {"n": 1, "model": "m", "messages": [{"model": "alias"}]}


async def test_an_unlisted_status_is_passed_on(an_engine, a_router, a_client):
    client = await a_client(await a_router(await an_engine(says(b"", status=599))))
    client.ask(ASK)
    assert (await client.answer()).status == 599


# --- connections


async def test_connections_to_engines_are_kept(an_engine, a_router, a_client):
    engine = await an_engine()
    router = await a_router(engine)
    for _ in range(3):
        client = await a_client(router)
        for _ in range(3):
            client.ask(ASK)
            assert (await client.answer()).status == 200
    assert (engine.connections, len(engine.seen)) == (1, 9)


@pytest.mark.parametrize("told", ["close", "Close"])
async def test_an_engine_may_close_after_an_answer(an_engine, a_router, a_client, told):
    engine = await an_engine(says(b"{}", connection=told))
    client = await a_client(await a_router(engine))
    for _ in range(2):
        client.ask(ASK)
        assert "connection" not in (await client.answer()).headers
    assert engine.connections == 2


async def test_a_kept_connection_that_the_engine_closes_costs_nothing(an_engine, a_router, a_client):
    engine = await an_engine()
    router = await a_router(engine)
    client = await a_client(router)
    client.ask(ASK)
    await client.answer()

    async def closes_the_old_one(seen, writer):
        engine.behave = says(b"again")
        writer.transport.abort()

    engine.behave = closes_the_old_one
    client.ask(ASK)
    assert (await client.answer()).body == b"again"
    assert not router.shared.balancer.suspended(0.0)


async def test_more_than_was_asked_for_is_not_passed_on(an_engine, a_router, a_client):
    async def chatters(seen, writer):
        writer.write(head(content_length=2) + b"okHTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil")

    engine = await an_engine(chatters)
    client = await a_client(await a_router(engine))
    for _ in range(2):
        client.ask(ASK)
        assert (await client.answer()).body == b"ok"
    assert engine.connections == 2


# --- the client leaves


@pytest.mark.parametrize("first", [b"", STREAM, STREAM + chunk(b"x")], ids=["thinking", "head", "streaming"])
async def test_a_client_that_leaves_stops_the_engine_within_100_ms(an_engine, a_router, a_client, first):
    async def answer(seen, writer):
        writer.write(first)
        await never(seen, writer)

    engine = await an_engine(answer)
    router = await a_router(engine)
    client = await a_client(router)
    client.ask(ASK)
    await engine.arrived.wait()
    if first.endswith(chunk(b"x")):
        await client.head()
    client.leave()
    await asyncio.wait_for(engine.left.wait(), 0.1)
    await soon(lambda: not router.shared.balancer.under_way(engine.endpoint().launch_id))


async def test_a_client_that_closes_politely_stops_the_engine_too(an_engine, a_router, a_client):
    engine = await an_engine(never)
    client = await a_client(await a_router(engine))
    client.ask(ASK)
    await engine.arrived.wait()
    client.writer.close()
    await asyncio.wait_for(engine.left.wait(), 0.1)


async def test_a_slow_client_holds_the_engine_back(an_engine, a_router, a_client):
    written = 0

    async def floods(seen, writer):
        nonlocal written
        writer.write(STREAM)
        while written < 64 * 2**20:
            writer.write(chunk(b"x" * 65536))
            await writer.drain()
            written += 65536
        writer.write(LAST_CHUNK)

    client = await a_client(await a_router(await an_engine(floods)), limit=4096)
    client.ask(ASK)
    await client.head()
    before = -1
    while before != written:
        before = written
        await asyncio.sleep(0.1)
    assert written < 32 * 2**20, "the router has taken it all into memory"
    total = 0
    while piece := await client.chunk():
        total += len(piece)
    assert total == 64 * 2**20


async def test_a_connection_that_was_held_back_serves_again(an_engine, a_router, a_client):
    data = b"x" * (8 * 2**20)
    engine = await an_engine(says(data))
    client = await a_client(await a_router(engine), limit=4096)
    for _ in range(3):
        client.ask(ASK)
        await asyncio.sleep(0.05)
        assert (await client.answer()).body == data


async def test_a_client_that_takes_nothing_is_cut_in_the_end(an_engine, a_router, a_client):
    async def floods(seen, writer):
        writer.write(STREAM)
        while True:
            writer.write(chunk(b"x" * 65536))
            await writer.drain()

    engine = await an_engine(floods)
    client = await a_client(await a_router(engine, stalled_s=0.5), limit=4096)
    client.ask(ASK)
    await client.head()
    client.writer.transport.pause_reading()
    await asyncio.wait_for(engine.left.wait(), 5)


# --- engines that fail


def refused_endpoint(launch_id="dead"):
    """An address at which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return Endpoint("m/9", launch_id, "127.0.0.1", probe.getsockname()[1])


def a_table_of(*endpoints):
    return Table(revision=1, routes={"m": Route("m", endpoints)}, open=True)


async def test_a_refusing_endpoint_costs_a_request_nothing_but_time(an_engine, a_router, a_client):
    engine = await an_engine()
    router = await a_router(table=a_table_of(refused_endpoint(), engine.endpoint()))
    client = await a_client(router)
    for _ in range(4):
        client.ask(ASK)
        assert (await client.answer()).status == 200
    now = asyncio.get_running_loop().time()
    assert router.shared.balancer.suspended(now) == {"dead"}


@pytest.mark.parametrize(
    "said",
    [b"", b"HTTP/1.1 200 OK\r\ncontent-", STREAM, b"not HTTP at all\r\n\r\n"],
    ids=["silently", "in its head", "after its head", "garbling"],
)
async def test_an_engine_that_dies_before_its_first_byte_is_replaced(an_engine, a_router, a_client, said):
    dying, healthy = await an_engine(writes_and_dies(said)), await an_engine(says(b"well"))
    client = await a_client(await a_router(dying, healthy))
    for _ in range(3):
        client.ask(ASK)
        assert (await client.answer()).body == b"well"
    assert len(dying.seen) == 1


async def test_a_request_that_kills_engines_does_not_kill_them_all(an_engine, a_router, a_client):
    engines = [await an_engine(writes_and_dies(b"")) for _ in range(4)]
    client = await a_client(await a_router(*engines))
    client.ask(ASK)
    answer = await client.answer()
    assert (answer.status, answer.error["code"], answer.error["type"]) == (502, "engine_failed", "server_error")
    assert sum(len(engine.seen) for engine in engines) == 2


async def test_without_another_endpoint_the_client_is_told_to_try_again(an_engine, a_router, a_client):
    client = await a_client(await a_router(await an_engine(writes_and_dies(b""))))
    client.ask(ASK)
    answer = await client.answer()
    assert (answer.status, answer.error["code"]) == (503, "model_not_ready")
    assert answer.headers["retry-after"] == "1"


async def test_a_stream_that_breaks_is_cut_and_not_repeated(an_engine, a_router, a_client):
    dying, other = await an_engine(writes_and_dies(STREAM + chunk(b"half"))), await an_engine()
    client = await a_client(await a_router(dying, other))
    while not dying.seen:
        client.ask(ASK)
        answer = await client.answer()
    assert (answer.status, answer.body, answer.whole) == (200, b"half", False)
    assert await client.ended() == b""


async def test_a_body_that_ends_too_soon_is_cut(an_engine, a_router, a_client):
    client = await a_client(await a_router(await an_engine(writes_and_dies(head(content_length=10) + b"half"))))
    client.ask(ASK)
    answer = await client.answer()
    assert (answer.body, answer.whole) == (b"half", False)


async def test_an_old_client_notices_a_cut_too(an_engine, a_router, a_client):
    client = await a_client(await a_router(await an_engine(writes_and_dies(STREAM + chunk(b"half")))))
    client.send(request(ASK, version="1.0"))
    assert not (await client.answer()).whole


async def test_an_address_that_is_none_is_refused_like_any_other(a_router, a_client):
    client = await a_client(await a_router(table=a_table_of(Endpoint("m/0", "odd", "127.0.0.1", 99999))))
    client.ask(ASK)
    assert (await client.answer()).status == 503


async def test_requests_under_way_are_counted_and_spread(an_engine, a_router, a_client):
    engines = [await an_engine(never) for _ in range(3)]
    router = await a_router(*engines)
    clients = [await a_client(router) for _ in range(9)]
    for number, client in enumerate(clients, 1):
        client.ask(ASK)
        await soon(lambda number=number: sum(len(engine.seen) for engine in engines) == number)
    assert [len(engine.seen) for engine in engines] == [3, 3, 3]
    for client in clients:
        client.leave()
    await soon(lambda: not any(router.shared.balancer.under_way(engine.endpoint().launch_id) for engine in engines))


async def test_a_new_table_counts_from_the_next_request_on(an_engine, a_router, a_client):
    old, new = await an_engine(says(b"old")), await an_engine(says(b"new"))
    router = await a_router(old)
    client = await a_client(router)
    client.ask(ASK)
    assert (await client.answer()).body == b"old"
    give(router, a_table(new, revision=2))
    client.ask(ASK)
    assert (await client.answer()).body == b"new"


async def test_a_large_body_reaches_the_engine(an_engine, a_router, a_client):
    engine = await an_engine()
    client = await a_client(await a_router(engine))
    body = json.dumps({"prompt": "x" * 8_000_000, "model": "m"}).encode()
    client.ask(body)
    assert (await client.answer()).status == 200
    assert engine.seen[0].body == body
