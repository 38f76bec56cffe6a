"""Asking an engine."""

import socket
import threading

import pytest

from llmgw.core.engines import ENGINES
from llmgw.core.engines.base import Readiness, Reply
from tests.fakes.engine import fake_llama_server
from tests.servers import free_port
from workers.engines import probe

LLAMACPP = ENGINES["llamacpp"]
EVERYWHERE = "0.0.0.0"  # noqa: S104 - told to an engine, not listened on


@pytest.fixture
def engine(processes, tmp_path):
    """Start a fake engine and return its port."""

    def start(*arguments):
        port = free_port()
        processes.start([str(fake_llama_server(tmp_path)), "--port", str(port), "--alias", "smollm2", *arguments])
        return port

    return start


def look(port):
    return probe.readiness(LLAMACPP, "127.0.0.1", port, "smollm2", 2)


def test_it_does_not_answer_then_loads_then_serves(engine, eventually):
    assert look(free_port()) is Readiness.NO_ANSWER
    port = engine("--fake-load-s", "0.3")
    eventually(lambda: look(port) is Readiness.LOADING, every=0.005)
    eventually(lambda: look(port) is Readiness.READY)


def test_one_with_another_name_is_foreign(engine, eventually):
    port = engine("--fake-name", "other")
    eventually(lambda: look(port) is Readiness.FOREIGN)


def test_no_proxy_is_asked(engine, eventually, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    port = engine()
    eventually(lambda: look(port) is Readiness.READY)


@pytest.mark.parametrize("said", [b"", b"SSH-2.0-OpenSSH_9.2\r\n", b"HTTP/1.1 banana\r\n\r\n"])
def test_whatever_is_no_http_is_no_answer(said):
    with socket.create_server(("127.0.0.1", 0)) as server:
        answering = threading.Thread(target=answer_once, args=(server, said))
        answering.start()
        assert probe.ask("127.0.0.1", server.getsockname()[1], "/health", 2) == Reply(0)
        answering.join(5)


def answer_once(server, said):
    connection, _ = server.accept()
    with connection:
        connection.recv(1000)
        connection.sendall(said)


def test_one_that_never_answers_is_given_up():
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert probe.ask("127.0.0.1", server.getsockname()[1], "/health", 0.1) == Reply(0)


def test_an_engine_on_every_address_is_asked_on_loopback():
    assert probe.reachable(EVERYWHERE) == "127.0.0.1"
    assert probe.reachable("::") == "::1"
    assert probe.reachable("10.0.0.1") == "10.0.0.1"
    assert probe.is_any(EVERYWHERE)
    assert not probe.is_any("10.0.0.1")
