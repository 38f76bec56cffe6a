"""One request of a client: what was read of it, and what of its head an engine may see."""

import os
import re
from itertools import count
from typing import Final

from llmgw.core.routing import Key
from llmgw.core.units import Seconds
from llmgw.router.replies import Reply

# Never handed on: what holds for one connection only, what the router writes itself, and what is secret.
KEPT_HERE: Final = frozenset(
    {
        b"authorization",
        b"connection",
        b"content-length",
        b"cookie",
        b"expect",
        b"host",
        b"keep-alive",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"x-request-id",
    }
)
_SAFE_ID: Final = re.compile(rb"[A-Za-z0-9._:-]{1,128}")
_IDS_OF_THIS_PROCESS: Final = os.urandom(8).hex()
_numbers = count(1)


class Request:
    """A request while it is read, and until it is answered."""

    __slots__ = (
        "began_at",
        "body",
        "complete",
        "expects_continue",
        "handed_on",
        "head_bytes",
        "head_only",
        "id",
        "keep_alive",
        "kept",
        "key",
        "old",
        "on_wire",
        "path",
        "query",
        "received",
        "refusal",
        "status",
        "target",
        "verb",
    )

    def __init__(self) -> None:
        self.verb = b""
        self.target = b""
        self.path = ""
        self.query = b""
        self.kept: dict[bytes, bytes] = {}
        """Headers that the router reads itself, by lower-case name."""
        self.handed_on: list[tuple[bytes, bytes]] = []
        """The other headers, for the engine."""
        self.head_bytes = 0
        self.on_wire = 0
        """Bytes that came in while it was not complete."""
        self.received = 0
        """Bytes of the body so far."""
        self.body: list[bytes] = []
        self.id = b""
        self.began_at = Seconds(0.0)
        self.status = 0
        """What the client was told."""
        self.old = False
        """True for HTTP/1.0, which knows no chunks and closes unless told otherwise."""
        self.head_only = False
        self.keep_alive = True
        self.expects_continue = False
        self.complete = False
        self.key: Key | None = None
        self.refusal: Reply | None = None
        """Set as soon as it is clear that no engine will see this request."""

    def add_header(self, name: bytes, value: bytes) -> None:
        """Sort one header into what is read here and what is handed on."""
        lower = name.lower()
        self.head_bytes += len(name) + len(value)
        if lower in KEPT_HERE:
            self.kept[lower] = value
        else:
            self.handed_on.append((lower, value))

    def close_head(self, verb: bytes, version: str, *, keep_alive: bool) -> None:
        """Settle what follows from the whole head."""
        self.verb = verb
        self.old = version == "1.0"
        self.head_only = verb == b"HEAD"
        self.keep_alive = keep_alive
        self.expects_continue = not self.old and self.kept.get(b"expect", b"").lower() == b"100-continue"
        self.id = request_id(self.kept.get(b"x-request-id"))

    def without_offer(self) -> bytes:
        """Return the head again, without the offer to change the protocol."""
        headers = [*self.handed_on, *((name, value) for name, value in self.kept.items() if name != b"upgrade")]
        lines = b"".join(b"%b: %b\r\n" % header for header in headers)
        return b"%b %b HTTP/%b\r\n%b\r\n" % (self.verb, self.target, b"1.0" if self.old else b"1.1", lines)

    def for_engine(self) -> bytes:
        """Return the header lines that the engine gets, those that the router adds not among them."""
        named = {token.strip() for token in self.kept.get(b"connection", b"").lower().split(b",")}
        return b"".join(b"%b: %b\r\n" % (name, value) for name, value in self.handed_on if name not in named)


def request_id(offered: bytes | None) -> bytes:
    """Keep the client's own id when it is harmless in a header and a log; else make one."""
    if offered and _SAFE_ID.fullmatch(offered):
        return offered
    return f"req-{_IDS_OF_THIS_PROCESS}-{next(_numbers):x}".encode()
