"""A router in this process, engines beside it, and a client, all on uvloop as in production."""

import asyncio
from contextlib import AsyncExitStack

import pytest
import uvloop

from llmgw.core import routing
from llmgw.core.routing import Route, Table
from llmgw.router.server import Options, Server
from llmgw.router.shared import Limits
from tests.router.stand_in import Client, Engine, says


def pytest_asyncio_loop_factories(config, item):
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
async def cleanup():
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
def an_engine(cleanup):
    """`await an_engine(behaviour)`: one that runs until the test ends."""

    async def start(behave=None, port=0):
        engine = await Engine(behave or says(b"{}")).start(port)
        cleanup.push_async_callback(engine.stop)
        return engine

    return start


@pytest.fixture
def a_router(cleanup):
    """`await a_router(table or engine, …, **limits)`: a running one."""

    async def start(*engines, table=None, **limits):
        server = Server(Options(port=0, limits=Limits(**{"sweep_s": 0.05, **limits})))
        await server.start()
        cleanup.push_async_callback(server.stop, 0.0)
        if engines or table:
            give(server, table or a_table(*engines))
        return server

    return start


@pytest.fixture
def a_client(cleanup):
    """`await a_client(server)`: a connection to it."""

    async def connect(server, **how):
        client = await Client.to(server.port, **how)
        cleanup.callback(client.leave)
        return client

    return connect


def a_table(*engines, revision=1, **how):
    """Return a table in which these engines serve the model `m`, also called `alias`."""
    route = Route("m", tuple(engine.endpoint(replica=f"m/{n}") for n, engine in enumerate(engines)), created=7)
    return Table(revision=revision, **{"routes": {"m": route, "alias": route}, "open": True, **how})


def give(server, table):
    """Hand a table to a router, as its source would."""
    raw = routing.encode(table)
    server.shared.keeper.take(raw, lambda _: table, "test", asyncio.get_running_loop().time())


async def soon(condition, within=2.0):
    """Wait until a condition holds, at most this long."""
    async with asyncio.timeout(within):
        while not condition():  # noqa: ASYNC110  # a condition on what the router holds has no event
            await asyncio.sleep(0.002)
