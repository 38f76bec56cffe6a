"""What is decided before an engine is asked."""

import hashlib
import json

import pytest

from llmgw.core.routing import Endpoint, Key, ModelUnknown, NotServing, Route, Table
from llmgw.core.units import Seconds
from llmgw.router import door, replies
from llmgw.router.door import Ask
from llmgw.router.replies import Reply
from llmgw.router.request import Request

NOW = Seconds(1000.0)
ALL = Key("all")
READY = Route("small", (Endpoint("small/0", "l1", "10.0.0.1", 8000),), created=12)
LOADING = Route("large", ())
ROUTES = {"small": READY, "s": READY, "large": LOADING}


def sha256(secret):
    return hashlib.sha256(secret.encode()).hexdigest()


def a_table(**how):
    keys = {
        sha256("good"): ALL,
        sha256("only-small"): Key("only-small", models=("small",)),
        sha256("old"): Key("old", expires_at=NOW),
        sha256("fresh"): Key("fresh", expires_at=NOW + 1),
    }
    return Table(revision=3, routes=ROUTES, **{"keys": keys, **how})


def a_request(path="/v1/completions", verb=b"POST", **headers):
    request = Request()
    request.path = path
    for name, value in headers.items():
        request.add_header(name.replace("_", "-").encode(), value)
    request.close_head(verb, "1.1", keep_alive=True)
    return request


def refusal(request, table=None):
    return door.refuse_head(request, table or a_table(), 1000, NOW)


def error(reply):
    assert isinstance(reply, Reply)
    told = json.loads(reply.body)
    assert told.keys() == {"error"}
    assert told["error"].keys() == {"message", "type", "param", "code"}
    return reply.status, told["error"]["code"]


# --- keys


@pytest.mark.parametrize("said", [b"Bearer good", b"bearer good", b"BEARER  good "])
def test_a_known_key_comes_in(said):
    request = a_request(authorization=said)
    assert refusal(request) is None
    assert request.key == ALL


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (b"Bearer wrong", "invalid_api_key"),
        (b"Bearer old", "expired_api_key"),
        (b"Bearer ", "missing_api_key"),
        (b"Bearer", "missing_api_key"),
        (b"Basic good", "missing_api_key"),
        (b"good", "missing_api_key"),
        (b"", "missing_api_key"),
    ],
)
def test_other_keys_do_not(said, code):
    reply = refusal(a_request(authorization=said))
    assert error(reply) == (401, code)
    assert (b"www-authenticate", b"Bearer") in reply.headers
    assert b"wrong" not in reply.body


def test_no_key_at_all():
    assert error(refusal(a_request())) == (401, "missing_api_key")


@pytest.mark.parametrize("headers", [{}, {"authorization": b"Bearer none"}, {"authorization": b"Bearer old"}])
def test_an_open_router_lets_everybody_in(headers):
    request = a_request(**headers)
    assert refusal(request, a_table(open=True)) is None
    assert request.key == door.ANYONE


def test_an_open_router_still_knows_its_keys():
    request = a_request(authorization=b"Bearer only-small")
    assert refusal(request, a_table(open=True)) is None
    assert request.key.id == "only-small"


def test_a_key_is_good_until_it_expires():
    assert refusal(a_request(authorization=b"Bearer fresh")) is None


def test_health_needs_no_key_and_no_table():
    assert door.refuse_head(a_request("/health", b"GET"), None, 1000, NOW) is None


# --- paths, methods, sizes


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/", "/v1/chat", "/v1/chat/completions/", "/metrics", "*"])
def test_unknown_paths(path):
    assert error(refusal(a_request(path, b"GET"))) == (404, "unknown_url")


@pytest.mark.parametrize(
    ("path", "verb", "allow"),
    [
        ("/v1/chat/completions", b"GET", b"POST"),
        ("/v1/completions", b"PUT", b"POST"),
        ("/v1/embeddings", b"HEAD", b"POST"),
        ("/v1/models", b"POST", b"GET, HEAD"),
        ("/v1/models/small", b"DELETE", b"GET, HEAD"),
        ("/health", b"OPTIONS", b"GET, HEAD"),
    ],
)
def test_wrong_methods(path, verb, allow):
    reply = refusal(a_request(path, verb))
    assert error(reply) == (405, "method_not_allowed")
    assert (b"allow", allow) in reply.headers


def test_too_large():
    reply = refusal(a_request(authorization=b"Bearer good", content_length=b"1001"))
    assert (error(reply), reply.close) == ((413, "body_too_large"), True)
    assert refusal(a_request(authorization=b"Bearer good", content_length=b"1000")) is None


def test_without_a_table_nobody_is_sent_away_for_good():
    reply = door.refuse_head(a_request(), None, 1000, NOW)
    assert isinstance(reply, Reply)
    assert error(reply) == (503, "no_routing_table")
    assert (b"retry-after", b"1") in reply.headers


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        (b"/v1/models", "/v1/models", b""),
        (b"/v1/models?a=b?c", "/v1/models", b"a=b?c"),
        (b"http://host:80/v1/models?x", "/v1/models", b"x"),
        (b"http://host", "/", b""),
        (b"*", "*", b""),
        (b"host:443", "", b""),
        (b"\xff", "", b""),
    ],
)
def test_targets(target, path, query):
    assert door.split_target(target) == (path, query)


# --- bodies


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        (b"", "invalid_json", None),
        (b"{", "invalid_json", None),
        (b'{"model": "small"} x', "invalid_json", None),
        (b'{"a": ' + b"[" * 100_000, "invalid_json", None),
        (b'{"model": ' + b"[" * 100_000, "invalid_json", None),
        (b'["small"]', "invalid_body", None),
        (b"null", "invalid_body", None),
        (b"{}", "missing_required_parameter", "model"),
        (b'{"model": null}', "missing_required_parameter", "model"),
        (b'{"model": ""}', "missing_required_parameter", "model"),
        (b'{"model": ["small"]}', "missing_required_parameter", "model"),
    ],
)
def test_bodies_that_name_no_model(body, code, param):
    reply = door.read_ask(body, ALL, a_table())
    assert error(reply) == (400, code)
    assert json.loads(reply.body)["error"]["param"] == param


@pytest.mark.parametrize("name", ["unknown", "Small", "small\x00", "💥"])
def test_unknown_models(name):
    reply = door.read_ask(json.dumps({"model": name}).encode(), ALL, a_table())
    assert error(reply) == (404, "model_not_found")
    assert f"`{name}`" in json.loads(reply.body)["error"]["message"]


def test_a_model_that_the_key_may_not_see_does_not_exist_for_it():
    key = Key("k", models=("small",))
    assert error(door.read_ask(b'{"model": "large"}', key, a_table())) == (404, "model_not_found")
    assert isinstance(door.read_ask(b'{"model": "small"}', key, a_table()), Ask)


@pytest.mark.parametrize("allowed", ["small", "s"])
def test_a_key_may_name_the_model_or_the_alias(allowed):
    assert isinstance(door.read_ask(b'{"model": "s"}', Key("k", models=(allowed,)), a_table()), Ask)


def test_a_body_with_the_served_name_is_left_as_it_is():
    body = b'{"x":1.50, "model":"small" }'
    assert door.read_ask(body, ALL, a_table()).body is body


def test_an_alias_is_replaced_and_nothing_else():
    body = '{"big":123456789012345678901234567890,"f":1.50,"e":1e400,"model":"s","t":"\\u00e9 ✓","o":{"model":"s"}}'
    ask = door.read_ask(body.encode(), ALL, a_table())
    assert isinstance(ask, Ask)
    assert ask.model == "s"
    assert ask.body.decode() == body.replace('"model":"s","t"', '"model":"small","t"')


def test_of_two_names_the_last_counts_as_for_the_engine():
    ask = door.read_ask(b'{"model":"large","model":"s"}', ALL, a_table())
    assert ask == Ask("s", b'{"model":"small"}')


# --- its own answers


def test_the_list_holds_what_can_be_called_now():
    listed = json.loads(door.models(ALL, a_table()).body)
    assert listed["object"] == "list"
    assert [one["id"] for one in listed["data"]] == ["s", "small"]
    assert listed["data"][1] == {"id": "small", "object": "model", "created": 12, "owned_by": "llmgw"}


def test_the_list_holds_what_the_key_may_call():
    assert json.loads(door.models(Key("k", models=("large",)), a_table()).body)["data"] == []


def test_one_model():
    assert json.loads(door.one_model("/v1/models/small", ALL, a_table()).body)["id"] == "small"
    assert json.loads(door.one_model("/v1/models/%73mall", ALL, a_table()).body)["id"] == "small"
    assert error(door.one_model("/v1/models/none", ALL, a_table())) == (404, "model_not_found")
    assert error(door.one_model("/v1/models/large", ALL, a_table())) == (503, "model_not_ready")
    assert error(door.one_model("/v1/models/large", Key("k", models=()), a_table())) == (404, "model_not_found")


def test_refusals_in_openai_s_words():
    unknown, absent = door.refused(ModelUnknown("m")), door.refused(NotServing("m", 0))
    assert error(unknown) == (404, "model_not_found")
    assert error(absent) == (503, "model_not_ready")
    assert json.loads(unknown.body)["error"]["type"] == "invalid_request_error"
    assert json.loads(absent.body)["error"]["type"] == "server_error"


def test_an_answer_as_bytes():
    raw = replies.encode(Reply(200, b"{}"), b"id-1", connection=b"close")
    assert raw == (
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n"
        b"x-request-id: id-1\r\nconnection: close\r\n\r\n{}"
    )
    assert replies.status_line(599) == b"HTTP/1.1 599 \r\n"
