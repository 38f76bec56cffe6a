"""Who takes the next request, and who is left alone for how long."""

import pytest

from llmgw.core.routing import Endpoint, NotServing, Route, Table
from llmgw.router.balance import LONGEST_PAUSE_S, Balancer


def a_table(*launch_ids):
    return Table(revision=1, routes={"m": Route("m", tuple(Endpoint("m/0", one, "h", 1) for one in launch_ids))})


@pytest.fixture
def balancer():
    return Balancer()


def chosen(balancer, table, now=0.0, tried=()):
    found = balancer.choose(table, "m", tried, now)
    return found.launch_id if isinstance(found, Endpoint) else found


def test_requests_are_spread_evenly(balancer):
    table = a_table("a", "b", "c")
    for _ in range(30):
        balancer.enter(chosen(balancer, table))
    assert [balancer.under_way(one) for one in "abc"] == [10, 10, 10]


def test_idle_endpoints_take_turns(balancer):
    table = a_table("a", "b", "c")
    assert {chosen(balancer, table) for _ in range(3)} == {"a", "b", "c"}


def test_leaving_makes_room(balancer):
    for one in ("a", "a", "b"):
        balancer.enter(one)
    balancer.leave("a")
    balancer.leave("a")
    assert chosen(balancer, a_table("a", "b")) == "a"
    assert balancer.under_way("a") == 0


def test_what_was_tried_is_not_tried_again(balancer):
    table = a_table("a", "b")
    assert {chosen(balancer, table, tried=["a"]) for _ in range(4)} == {"b"}
    assert chosen(balancer, table, tried=["a", "b"]) == NotServing("m", 2)


def test_a_failed_endpoint_is_left_alone_for_a_second(balancer):
    balancer.suspend("a", 10.0)
    table = a_table("a", "b")
    assert {chosen(balancer, table, 10.9) for _ in range(4)} == {"b"}
    assert "a" in {chosen(balancer, table, 11.1) for _ in range(4)}


def test_the_pause_doubles_while_it_keeps_failing(balancer):
    now, pauses = 0.0, []
    for _ in range(6):
        pauses.append(balancer.suspend("a", now))
        now += pauses[-1]
    assert pauses == [1, 2, 4, 8, LONGEST_PAUSE_S, LONGEST_PAUSE_S]


def test_one_outage_seen_by_many_requests_is_one_failure(balancer):
    assert [balancer.suspend("a", 0.0 + n / 100) for n in range(50)] == [1.0] * 50


def test_one_request_tries_it_out_while_the_others_wait(balancer):
    balancer.suspend("a", 0.0)
    table = a_table("a")
    assert chosen(balancer, table, 1.5) == "a"
    assert isinstance(chosen(balancer, table, 1.6), NotServing)
    balancer.reached("a")
    assert [chosen(balancer, table, 1.7) for _ in range(3)] == ["a", "a", "a"]


def test_reaching_it_is_not_yet_an_answer(balancer):
    balancer.suspend("a", 0.0)
    balancer.reached("a")
    assert balancer.suspend("a", 2.0) == 2.0
    balancer.answered("a")
    assert balancer.suspend("a", 5.0) == 1.0


def test_failures_of_launches_that_are_gone_are_forgotten(balancer):
    balancer.suspend("a", 0.0)
    balancer.suspend("b", 0.0)
    balancer.forget_all_but({"b"})
    assert balancer.suspended(0.5) == {"b"}
