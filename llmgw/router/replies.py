"""Answers that the router gives by itself, with errors in the shape that OpenAI's clients read."""

from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

import msgspec

Headers = tuple[tuple[bytes, bytes], ...]

STATUS_LINES: Final = {s.value: f"HTTP/1.1 {s.value} {s.phrase}\r\n".encode() for s in HTTPStatus}
JSON_TYPE: Final = (b"content-type", b"application/json")


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole answer."""

    status: int
    body: bytes
    headers: Headers = (JSON_TYPE,)
    close: bool = False
    """True when nothing more can be read from this connection."""


def status_line(status: int) -> bytes:
    """Return the first line of an answer; engines may use codes that nobody has registered."""
    return STATUS_LINES.get(status) or f"HTTP/1.1 {status} \r\n".encode()


def as_json(content: object, status: int = 200, headers: Headers = ()) -> Reply:
    """Answer with a JSON document."""
    return Reply(status, msgspec.json.encode(content), (JSON_TYPE, *headers))


def error(status: int, code: str, message: str, *, param: str | None = None, headers: Headers = ()) -> Reply:
    """Answer with OpenAI's error object."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    told = {"error": {"message": message, "type": kind, "param": param, "code": code}}
    return as_json(told, status, headers)


def try_again(status: int, code: str, message: str, after_s: int = 1) -> Reply:
    """Answer that it does not go now, and when it is worth another try."""
    return error(status, code, message, headers=((b"retry-after", b"%d" % after_s),))


def last_words(status: int, code: str, message: str) -> Reply:
    """Answer with an error after which the connection is closed."""
    told = error(status, code, message)
    return Reply(told.status, told.body, told.headers, close=True)


def encode(reply: Reply, request_id: bytes, *, connection: bytes | None, head_only: bool = False) -> bytes:
    """Return the bytes of an answer; `connection` is the value of that header, None leaves it out."""
    lines = [status_line(reply.status)]
    lines += [b"%b: %b\r\n" % header for header in reply.headers]
    lines.append(b"content-length: %d\r\nx-request-id: %b\r\n" % (len(reply.body), request_id))
    if connection:
        lines.append(b"connection: %b\r\n" % connection)
    lines.append(b"\r\n")
    if not head_only:
        lines.append(reply.body)
    return b"".join(lines)
