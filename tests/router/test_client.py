"""Clients' connections: what is read, in which order it is answered, and what bounds them."""

import asyncio
import json

import pytest

from tests.router.conftest import a_table
from tests.router.stand_in import chunk, get, never, request, streams

ASK = {"model": "m"}


async def echo(seen, writer):
    """An engine that says what it was told."""
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(seen.body) + seen.body)


@pytest.fixture
def served(an_engine, a_router, a_client):
    """`await served(engine's behaviour, **limits)`: a client of a router with one engine."""

    async def start(behave=echo, **limits):
        router = await a_router(await an_engine(behave), **limits)
        return await a_client(router)

    return start


# --- order


async def test_pipelined_requests_are_answered_in_order(served):
    async def slower_first(seen, writer):
        await asyncio.sleep(0.05 if seen.json["n"] == 0 else 0)
        await echo(seen, writer)

    client = await served(slower_first)
    asked = [{"model": "m", "n": n} for n in range(5)]
    client.send(b"".join(request(one) + get("/v1/models/m") for one in asked))
    for one in asked:
        assert (await client.answer()).json == one
        assert (await client.answer()).json["id"] == "m"


async def test_very_many_pipelined_requests_are_answered(served):
    client = await served()
    client.send(get("/health") * 3000)
    for _ in range(3000):
        assert (await client.answer()).status == 200


async def test_reading_ahead_is_bounded(served):
    client = await served(never, waiting=4)
    client.ask(ASK)

    async def send_for_ever():
        while True:
            client.send(request({"model": "m", "x": "x" * 100_000}))
            await client.writer.drain()

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(send_for_ever(), 0.3)


async def test_a_refused_request_does_not_stop_the_next(served):
    client = await served()
    client.send(request(b"{", "/v1/completions") + get("/nowhere") + request(ASK))
    assert [(await client.answer()).status for _ in range(3)] == [400, 404, 200]


# --- forms of a request


async def test_a_request_may_come_byte_by_byte(served):
    client = await served()
    for byte in request(ASK):
        client.send(bytes([byte]))
        await asyncio.sleep(0)
    assert (await client.answer()).json == ASK


async def test_a_chunked_request_is_accepted(served):
    client = await served()
    client.send(request(b"", content_length=None, transfer_encoding="chunked"))
    for piece in (b'{"mod', b'el": "m", ', b'"n": 1}'):
        client.send(chunk(piece))
    client.send(b"0\r\nx-trailer: 1\r\nauthorization: Bearer other\r\n\r\n")
    assert (await client.answer()).json == {"model": "m", "n": 1}


async def test_expecting_clients_are_told_to_continue(served):
    client = await served()
    body = json.dumps(ASK).encode()
    client.send(request(b"", content_length=len(body), expect="100-continue"))
    assert await client.head() == (100, {})
    client.send(body)
    assert (await client.answer()).json == ASK


async def test_continue_comes_after_the_answer_before_it(served):
    client = await served()
    body = json.dumps(ASK).encode()
    client.send(request(ASK) + request(b"", content_length=len(body), expect="100-continue"))
    assert (await client.answer()).status == 200
    assert (await client.head())[0] == 100
    client.send(body)
    assert (await client.answer()).json == ASK


async def test_expecting_clients_are_refused_before_they_send(served):
    client = await served(body=100)
    client.send(request(b"", content_length=101, expect="100-continue"))
    answer = await client.answer()
    assert (answer.status, answer.headers["connection"]) == (413, "close")


@pytest.mark.parametrize(("asked", "told"), [("keep-alive", "keep-alive"), (None, "close")])
async def test_old_clients(served, asked, told):
    client = await served()
    client.send(request(ASK, version="1.0", connection=asked))
    answer = await client.answer()
    assert (answer.json, answer.headers["connection"]) == (ASK, told)
    if told == "close":
        assert await client.ended() == b""
    else:
        client.send(request(ASK, version="1.0"))
        assert (await client.answer()).json == ASK


async def test_old_clients_get_no_chunks(served):
    client = await served(streams(b"one", b"two"))
    client.send(request(ASK, version="1.0", connection="keep-alive"))
    status, headers = await client.head()
    assert (status, headers["connection"], "transfer-encoding" in headers) == (200, "close", False)
    assert await client.ended() == b"onetwo"


async def test_a_client_that_asks_to_close_is_closed(served):
    client = await served()
    client.ask(ASK, connection="close")
    assert (await client.answer()).headers["connection"] == "close"
    assert await client.ended() == b""


async def test_an_offer_to_change_the_protocol_is_ignored(served):
    client = await served()
    for _ in range(2):
        client.ask(ASK, connection="Upgrade, HTTP2-Settings", upgrade="h2c", http2_settings="AAMAAABk")
        assert (await client.answer()).json == ASK
    client.send(request(ASK, version="1.0", connection="Upgrade", upgrade="h2c"))
    assert (await client.answer()).headers["connection"] == "close"


async def test_absolute_targets_and_queries(served):
    client = await served()
    client.send(get("http://router/v1/models/m?x=1") + get("http://router") + get("/health?"))
    assert [(await client.answer()).status for _ in range(3)] == [200, 404, 200]


async def test_head_is_get_without_body(served):
    client = await served()
    client.send(request(b"", "/health", "HEAD", content_length=None) + get("/health"))
    assert (await client.answer(head_only=True)).status == 200
    assert (await client.answer()).json["status"] == "ok"


# --- what is refused


@pytest.mark.parametrize(
    ("sent", "status", "code"),
    [
        (b"hello\r\n\r\n", 400, "malformed_request"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400, "malformed_request"),
        (b"GET /health HTTP/1.1\r\nbad header\r\n\r\n", 400, "malformed_request"),
        (b"GET /health HTTP/1.1\r\nA: b\r\n c\r\n\r\n", 400, "malformed_request"),
        (b"POST /v1/completions HTTP/1.1\r\ncontent-length:\r\n\r\n", 400, "malformed_request"),
        (b"POST /v1/completions HTTP/1.1\r\ncontent-length: -1\r\n\r\n", 400, "malformed_request"),
        (b"POST /v1/completions HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n", 400, "malformed_request"),
        (request(b"{}", transfer_encoding="chunked"), 400, "malformed_request"),
        (b"CONNECT router:1 HTTP/1.1\r\n\r\n", 400, "malformed_request"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, "malformed_request"),
        (b"GET /health HTTP/2.0\r\n\r\n", 505, "http_version"),
        (b"GET /health HTTP/1.1\r\na: " + b"x" * 70_000 + b"\r\n\r\n", 431, "headers_too_large"),
        (b"GET /health HTTP/1.1\r\na: " + b"x" * 1_000_000, 431, "headers_too_large"),
        (b"GET /health HTTP/1.1\r\n" + b"a: b\r\n" * 200 + b"\r\n", 431, "headers_too_large"),
        (b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n", 431, "headers_too_large"),
        (request(b"x" * 2000), 413, "body_too_large"),
        (request(b"", content_length=10**30), 400, "malformed_request"),
        (request(b"", content_length=10**12), 413, "body_too_large"),
        (request(b"", content_length=None, transfer_encoding="chunked") + chunk(b"x" * 2000), 413, "body_too_large"),
        (request(b"", content_length=None, transfer_encoding="chunked") + b"1;" + b"x" * 70_000, 413, "body_too_large"),
    ],
)
async def test_bad_requests_get_an_error_and_an_end(served, sent, status, code):
    client = await served(body=1000, head=64 * 1024)
    client.send(sent)
    answer = await client.answer()
    assert (answer.status, answer.error["code"], answer.headers["connection"]) == (status, code, "close")
    assert answer.error["message"]
    assert await asyncio.wait_for(client.ended(), 3) == b""


async def test_the_answer_before_a_bad_request_is_not_lost(served):
    client = await served()
    client.send(request(ASK) + b"nonsense\r\n\r\n")
    assert [(await client.answer()).status for _ in range(2)] == [200, 400]


async def test_a_refusal_reaches_a_client_that_is_still_sending(served):
    client = await served(body=1000)
    client.send(request(b"", content_length=5_000_000))
    for _ in range(50):
        client.send(b"x" * 10_000)
        await asyncio.sleep(0)
    assert (await client.answer()).status == 413


async def test_a_client_without_a_key_is_refused_before_its_body_has_come(an_engine, a_router, a_client):
    client = await a_client(await a_router(table=a_table(await an_engine(), open=False)))
    client.send(request(b"", content_length=1000))
    answer = await client.answer()
    assert (answer.status, answer.headers["connection"]) == (401, "close")


# --- how long things may take


@pytest.mark.parametrize(
    "sent",
    [b"GET /hea", b"GET /health HTTP/1.1\r\na: b\r\n", request(b"{", content_length=10)],
    ids=["line", "head", "body"],
)
async def test_slow_requests_are_given_up(served, sent):
    client = await served(head_s=0.1, body_s=0.1)
    client.send(sent)
    answer = await asyncio.wait_for(client.answer(), 5)
    assert (answer.status, answer.error["code"]) == (408, "request_timeout")
    assert await client.ended() == b""


async def test_a_trickle_does_not_buy_time(served):
    client = await served(head_s=0.3)
    client.send(b"GET /health HTTP/1.1\r\n")

    async def trickle():
        while True:
            client.send(b"a: b\r\n")
            await asyncio.sleep(0.02)

    dripping = asyncio.ensure_future(trickle())
    assert (await asyncio.wait_for(client.answer(), 5)).status == 408
    dripping.cancel()


@pytest.mark.parametrize("before", [b"", get("/health")], ids=["new", "used"])
async def test_idle_connections_are_closed(served, before):
    client = await served(idle_s=0.1)
    client.send(before)
    if before:
        await client.answer()
    assert await asyncio.wait_for(client.ended(), 5) == b""


async def test_a_long_answer_is_not_cut_by_the_times_for_requests(served):
    async def thinks(seen, writer):
        await asyncio.sleep(0.3)
        await echo(seen, writer)

    client = await served(thinks, head_s=0.1, body_s=0.1, idle_s=0.1)
    client.send(request(ASK) + request(ASK))
    assert [(await client.answer()).status for _ in range(2)] == [200, 200]
