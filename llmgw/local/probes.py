"""How it is seen that a program is ready."""

import asyncio

from llmgw.local.runner import Probe


def answers_redis(host: str, port: int, password: str) -> Probe:
    """Ready when it answers a ping."""

    async def probe() -> bool:
        told = await _exchange(host, port, f"AUTH {password}\r\nPING\r\n".encode(), 2)
        return told == [b"+OK\r\n", b"+PONG\r\n"]

    return probe


def answers_http(host: str, port: int, path: str) -> Probe:
    """Ready when it answers a request with anything but a failure of its own."""

    async def probe() -> bool:
        request = f"GET {path} HTTP/1.1\r\nHost: {_in_url(host)}:{port}\r\nConnection: close\r\n\r\n"
        (status,) = await _exchange(host, port, request.encode(), 1)
        return status.startswith(b"HTTP/1.") and status[9:10] in b"234"

    return probe


async def _exchange(host: str, port: int, request: bytes, lines: int) -> list[bytes]:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(request)
        return [await reader.readline() for _ in range(lines)]
    finally:
        writer.close()


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def reachable(host: str) -> str:
    """Return the address by which this machine reaches what listens on `host`."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)  # noqa: S104  # read, not listened on


def base_url(host: str, port: int) -> str:
    """Return what to type into a browser on this machine."""
    return f"http://{_in_url(reachable(host))}:{port}"
