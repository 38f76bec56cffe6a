"""Who holds a port."""

import os
import socket

import pytest

from llmgw.local.port_holder import who_holds


@pytest.fixture
def port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_it_is_named_with_its_pid(port):
    assert f"(pid {os.getpid()})" in (who_holds(port) or "")


def test_a_port_that_nobody_holds():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        assert who_holds(free.getsockname()[1]) is None


def test_where_the_kernel_tells_nothing(port, tmp_path):
    assert who_holds(port, tmp_path) is None


def test_a_holder_that_we_may_not_look_into(port, tmp_path):
    (tmp_path / "net").mkdir()
    (tmp_path / "net/tcp").write_text(f"head\n 0: 0100007F:{port:04X} 0:0 0A 0:0 0:0 0 0 0 4711 1\n")
    (tmp_path / "12").mkdir()
    assert who_holds(port, tmp_path) is None
