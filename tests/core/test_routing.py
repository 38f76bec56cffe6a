"""Which endpoint the next request goes to."""

import pytest

from llmgw.core.routing import Endpoint, Key, ModelUnknown, NotServing, Route, Table, pick, to_json

ENDPOINTS = tuple(Endpoint(f"m/{n}", f"launch-{n}", "127.0.0.1", 40000 + n) for n in (1, 2, 3))
TABLE = Table(7, {"m": Route("m", ENDPOINTS), "alias": Route("m", ENDPOINTS), "cold": Route("cold")})


def loads(*counts):
    return {endpoint.launch_id: count for endpoint, count in zip(ENDPOINTS, counts, strict=True)}.__getitem__


def test_the_least_loaded_is_taken():
    assert pick(TABLE, "m", loads(3, 1, 2)) == ENDPOINTS[1]
    assert pick(TABLE, "alias", loads(0, 1, 2)) == ENDPOINTS[0]


def test_equals_take_turns():
    assert [pick(TABLE, "m", loads(1, 0, 0), turn=turn) for turn in range(4)] == [*ENDPOINTS[1:], *ENDPOINTS[1:]]


def test_what_did_not_answer_is_left_out():
    assert pick(TABLE, "m", loads(0, 1, 2), suspended={"launch-1"}) == ENDPOINTS[1]


@pytest.mark.parametrize(
    ("model", "suspended", "answer", "text"),
    [
        ("x", (), ModelUnknown("x"), "The model `x` does not exist or you do not have access to it."),
        ("cold", (), NotServing("cold", 0), "The model `cold` has no ready replica; try again shortly."),
        (
            "m",
            ("launch-1", "launch-2", "launch-3"),
            NotServing("m", 3),
            "The model `m` has 3 replicas and none answers; try again shortly.",
        ),
    ],
)
def test_why_there_is_none(model, suspended, answer, text):
    found = pick(TABLE, model, loads(0, 0, 0), suspended)
    assert found == answer
    assert isinstance(found, ModelUnknown | NotServing)
    assert found.text() == text


def test_key_hashes_are_not_printed():
    told = to_json(Table(1, {"m": Route("m")}, {"secret-hash": Key("k")}))
    assert told["keys"] == 1
    assert "secret-hash" not in str(told)
