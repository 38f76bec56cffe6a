"""The router as a process of its own: its command line, its exit codes, and how it stops."""

import asyncio
import json
import signal
import socket
import sys

import pytest

from llmgw.router import cli
from tests.router.conftest import soon
from tests.router.stand_in import LAST_CHUNK, chunk, get, head, says

ASK = {"model": "m"}


@pytest.fixture
def endpoints(tmp_path):
    """`endpoints(port)`: a file that names one engine."""

    def write(port=1):
        file = tmp_path / "endpoints.json"
        file.write_text(json.dumps({"models": {"m": {"endpoints": [f"127.0.0.1:{port}"]}}, "open": True}))
        return file

    return write


@pytest.fixture
def run(processes, unused_tcp_port):
    """`await run("--endpoints", file)`: a router process that listens."""

    async def start(*words, port=unused_tcp_port):
        argv = [sys.executable, "-m", "llmgw.router.cli", "run", "--listen", f"127.0.0.1:{port}", *map(str, words)]
        process = processes.start(argv, stderr=asyncio.subprocess.PIPE, text=True)
        process.port = port
        while "listening" not in (line := await asyncio.to_thread(process.stderr.readline)):
            assert line, "it has ended"
        return process

    return start


async def ended(process, within=5.0):
    return await asyncio.wait_for(asyncio.to_thread(process.wait), within)


# --- wrong usage


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "REDIS_URL"),
        (["--redis", "http://x"], "redis://"),
        (["--endpoints", "/nonexistent"], "No such file"),
        (["--redis", "redis://:hush@h"], "REDIS_URL"),
        (["--redis", "unix:///run/redis?password=hush"], "REDIS_URL"),
        (["--redis", "redis://h", "--listen", "8080"], "host:port"),
        (["--redis", "redis://h", "--listen", "h:99999"], "host:port"),
    ],
)
def test_wrong_usage_is_2(monkeypatch, capsys, words, told):
    monkeypatch.delenv("REDIS_URL", raising=False)
    assert cli.main(["run", *words]) == 2
    said = capsys.readouterr().err
    assert told in said
    assert "hush" not in said


@pytest.mark.parametrize("words", [[], ["run", "--nonsense"], ["run", "--redis", "redis://h", "--endpoints", "f"]])
def test_what_argparse_refuses_is_2(capsys, words):
    with pytest.raises(SystemExit) as left:
        cli.main(words)
    assert left.value.code == 2


def test_a_file_that_lets_nobody_in_is_2(tmp_path, capsys):
    file = tmp_path / "endpoints.json"
    file.write_text('{"models": {}}')
    assert cli.main(["run", "--endpoints", str(file)]) == 2
    assert "nobody could call" in capsys.readouterr().err


def test_a_port_that_is_taken_is_1_and_its_holder_is_named(endpoints, capsys):
    import os

    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
        assert cli.main(["run", "--endpoints", str(endpoints()), "--listen", f"127.0.0.1:{port}"]) == 1
    told = capsys.readouterr().err
    assert f"127.0.0.1:{port}: the port is taken by" in told
    assert f"(pid {os.getpid()})" in told


def test_an_address_that_is_not_ours_is_1(endpoints, capsys):
    assert cli.main(["run", "--endpoints", str(endpoints()), "--listen", "192.0.2.1:8080"]) == 1
    assert "cannot listen on 192.0.2.1:8080: " in capsys.readouterr().err


def test_addresses():
    assert cli.parse_address("[::1]:80") == ("::1", 80)
    assert cli.parse_address("localhost:80") == ("localhost", 80)


# --- stopping


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_stops_an_idle_router_at_once(run, endpoints, number, a_client):
    process = await run("--endpoints", endpoints())
    idle = await a_client(process)
    idle.send(get("/health"))
    assert (await idle.answer()).status == 200
    process.send_signal(number)
    assert await ended(process, 2.0) == 0
    assert await idle.ended() == b""


async def test_open_requests_finish_and_nothing_new_is_taken(run, endpoints, an_engine, a_client):
    go_on = asyncio.Event()

    async def answer(seen, writer):
        writer.write(head(transfer_encoding="chunked") + chunk(b"one"))
        await go_on.wait()
        writer.write(chunk(b"two") + LAST_CHUNK)

    engine = await an_engine(answer)
    process = await run("--endpoints", endpoints(engine.port))
    client = await a_client(process)
    client.ask(ASK)
    await client.head()
    assert await client.chunk() == b"one"
    process.terminate()
    await soon(lambda: not listens(process.port))
    go_on.set()
    assert [await client.chunk(), await client.chunk()] == [b"two", b""]
    assert await ended(process) == 0


def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize("hurried", [False, True])
async def test_what_does_not_finish_in_time_is_cut(run, endpoints, an_engine, hurried, a_client):
    async def answer(seen, writer):
        writer.write(head(transfer_encoding="chunked") + chunk(b"one"))
        await asyncio.sleep(3600)

    engine = await an_engine(answer)
    process = await run("--endpoints", endpoints(engine.port), "--drain-s", "3600" if hurried else "0.2")
    client = await a_client(process)
    client.ask(ASK)
    await client.head()
    process.terminate()
    await soon(lambda: not listens(process.port))
    if hurried:
        process.terminate()
    assert await ended(process, 3.0) == 0
    assert not (await client.ended()).endswith(LAST_CHUNK)


# --- the rest of the process


async def test_routers_may_share_a_port(run, endpoints, an_engine, a_client):
    engine = await an_engine(says(b"{}"))
    first = await run("--endpoints", endpoints(engine.port), "--reuse-port")
    await run("--endpoints", endpoints(engine.port), "--reuse-port")
    first.terminate()
    assert await ended(first) == 0
    client = await a_client(first)
    client.ask(ASK)
    assert (await client.answer()).status == 200


async def test_the_log_names_requests_and_no_secrets(run, tmp_path, an_engine, redis_url, a_client):
    import hashlib

    from llmgw.core import routing, wire
    from llmgw.core.routing import Key, Route, Table

    engine = await an_engine()
    digest = hashlib.sha256(b"the-key").hexdigest()
    table = Table(revision=1, routes={"m": Route("m", (engine.endpoint(),))}, keys={digest: Key("k")})
    import redis

    with redis.Redis.from_url(redis_url) as client:
        client.set(wire.ROUTES_KEY, routing.encode(table))
    process = await run("--redis", redis_url, "--log-every", "1", "--state", tmp_path)
    client = await a_client(process)
    await soon_answers(client)
    client.ask(ASK, authorization="Bearer the-key", x_request_id="mine")
    assert (await client.answer()).status == 200
    client.ask(ASK, authorization="Bearer wrong-key")
    assert (await client.answer()).status == 401
    process.terminate()
    assert await ended(process) == 0
    log = process.stderr.read()
    lines = [json.loads(line) for line in log.splitlines()]
    logged = [line for line in lines if line["event"] == "request" and line["path"] == "/v1/chat/completions"]
    assert [(line["status"], line["request_id"] == "mine") for line in logged] == [(200, True), (401, False)]
    assert (logged[0]["replica"], logged[0]["launch_id"]) == ("m/0", engine.endpoint().launch_id)
    assert not [secret for secret in ("the-key", "wrong-key", digest) if secret in log]


async def soon_answers(client):
    async with asyncio.timeout(3):
        while True:
            client.send(get("/health"))
            if (await client.answer()).status == 200:
                return


@pytest.mark.parametrize(
    ("host", "warned"),
    [("127.0.0.1", False), ("::1", False), ("localhost", False), ("192.0.2.1", True), ("::", True), ("a-name", True)],
)
async def test_an_open_router_on_a_public_address_warns(host, warned):
    from structlog.testing import capture_logs

    from llmgw.core.routing import Table
    from llmgw.router.server import Options, Server

    server = Server(Options(host=host))
    with capture_logs() as logs:
        for revision, is_open in enumerate((False, True, True, False, True), 1):
            server._table_changed(Table(revision=revision, open=is_open))
    events = [line["event"] for line in logs if line["log_level"] == "warning"]
    assert events == ["anonymous access from elsewhere"] * (2 if warned else 0)
