"""Who listens where: a free port for an engine, and the proof that what answers on it is that engine."""

import errno
import ipaddress
import socket
import sys
from collections.abc import Container, Iterable
from pathlib import Path
from typing import Final

from workers.engines.probe import reachable

_LISTEN: Final = "0A"
_ROW: Final = 150
"""About as long as a row of `/proc/net/tcp`, so that the kernel makes one at a time."""
_PROC: Final = Path("/proc")
_TCP: Final = _PROC / "net/tcp"
_TCP6: Final = _PROC / "net/tcp6"


def free_port(host: str, ports: tuple[int, int], start: int, taken: Container[int]) -> int | None:
    """Find a port that an engine could listen on now, from the `start`-th of the range on; None when all are taken.

    Raises OSError when nothing can listen on that host at all.
    """
    first, last = ports
    count = last - first + 1
    numbers = (first + (start + step) % count for step in range(count))
    return next((number for number in numbers if number not in taken and _can_listen(host, number)), None)


def _can_listen(host: str, port: int) -> bool:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind, protocol) as attempt:
        attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            attempt.bind(address)
            attempt.listen(1)
        except OSError as error:
            if error.errno in {errno.EADDRINUSE, errno.EACCES}:
                return False
            raise
    return True


def parse_listeners(text: str, port: int, addresses: Container[str]) -> frozenset[str]:
    """Read `/proc/net/tcp`: the inodes of the sockets that listen on a port of these addresses, in its own notation."""
    rows = [line.split() for line in text.splitlines()[1:]]
    listening = [(*row[1].split(":"), row[9]) for row in rows if len(row) > 9 and row[3] == _LISTEN]
    return frozenset(inode for address, number, inode in listening if number == f"{port:04X}" and address in addresses)


def notation(address: str) -> str:
    """Write an IP address as `/proc/net/tcp` does: words of four bytes, each in the machine's own order."""
    packed = ipaddress.ip_address(address.partition("%")[0]).packed
    words = (packed[at : at + 4] for at in range(0, len(packed), 4))
    return b"".join(word[::-1] if sys.byteorder == "little" else word for word in words).hex().upper()


def listeners(host: str, port: int) -> frozenset[str]:
    """Return the inodes of the sockets that would answer at this address."""
    found = {str(entry[4][0]) for entry in socket.getaddrinfo(reachable(host), port, type=socket.SOCK_STREAM)}
    mapped = {f"::ffff:{address}" for address in found if ":" not in address}
    addresses = {notation(address) for address in found | mapped | {"0.0.0.0", "::"}}  # noqa: S104 - as read there
    # A socket for both families answers only where there is none for IPv4 alone.
    tables = (parse_listeners(_listening_part(table), port, addresses) for table in (_TCP, _TCP6))
    return next((inodes for inodes in tables if inodes), frozenset())


def sockets_of(pid: int) -> frozenset[str]:
    """Return the inodes of the sockets that a process holds; empty when it may not be asked."""
    try:
        links = [_target(entry) for entry in (_PROC / str(pid) / "fd").iterdir()]
    except OSError:
        return frozenset()
    return frozenset(link[len("socket:[") : -1] for link in links if link.startswith("socket:["))


def all_held_by(host: str, port: int, members: Iterable[int]) -> bool:
    """Tell whether something answers at an address, and these processes hold every socket that can."""
    unclaimed = set(listeners(host, port))
    if not unclaimed:
        return False
    for pid in members:
        unclaimed -= sockets_of(pid)
        if not unclaimed:
            return True
    return False


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:
        return ""


def _listening_part(path: Path) -> str:
    """Read a table up to its first row that does not listen.

    The kernel lists those that listen first, and takes milliseconds for all the others.
    """
    text = b""
    try:
        with path.open("rb", buffering=0) as table:
            while chunk := table.read(_ROW):
                text += chunk
                *_, last = text.rpartition(b"\n")[0].split(b"\n")
                if last.split()[3:4] not in ([], [b"st"], [_LISTEN.encode()]):
                    break
    except OSError:
        return ""
    return text.decode("ascii", errors="replace")
