"""What the router adds to a request: latency and CPU, against the same requests sent to the engine directly.

`python bench/router.py [--seconds 4]` starts an engine that answers at once, a router, and a plain byte pipe as a
yardstick, each a process on loopback. The three are asked in turns within one run, so that what else the machine does
falls on all of them alike. The last line is a JSON object; the whole run stays below 30 seconds.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httptools
import uvloop

HOST = "127.0.0.1"
ROOT = Path(__file__).resolve().parents[1]
CHUNKS = 100
PROMPT = "x" * 2000


# --- an engine that answers at once, and a pipe that understands nothing ------------------------------------------

PLAIN = b'{"choices": [{"message": {"role": "assistant", "content": "' + b"y" * 400 + b'"}}]}'
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(PLAIN), PLAIN)
STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
EVENT = b"data: " + b'{"choices": [{"delta": {"content": "word"}}]}' + b"\n\n"
PIECE = b"%x\r\n%b\r\n" % (len(EVENT), EVENT)


class Engine(asyncio.Protocol):
    """Answers whole, or in pieces of one event each when the body asks for a stream."""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.parser = httptools.HttpRequestParser(self)
        self.streams = False

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self.streams = b'"stream": true' in body[:200]

    def on_message_complete(self) -> None:
        if self.streams:
            self.left = CHUNKS
            self.transport.write(STREAM)
            self.piece()
        else:
            self.transport.write(ANSWER)

    def piece(self) -> None:
        self.left -= 1
        self.transport.write(PIECE if self.left else PIECE + b"0\r\n\r\n")
        if self.left:
            # A write and a packet each, as tokens come.
            asyncio.get_running_loop().call_later(0.001, self.piece)


class PipeEnd(asyncio.Protocol):
    """One of two connections that hand each other every byte."""

    def __init__(self, other: "PipeEnd | None", port: int) -> None:
        self.other, self.port, self.waiting = other, port, b""
        self.transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        if self.other is None:
            loop = asyncio.get_running_loop()
            self.opening = loop.create_task(loop.create_connection(lambda: PipeEnd(self, self.port), HOST, self.port))
        else:
            self.other.other = self
            transport.write(self.other.waiting)

    def data_received(self, data: bytes) -> None:
        if self.other is None:
            self.waiting += data
        else:
            self.other.transport.write(data)

    def connection_lost(self, _: Exception | None) -> None:
        if self.other:
            self.other.transport.close()


async def serve(protocol: Any, port: int) -> None:
    server = await asyncio.get_running_loop().create_server(protocol, HOST, port)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


# --- asking -------------------------------------------------------------------------------------------------------


class Asker(asyncio.Protocol):
    """One connection that asks, and says when the first byte and the last have come."""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.parser = httptools.HttpResponseParser(self)

    def ask(self, request: bytes) -> "asyncio.Future[tuple[float, float]]":
        self.done: asyncio.Future[tuple[float, float]] = asyncio.get_running_loop().create_future()
        self.began, self.first = time.perf_counter(), 0.0
        self.transport.write(request)
        return self.done

    def data_received(self, data: bytes) -> None:
        self.first = self.first or time.perf_counter() - self.began
        self.parser.feed_data(data)

    def on_message_complete(self) -> None:
        if self.parser.get_status_code() != 200:
            self.done.set_exception(RuntimeError(f"status {self.parser.get_status_code()}"))
        else:
            self.done.set_result((self.first, time.perf_counter() - self.began))


def a_request(*, stream: bool) -> bytes:
    asked = {"stream": stream, "model": "bench", "messages": [{"role": "user", "content": PROMPT}]}
    body = json.dumps(asked).encode()
    head = "POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n"
    return f"{head}authorization: Bearer k\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


async def connect(port: int) -> Asker:
    _, asker = await asyncio.get_running_loop().create_connection(Asker, HOST, port)
    return asker


async def in_turns(ports: dict[str, int], request: bytes, seconds: float) -> dict[str, list[tuple[float, float]]]:
    """Ask each target once, round after round, one request at a time."""
    askers = {name: await connect(port) for name, port in ports.items()}
    took: dict[str, list[tuple[float, float]]] = {name: [] for name in ports}
    for asker in askers.values():
        await asker.ask(request)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for name, asker in askers.items():
            took[name].append(await asker.ask(request))
    return took


async def at_once(port: int, request: bytes, seconds: float, connections: int) -> int:
    """Ask over many connections, each again as soon as it is answered; returns how many were answered."""
    end = time.perf_counter() + seconds

    async def again() -> int:
        asker, answered = await connect(port), 0
        while time.perf_counter() < end:
            await asker.ask(request)
            answered += 1
        asker.transport.close()
        return answered

    return sum(await asyncio.gather(*(again() for _ in range(connections))))


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def quantiles(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    at = {"p50": 0.5, "p99": 0.99}
    return {name: round(ordered[int(len(ordered) * share)] * 1000, 4) for name, share in at.items()}


# --- the run ------------------------------------------------------------------------------------------------------


async def measure(ports: dict[str, int], pids: dict[str, int], seconds: float) -> dict[str, Any]:
    plain, stream = a_request(stream=False), a_request(stream=True)
    told: dict[str, Any] = {"bench": "router", "seconds_per_phase": seconds}
    took = await in_turns(ports, plain, seconds)
    whole = {name: quantiles([last for _, last in each]) for name, each in took.items()}
    first = {
        name: quantiles([first for first, _ in each]) for name, each in (await in_turns(ports, stream, seconds)).items()
    }
    told["requests_in_turns"] = len(took["routed"])
    told["latency_ms"] = whole | {"added": less(whole["routed"], whole["direct"])}
    told["latency_ratio_p50"] = round(whole["routed"]["p50"] / whole["direct"]["p50"], 2)
    told["stream_first_byte_ms"] = first | {"added": less(first["routed"], first["direct"])}
    for name, request, units in (("request", plain, 1), ("chunk", stream, CHUNKS)):
        told[f"cpu_us_per_{name}"] = await cpu_per_unit(ports, pids, request, units, seconds)
    return told


async def cpu_per_unit(
    ports: dict[str, int], pids: dict[str, int], request: bytes, units: int, seconds: float
) -> dict[str, float]:
    """Load the pipe and the router in turns; CPU that each took for a request or a chunk, in microseconds."""
    used, answered = dict.fromkeys(pids, 0.0), dict.fromkeys(pids, 0)
    for _ in range(4):
        for name, pid in pids.items():
            before = cpu_s(pid)
            answered[name] += await at_once(ports[name], request, seconds / 8, connections=32) * units
            used[name] += cpu_s(pid) - before
    each = {name: round(used[name] / answered[name] * 1e6, 2) for name in pids}
    return each | {"ratio_to_pipe": round(each["routed"] / each["pipe"], 2)}


def less(one: dict[str, float], other: dict[str, float]) -> dict[str, float]:
    return {name: round(one[name] - other[name], 4) for name in one}


def start(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, __file__, *words], stdout=subprocess.PIPE, text=True)


def start_router(engine_port: int, folder: Path) -> tuple[subprocess.Popen[str], int]:
    file = folder / "endpoints.json"
    file.write_text(json.dumps({"models": {"bench": {"endpoints": [f"{HOST}:{engine_port}"]}}, "open": True}))
    argv = [sys.executable, "-m", "llmgw.router.cli", "run", "--endpoints", str(file), "--listen", f"{HOST}:0"]
    as_json = {**os.environ, "LLMGW_LOG": "json"}
    router = subprocess.Popen(argv, cwd=ROOT, stderr=subprocess.PIPE, text=True, env=as_json)
    for line in router.stderr or ():
        told = json.loads(line)
        if told["event"] == "listening":
            return router, told["port"]
    raise RuntimeError("the router has ended")


def run(seconds: float) -> dict[str, Any]:
    started: list[subprocess.Popen[str]] = []
    try:
        with tempfile.TemporaryDirectory() as folder:
            engine = start("--engine")
            started.append(engine)
            direct = int((engine.stdout or sys.stdin).readline())
            pipe = start("--pipe", str(direct))
            started.append(pipe)
            piped = int((pipe.stdout or sys.stdin).readline())
            router, routed = start_router(direct, Path(folder))
            started.append(router)
            ports = {"direct": direct, "pipe": piped, "routed": routed}
            return uvloop.run(measure(ports, {"pipe": pipe.pid, "routed": router.pid}, seconds))
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait(10)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=4.0, help="per phase, of which there are four (%(default)s)")
    parser.add_argument("--engine", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--pipe", type=int, help=argparse.SUPPRESS)
    told = parser.parse_args()
    if told.engine:
        uvloop.run(serve(Engine, 0))
    elif told.pipe:
        uvloop.run(serve(lambda: PipeEnd(None, told.pipe), 0))
    else:
        print(json.dumps(run(min(told.seconds, 6.0))))
    return 0


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except KeyboardInterrupt:
        raise SystemExit(130) from None
