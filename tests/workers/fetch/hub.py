"""A hub that answers as the real one does: the facts with a redirect, the bytes from another server."""

import hashlib
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "c" * 40
TOKEN = "hf_planted"


@dataclass
class Asked:
    """One request that was heard."""

    server: str
    method: str
    path: str
    authorization: str | None
    range: str | None


@dataclass
class StandInHub:
    """What the hub has, how it misbehaves, and what it was asked."""

    files: dict[str, bytes] = field(default_factory=dict)
    """`owner/repo/file` → content."""
    gated: bool = False
    broken: bool = False
    cut_after: int | None = None
    """The next download ends after that many bytes, with the connection."""
    served: bytes | None = None
    """What the bytes' server gives out instead of the file."""
    held: threading.Event | None = None
    """Downloads wait for this before their last byte."""
    asked: list[Asked] = field(default_factory=list)

    def __enter__(self):
        self._servers = [ThreadingHTTPServer(("127.0.0.1", 0), handler(self, name)) for name in ("hub", "bytes")]
        for server in self._servers:
            server.daemon_threads = True
            threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        self.url, self.bytes_url = (f"http://127.0.0.1:{server.server_address[1]}" for server in self._servers)
        return self

    def __exit__(self, *exc):
        for server in self._servers:
            server.shutdown()
            server.server_close()

    def downloads(self):
        return [asked for asked in self.asked if asked.server == "bytes"]


def handler(hub, name):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self):
            self.answer()

        def do_GET(self):
            self.answer()

        def answer(self):
            headers = self.headers
            hub.asked.append(Asked(name, self.command, self.path, headers.get("Authorization"), headers.get("Range")))
            (resolve if name == "hub" else send_bytes)(hub, self)

        def log_message(self, *args):
            pass

    return Handler


def say(request, status, headers=None, body=b""):
    request.send_response(status)
    for key, value in {"Content-Length": len(body), **(headers or {})}.items():
        request.send_header(key, str(value))
    request.end_headers()
    if request.command == "GET":
        request.wfile.write(body)


def resolve(hub, request):
    if hub.broken:
        return say(request, 503)
    owner, repo, _, _revision, *path = request.path.strip("/").split("/")
    name = "/".join((owner, repo, *path))
    if hub.gated and request.headers.get("Authorization") != f"Bearer {TOKEN}":
        return say(request, 403, {"X-Error-Code": "GatedRepo"})
    if not any(known.startswith(f"{owner}/{repo}/") for known in hub.files):
        return say(request, 404, {"X-Error-Code": "RepoNotFound"})
    if name not in hub.files:
        return say(request, 404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT})
    content = hub.files[name]
    return say(
        request,
        302,
        {
            "Location": f"{hub.bytes_url}/{name}?Signature=planted",
            "X-Repo-Commit": COMMIT,
            "X-Linked-Size": len(content),
            "X-Linked-ETag": f'"{hashlib.sha256(content).hexdigest()}"',
            "ETag": '"of-the-redirect"',
        },
    )


def send_bytes(hub, request):
    content = hub.files[request.path.strip("/").partition("?")[0]] if hub.served is None else hub.served
    begin = int(request.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")[0])
    rest = content[begin:]
    request.send_response(206 if begin else 200)
    request.send_header("Content-Length", str(len(rest)))
    if begin:
        request.send_header("Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}")
    request.end_headers()
    cut, hub.cut_after = hub.cut_after, None
    request.wfile.write(rest[: -1 if cut is None else cut])
    request.wfile.flush()
    if cut is not None:
        request.close_connection = True
        return
    if hub.held:
        hub.held.wait(20)
    with suppress(ConnectionError):  # who gave up is not there any more
        request.wfile.write(rest[-1:])
