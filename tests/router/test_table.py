"""The routing table as it follows Redis or a file, and outlives both."""

import asyncio
import json
import os
import stat
import time

import pytest
import redis.asyncio
import structlog

from llmgw.core import routing, wire
from llmgw.core.routing import Route, Table
from llmgw.core.units import Seconds
from llmgw.router import table as tables
from llmgw.router.server import Options, Server
from llmgw.router.table import STATE_FILE, TableKeeper
from tests.router.conftest import a_table, soon
from tests.router.stand_in import Client, get, says

ASK = {"model": "m"}
NOW = Seconds(0.0)


@pytest.fixture
def following(cleanup):
    """`await following(url, **options)`: a router that follows this Redis."""

    async def start(url, **options):
        server = Server(Options(port=0, redis_url=url, **options))
        await server.start()
        cleanup.push_async_callback(server.stop, 0.0)
        return server

    return start


@pytest.fixture
async def publish(redis_url, cleanup):
    """`await publish(table or bytes)`: as the control plane does it."""
    client = await cleanup.enter_async_context(redis.asyncio.Redis.from_url(redis_url))

    async def send(table, *, tell=True):
        raw = table if isinstance(table, bytes) else routing.encode(table)
        await client.set(wire.ROUTES_KEY, raw)
        if tell:
            await client.publish(wire.ROUTES_CHANNEL, "new")

    return send


def revision(server):
    return server.shared.table and server.shared.table.revision


async def health(server):
    client = await Client.to(server.port)
    client.send(get("/health"))
    answer = await client.answer()
    client.leave()
    return answer


async def test_a_change_is_seen_within_50_ms(redis_url, following, publish):
    await publish(Table(revision=1))
    server = await following(redis_url)
    await soon(lambda: revision(server) == 1)
    seen = []
    for number in range(2, 12):
        began = time.perf_counter()
        await publish(Table(revision=number))
        await soon(lambda number=number: revision(server) == number)
        seen.append(time.perf_counter() - began)
    assert sorted(seen)[len(seen) // 2] < 0.05, seen


async def test_a_change_that_was_not_announced_is_seen_too(redis_url, following, publish, monkeypatch):
    monkeypatch.setattr(tables, "POLL_S", 0.1)
    await publish(Table(revision=1))
    server = await following(redis_url)
    await soon(lambda: revision(server) == 1)
    await publish(Table(revision=2), tell=False)
    await soon(lambda: revision(server) == 2)


async def test_a_lower_revision_is_taken_after_a_reset(redis_url, following, publish):
    await publish(Table(revision=9))
    server = await following(redis_url)
    await soon(lambda: revision(server) == 9)
    await publish(Table(revision=1))
    await soon(lambda: revision(server) == 1)


@pytest.mark.parametrize(
    "garbage",
    [b"", b"{", b"\xff\x00", b'{"revision": "x"}', b'{"revision": 5, "v": 99}', b'{"revision": 5, "routes": {"m": 1}}'],
)
async def test_garbage_leaves_the_last_good_table(redis_url, following, publish, garbage):
    await publish(Table(revision=1))
    server = await following(redis_url)
    await soon(lambda: revision(server) == 1)
    await publish(garbage)
    await soon(lambda: server.shared.keeper.problem)
    answer = await health(server)
    assert (answer.status, answer.json["table"]["revision"]) == (200, 1)
    assert "no routing table of version 1" in answer.json["table"]["problem"]
    await publish(Table(revision=2))
    await soon(lambda: revision(server) == 2)
    assert not server.shared.keeper.problem


async def test_fields_of_a_newer_control_plane_are_ignored(redis_url, following, publish):
    server = await following(redis_url)
    await publish(b'{"revision": 3, "colour": "blue", "routes": {"m": {"model": "m", "weight": 2}}}')
    await soon(lambda: revision(server) == 3)


def test_an_alias_is_no_model_more():
    keeper = TableKeeper()
    routes = {name: Route("m") for name in ("m", "alias", "another")} | {"n": Route("n")}
    with structlog.testing.capture_logs() as logs:
        keeper.take(b"1", lambda _: Table(revision=1, routes=routes), "redis", NOW)
    assert [line["models"] for line in logs] == [2]
    assert keeper.describe(NOW)["models"] == 2


async def test_without_a_table_health_says_why(redis_url, following):
    server = await following(redis_url)
    await soon(lambda: server.shared.keeper.problem)
    answer = await health(server)
    assert (answer.status, answer.json["status"]) == (503, "unavailable")
    assert "Redis holds no routing table" in answer.json["why"]
    assert answer.json["table"] == {
        "revision": None,
        "models": 0,
        "source": None,
        "age_s": None,
        "problem": "Redis holds no routing table; is the control plane running?",
    }


async def test_a_router_serves_while_redis_is_gone_and_follows_when_it_is_back(own_redis, following, an_engine):
    engine = await an_engine(says(b"served"))
    with own_redis.client() as client:
        client.set(wire.ROUTES_KEY, routing.encode(a_table(engine)))
    server = await following(own_redis.url)
    await soon(lambda: revision(server) == 1)
    own_redis.kill()
    await soon(lambda: server.shared.keeper.problem)
    asking = await Client.to(server.port)
    asking.ask(ASK)
    assert (await asking.answer()).body == b"served"
    assert (await health(server)).status == 200

    await asyncio.to_thread(own_redis.start)
    with own_redis.client() as client:
        client.set(wire.ROUTES_KEY, routing.encode(a_table(engine, revision=2)))
        await soon(lambda: revision(server) == 2)
        assert not server.shared.keeper.problem
        client.set(wire.ROUTES_KEY, routing.encode(a_table(engine, revision=3)))
        client.publish(wire.ROUTES_CHANNEL, "3")
        await soon(lambda: revision(server) == 3, within=0.5)
    asking.ask(ASK)
    assert (await asking.answer()).body == b"served"
    asking.leave()


async def test_redis_that_has_forgotten_everything_takes_nothing_away(redis_url, following, publish):
    await publish(Table(revision=1))
    server = await following(redis_url)
    await soon(lambda: revision(server) == 1)
    client = redis.asyncio.Redis.from_url(redis_url)
    await client.flushall()
    await client.publish(wire.ROUTES_CHANNEL, "gone")
    await client.aclose()
    await soon(lambda: server.shared.keeper.problem)
    assert revision(server) == 1


async def test_a_restarted_router_serves_without_redis(redis_url, following, publish, tmp_path, unused_tcp_port):
    server = await following(redis_url, state=tmp_path / "router")
    await publish(Table(revision=4))
    await soon(lambda: revision(server) == 4)
    saved = tmp_path / "router" / STATE_FILE
    await soon(saved.exists)
    assert stat.S_IMODE(saved.stat().st_mode) == 0o600
    os.utime(saved, (time.time() - 100, time.time() - 100))

    again = await following(f"redis://127.0.0.1:{unused_tcp_port}/0", state=tmp_path / "router")
    told = (await health(again)).json["table"]
    assert (told["revision"], told["source"]) == (4, "state")
    assert 100 <= told["age_s"] < 110


@pytest.mark.parametrize("torn", [b"", b"{", b'{"revision": 1, "v": 0}'])
async def test_a_torn_saved_table_is_left_alone(tmp_path, torn):
    (tmp_path / STATE_FILE).write_bytes(torn)
    keeper = TableKeeper(state=tmp_path)
    keeper.recall(NOW)
    assert keeper.table is None


async def test_a_disk_that_takes_nothing_does_not_stop_the_table(tmp_path):
    (tmp_path / "file").write_text("")
    keeper = TableKeeper(state=tmp_path / "file" / "below")
    keeper.take(b"1", lambda _: Table(revision=1), "redis", NOW)
    assert keeper._saving
    await keeper._saving
    assert keeper.table == Table(revision=1)


async def test_age_counts_from_the_last_time_the_source_answered(redis_url, following, publish, monkeypatch):
    monkeypatch.setattr(tables, "POLL_S", 0.05)
    await publish(Table(revision=1))
    server = await following(redis_url)
    await soon(lambda: revision(server) == 1)
    await asyncio.sleep(0.3)
    assert (await health(server)).json["table"]["age_s"] < 0.2


# --- a file instead


def a_file(path, endpoints, **more):
    path.write_text(json.dumps({"models": {"m": {"endpoints": endpoints}}, "open": True, **more}))
    return path


async def test_a_file_serves_without_any_control_plane(tmp_path, an_engine, cleanup, monkeypatch):
    monkeypatch.setattr(tables, "POLL_S", 0.05)
    one, other = await an_engine(says(b"one")), await an_engine(says(b"other"))
    file = a_file(tmp_path / "endpoints.json", [f"127.0.0.1:{one.port}"])
    server = Server(Options(port=0, endpoints=file, state=tmp_path))
    await server.start()
    cleanup.push_async_callback(server.stop, 0.0)
    client = await Client.to(server.port)
    client.ask(ASK)
    assert (await client.answer()).body == b"one"

    file.write_text("{")
    await soon(lambda: server.shared.keeper.problem)
    client.ask(ASK)
    assert (await client.answer()).body == b"one"

    a_file(file, [f"127.0.0.1:{other.port}"])
    await soon(lambda: not server.shared.keeper.problem)
    client.ask(ASK)
    assert (await client.answer()).body == b"other"

    file.unlink()
    await soon(lambda: "No such file" in server.shared.keeper.problem)
    assert (await health(server)).status == 200
    client.leave()
