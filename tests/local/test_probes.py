"""What counts as ready, asked of real servers."""

import http.server
import threading

import pytest

from llmgw.local import probes
from tests.servers import Valkey, free_port


@pytest.fixture
def http_server():
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(int(self.path.strip("/")))
            self.end_headers()

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


@pytest.mark.parametrize(("status", "ready"), [(200, True), (302, True), (404, True), (500, False), (503, False)])
async def test_http_is_ready_when_it_does_not_blame_itself(http_server, status, ready):
    assert await probes.answers_http("127.0.0.1", http_server, f"/{status}")() is ready


async def test_redis_is_ready_when_it_answers_to_its_password(tmp_path):
    server = Valkey(tmp_path, password="right").start()
    try:
        assert await probes.answers_redis("127.0.0.1", server.port, "right")()
        assert not await probes.answers_redis("127.0.0.1", server.port, "wrong")()
    finally:
        server.kill()


async def test_nobody_there():
    with pytest.raises(OSError, match="Connect call failed"):
        await probes.answers_http("127.0.0.1", free_port(), "/")()


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8000"),
        ("0.0.0.0", "http://127.0.0.1:8000"),  # noqa: S104
        ("::", "http://[::1]:8000"),
        ("gw.example", "http://gw.example:8000"),
    ],
)
def test_the_address_to_type(host, url):
    assert probes.base_url(host, 8000) == url
