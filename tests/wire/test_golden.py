"""What yesterday's version sent still reads as the same values, and what we send still is what it expects."""

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.core import routing, wire
from llmgw.core.wire import AnyOrder, AnyReport, Unreadable, order_from_wire, report_from_wire, to_wire
from tests.wire.messages import BEAT, ORDERS, REPORTS, TABLE

GOLDEN = Path(__file__).with_name("golden")
MESSAGES = [
    *((name, message, order_from_wire) for name, message in ORDERS.items()),
    *((name, message, report_from_wire) for name, message in REPORTS.items()),
]
each = pytest.mark.parametrize(("name", "message", "read"), MESSAGES, ids=[name for name, _, _ in MESSAGES])


def golden(name):
    return json.loads((GOLDEN / f"{name}.json").read_text("utf-8"))


def test_every_kind_has_a_file():
    kinds = {kind.__struct_config__.tag for union in (AnyOrder, AnyReport) for kind in union.__args__}
    assert kinds == {message.__struct_config__.tag for _, message, _ in MESSAGES}
    files = {path.stem for path in GOLDEN.glob("*.json")}
    assert files == {name for name, _, _ in MESSAGES} | {"beat", "table"}


@each
def test_it_still_reads_as_the_same_value(name, message, read):
    assert read(golden(name)) == message


@each
def test_it_is_still_written_in_the_same_way(name, message, read):
    assert json.loads(json.dumps(to_wire(message))) == golden(name)


@each
def test_fields_of_a_later_version_are_ignored(name, message, read):
    assert read(with_more(golden(name))) == message


OPEN = {"engines", "labels", "evidence", "environments", "refused"}
"""Fields whose keys are names that somebody else has given."""


def with_more(raw):
    """Add a field to every mapping whose keys are ours."""
    if isinstance(raw, list):
        return [with_more(one) for one in raw]
    if not isinstance(raw, dict):
        return raw
    told = {key: one if key in OPEN else with_more(one) for key, one in raw.items()}
    return {**told, "of_a_later_version": {"a": [1]}}


@each
@pytest.mark.parametrize("version", [None, 0, 2, "1"])
def test_another_version_is_turned_down_by_its_number(name, message, read, version):
    answer = read({**golden(name), "v": version})
    assert answer == Unreadable("version", str(version))
    assert answer.text() == f"message version {version}, this side speaks 1: update the older side"


@each
def test_an_unknown_kind_is_turned_down(name, message, read):
    answer = read({**golden(name), "kind": "of-another-version"})
    assert isinstance(answer, Unreadable)
    assert answer.what == "shape"
    assert "of-another-version" in answer.text()


@each
def test_a_field_of_the_wrong_type_is_told_by_its_place(name, message, read):
    answer = read({**golden(name), "epoch": "three"})
    assert isinstance(answer, Unreadable)
    assert "$.epoch" in answer.text()


@each
def test_what_must_not_be_missing_is_told(name, message, read):
    raw = golden(name)
    del raw["node"]
    answer = read(raw)
    assert isinstance(answer, Unreadable)
    assert "`node`" in answer.text()


def test_orders_are_no_reports():
    assert isinstance(report_from_wire(golden("order-stop")), Unreadable)
    assert isinstance(order_from_wire(golden("report-shards")), Unreadable)


@given(st.recursive(st.none() | st.integers() | st.text(), lambda s: st.lists(s) | st.dictionaries(st.text(), s)))
def test_whatever_arrives_is_answered(raw):
    for read in (order_from_wire, report_from_wire):
        assert isinstance(read(raw), Unreadable)
        if isinstance(raw, dict):
            assert isinstance(read({**raw, "v": 1, "kind": "launch"}), Unreadable)


def test_a_beat_is_a_hash_of_these_fields():
    assert msgspec.to_builtins(BEAT) == golden("beat")
    told = {key: str(value) for key, value in golden("beat").items()}
    assert msgspec.convert(told, wire.Beat, strict=False) == BEAT


def test_the_routing_table_is_what_routers_read():
    raw = json.dumps(golden("table")).encode()
    assert routing.decode(raw) == TABLE
    assert json.loads(routing.encode(TABLE)) == golden("table")
    assert routing.decode(json.dumps(with_more_but_names(golden("table"))).encode()) == TABLE


def with_more_but_names(table):
    routes = {name: with_more(route) for name, route in table["routes"].items()}
    keys = {name: with_more(key) for name, key in table["keys"].items()}
    return {**table, "routes": routes, "keys": keys, "of_a_later_version": 1}


def test_a_table_of_another_version_is_left_alone():
    assert routing.decode(json.dumps({**golden("table"), "v": 2}).encode()) is None
    assert routing.decode(b"{") is None


def test_names_do_not_change():
    assert (wire.ORDER_TASK, wire.TICK_TASK, wire.REPORT_TASK) == (
        "llmgw.node.order",
        "llmgw.node.tick",
        "llmgw.control.report",
    )
    assert (wire.CONTROL_QUEUE, wire.node_queue("n1"), wire.TICK_EXCHANGE) == ("control", "node.n1", "llmgw.ticks")
    assert (wire.HEARD_KEY, wire.TICK_KEY, wire.beat_key("n1")) == ("llmgw:heard", "llmgw:tick", "llmgw:beat:n1")
    assert (wire.ROUTES_KEY, wire.ROUTES_CHANNEL) == ("llmgw:routes", "llmgw:routes:changed")
    assert {str(kind) for kind in wire.OrderKind} == {"hello", "launch", "stop", "forget", "examine"}
    assert {str(code).removeprefix("order.") for code in wire.OrderRefusal} == {
        *("stale-epoch", "overtaken", "version", "invalid", "other-node", "other-instance", "not-kept"),
    }


def test_a_digest_is_the_same_in_any_order_and_another_for_other_states():
    launches = [("a", "ready"), ("b", "loading")]
    assert wire.digest(launches) == wire.digest(reversed(launches)) == "a7a41859"
    assert wire.digest([("a", "ready"), ("b", "ready")]) != wire.digest(launches)
    assert wire.digest([]) == "00000000"


@pytest.mark.parametrize(
    ("read", "kind", "field", "value"),
    [
        (order_from_wire, "hello", "epoch", 2**31),
        (order_from_wire, "hello", "epoch", -1),
        (report_from_wire, "shards", "epoch", 2**31),
        (report_from_wire, "shards", "seq", 2**63),
    ],
)
def test_a_number_that_no_database_keeps_is_turned_down(read, kind, field, value):
    order = {"order_id": "o", "node": "n1", "epoch": 1, "issued_at": 0.0}
    report = {"node": "n1", "instance": "i", "boot_id": "b", "epoch": 1, "seq": 1, "sent_at": 0.0}
    good = {"v": 1, "kind": kind} | (order if read is order_from_wire else report)
    assert not isinstance(read(good), Unreadable)
    assert field in read(good | {field: value}).text()
