"""Ports that can be had and those that cannot, with who has them."""

import os
import socket

import pytest

from llmgw.local import ports
from llmgw.local.programs import Wanted
from llmgw.local.state import Refused, StateFolder


@pytest.fixture
def taken():
    with socket.socket() as listener:
        listener.bind((ports.LOOPBACK, 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_a_free_port_is_fine():
    assert ports.check(ports.LOOPBACK, ports.any_free(), "--port") is None


def test_a_taken_port_is_refused_with_its_owner_and_another(taken):
    refused = ports.check(ports.LOOPBACK, taken, "--port")
    assert isinstance(refused, Refused)
    assert refused.code == "port.taken"
    assert f"port {taken} on 127.0.0.1 is taken by" in refused.what
    assert f"(pid {os.getpid()})" in refused.what
    other = int(refused.cure.rpartition(" ")[2])
    assert other > taken
    assert ports.why_not(ports.LOOPBACK, other) is None


def test_each_program_is_given_a_port_of_its_own(taken, tmp_path):
    port = ports.any_free()
    state = StateFolder(tmp_path)
    twice = Wanted(state, console_port=port, router_port=port).check()
    assert isinstance(twice, Refused)
    assert twice.code == "port.twice"
    redis = Wanted(state, console_port=port, router_port=ports.any_free(), redis_port=taken).check()
    assert isinstance(redis, Refused)
    assert "--redis-port" in redis.cure


def test_a_host_that_is_not_ours_is_refused():
    refused = ports.check("192.0.2.1", 8000, "--port")  # an address kept for documentation: no machine has it
    assert isinstance(refused, Refused)
    assert refused.code == "port.unusable"


def test_the_port_of_the_last_start_is_used_again_unless_it_is_taken(taken):
    free = ports.any_free()
    assert ports.any_free(free) == free
    assert ports.any_free(taken) != taken


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("127.8.0.1", True), ("localhost", True), ("::1", True), ("0.0.0.0", False), ("::", False)],  # noqa: S104
)
def test_what_only_this_machine_reaches(host, loopback):
    assert ports.is_loopback(host) is loopback
