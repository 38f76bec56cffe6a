"""A small engine that takes llama-server's flags and answers like it; `--fake-…` flags make it misbehave."""

import argparse
import json
import os
import signal
import socketserver
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

SLOTS = 4
TOKENS = ("Once", " upon", " a", " time", " there", " was", " a", " llama", ".")


def options(argv):
    parser = argparse.ArgumentParser(prog="llama-server", allow_abbrev=False)
    parser.add_argument("-m", "--model", default="")
    parser.add_argument("-a", "--alias", default="fake")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--version", action="version", version="version: 1 (fake)")
    fake = parser.add_argument_group("what it does wrong")
    fake.add_argument("--fake-load-s", type=float, default=0.0, help="answers 503 for so long")
    fake.add_argument("--fake-sick-after-s", type=float, help="answers 503 again from then on")
    fake.add_argument("--fake-well-file", help="well again while this file exists")
    fake.add_argument("--fake-exit", type=int, help="exits with this code")
    fake.add_argument("--fake-exit-after-s", type=float, default=0.0)
    fake.add_argument("--fake-abort-after-s", type=float, help="dies of SIGABRT")
    fake.add_argument("--fake-name", help="serves under another name")
    fake.add_argument("--fake-no-bind", action="store_true", help="finds its port taken")
    fake.add_argument("--fake-print", type=int, default=0, help="prints so many lines while it loads")
    fake.add_argument("--fake-say", default="", help="prints this line while it loads")
    fake.add_argument("--fake-ignore-term", action="store_true", help="does not hear SIGTERM")
    fake.add_argument("--fake-child", action="store_true", help="starts a child that outlives it")
    fake.add_argument("--fake-token-s", type=float, default=0.0, help="takes so long over each token")
    fake.add_argument("--fake-tokens", type=int, default=len(TOKENS), help="says so many when not told max_tokens")
    fake.add_argument("--fake-stamps", help="appends to this file, as JSON lines, when it started and was asked")
    # All the other flags of llama-server are taken and mean nothing here.
    return parser.parse_known_args(argv)[0]


class Engine:
    """How it is, and what it is at."""

    def __init__(self, wanted):
        self.wanted = wanted
        self.name = wanted.fake_name or wanted.alias
        self.started = time.monotonic()
        self.slots = [threading.Lock() for _ in range(SLOTS)]
        self.served = 0
        self.stamp("started")

    def stamp(self, what):
        if self.wanted.fake_stamps:
            with Path(self.wanted.fake_stamps).open("a") as file:
                file.write(json.dumps({"what": what, "at": time.time()}) + "\n")

    @property
    def is_well(self):
        age = time.monotonic() - self.started
        if self.wanted.fake_sick_after_s is not None and age >= self.wanted.fake_sick_after_s:
            return bool(self.wanted.fake_well_file) and Path(self.wanted.fake_well_file).exists()
        return age >= self.wanted.fake_load_s

    def take_slot(self):
        while True:
            for slot in self.slots:
                if slot.acquire(blocking=False):
                    return slot
            time.sleep(0.005)

    def tokens(self, count):
        for at in range(count):
            time.sleep(self.wanted.fake_token_s)
            yield TOKENS[at % len(TOKENS)]


class Handler(BaseHTTPRequestHandler):
    """llama-server's paths, as far as llmgw asks for them."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    engine: Engine

    def log_message(self, *_):
        pass

    def do_GET(self):
        path = self.path.partition("?")[0]
        if not self.engine.is_well:
            self.answer(503, {"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}})
        elif path == "/metrics":
            self.answer(200, f"llamacpp:requests_processing {self.busy()}\n")
        elif path in PAGES:
            self.answer(200, PAGES[path](self.engine))
        else:
            self.answer(404, {"error": {"message": "File Not Found", "type": "not_found_error", "code": 404}})

    def do_POST(self):
        self.engine.stamp("asked")
        asked = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        if not self.engine.is_well:
            self.answer(503, {"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}})
        elif self.path.endswith("completions"):
            with Slot(self.engine):
                self.complete(asked)
        else:
            self.answer(404, {"error": {"message": "File Not Found", "type": "not_found_error", "code": 404}})

    def busy(self):
        return sum(slot.locked() for slot in self.engine.slots)

    def complete(self, asked):
        count = int(asked.get("max_tokens") or self.engine.wanted.fake_tokens)
        self.engine.served += 1
        if asked.get("stream"):
            self.stream(asked, count)
        else:
            text = "".join(self.engine.tokens(count))
            self.answer(200, {**self.head("chat.completion"), "choices": [choice(text)], "usage": usage(count)})

    def stream(self, asked, count):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        head = self.head("chat.completion.chunk")
        for token in self.engine.tokens(count):
            self.event(json.dumps({**head, "choices": [delta({"content": token})]}))
        self.event(json.dumps({**head, "choices": [delta({}, "stop")]}))
        if asked.get("stream_options", {}).get("include_usage"):
            self.event(json.dumps({**head, "choices": [], "usage": usage(count)}))
        self.event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")

    def event(self, text):
        raw = f"data: {text}\n\n".encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(raw), raw))
        self.wfile.flush()

    def head(self, kind):
        return {"id": f"chatcmpl-{self.engine.served}", "object": kind, "created": 0, "model": self.engine.name}

    def answer(self, status, body):
        raw = (body if isinstance(body, str) else json.dumps(body)).encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain" if isinstance(body, str) else "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)


class Slot:
    """One request at work."""

    def __init__(self, engine):
        self.engine = engine

    def __enter__(self):
        self.lock = self.engine.take_slot()

    def __exit__(self, *_):
        self.lock.release()


class Server(ThreadingHTTPServer):
    """Binds without asking a name server who it is."""

    daemon_threads = True
    request_queue_size = 128

    def server_bind(self):
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "fake", self.server_address[1]


PAGES = {
    "/health": lambda engine: {"status": "ok"},
    "/v1/models": lambda engine: {"object": "list", "data": [{"id": engine.name, "object": "model"}]},
    "/slots": lambda engine: [{"id": at, "is_processing": slot.locked()} for at, slot in enumerate(engine.slots)],
    "/props": lambda engine: {"total_slots": SLOTS, "model_path": engine.wanted.model},
}


def choice(text):
    return {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}


def delta(said, finish=None):
    return {"index": 0, "delta": said, "finish_reason": finish}


def usage(count):
    return {"prompt_tokens": 5, "completion_tokens": count, "total_tokens": 5 + count}


def misbehave(wanted):
    for at in range(wanted.fake_print):
        print(f"line {at} of a chatty engine", flush=True)
    if wanted.fake_say:
        print(wanted.fake_say, file=sys.stderr, flush=True)
    if wanted.fake_child:
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    if wanted.fake_abort_after_s is not None:
        later(wanted.fake_abort_after_s, os.abort)
    if wanted.fake_exit is not None:
        later(wanted.fake_exit_after_s, lambda: os._exit(wanted.fake_exit))


def later(wait, act):
    timer = threading.Timer(wait, act)
    timer.daemon = True
    timer.start()


def main(argv):
    wanted = options(argv)
    signal.signal(signal.SIGTERM, signal.SIG_IGN if wanted.fake_ignore_term else lambda *_: os._exit(0))
    misbehave(wanted)
    if wanted.fake_no_bind:
        print(f"couldn't bind HTTP server socket, hostname: {wanted.host}, port: {wanted.port}", file=sys.stderr)
        return 1
    Handler.engine = Engine(wanted)
    Server((wanted.host, wanted.port), Handler).serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
