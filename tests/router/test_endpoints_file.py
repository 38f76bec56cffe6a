"""The static list of endpoints."""

import json

import pytest

from llmgw.core.routing import Endpoint, Key, Route, Table
from llmgw.router import endpoints_file


def parse(document):
    return endpoints_file.parse(json.dumps(document).encode())


def test_a_whole_file():
    table = parse(
        {
            "models": {"small": {"endpoints": ["10.0.0.1:8000", "[fd00::1]:8001", "node-b:8002"], "aliases": ["s"]}},
            "keys": {"ab" * 32: {"id": "team", "models": ["small"]}},
        }
    )
    route = Route(
        "small",
        (
            Endpoint("small/0", "10.0.0.1:8000", "10.0.0.1", 8000),
            Endpoint("small/1", "[fd00::1]:8001", "fd00::1", 8001),
            Endpoint("small/2", "node-b:8002", "node-b", 8002),
        ),
    )
    keys = {"ab" * 32: Key("team", models=("small",))}
    assert table == Table(revision=0, routes={"small": route, "s": route}, keys=keys)


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ({"models": {}}, "nobody could call"),
        ({"models": {"m": {"endpoints": ["10.0.0.1"]}}, "open": True}, "'10.0.0.1' of 'm'"),
        ({"models": {"m": {"endpoints": [":80"]}}, "open": True}, "host:port"),
        ({"models": {"m": {"endpoints": ["a:0"]}}, "open": True}, "host:port"),
        ({"models": {"m": {"endpoints": ["a:99999"]}}, "open": True}, "host:port"),
        ({"models": {"m": {"endpoints": [], "aliases": ["m"]}}, "open": True}, "'m' is used twice"),
        ({"models": {"m": {}}, "open": True}, "endpoints"),
        ({"model": {}, "open": True}, "model"),
        ([], "object"),
    ],
)
def test_what_is_wrong_is_told(document, told):
    assert told in parse(document)


@pytest.mark.parametrize("raw", [b"", b"{", b"[" * 100_000, b"\xff"])
def test_what_is_no_json_is_told(raw):
    assert isinstance(endpoints_file.parse(raw), str)
