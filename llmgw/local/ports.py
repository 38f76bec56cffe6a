"""Ports to listen on: whether one can be had, and which else."""

import errno
import socket
from contextlib import closing, suppress
from typing import Final

from llmgw.local.port_holder import who_holds
from llmgw.local.state import Refused

LOOPBACK: Final = "127.0.0.1"
_TRIED: Final = 50


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach what listens there."""
    return host in {"localhost", "::1"} or host.startswith("127.")


def why_not(host: str, port: int) -> OSError | None:
    """Return what the kernel says to somebody who wants to listen there."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with closing(socket.socket(family, kind, protocol)) as wanted:
            wanted.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            wanted.bind(address)
            wanted.listen(1)
    except OSError as no:
        return no
    return None


def check(host: str, port: int, option: str) -> Refused | None:
    """Say why this port cannot be had, who has it, and which other could."""
    no = why_not(host, port)
    if no is None:
        return None
    if no.errno != errno.EADDRINUSE:
        return Refused("port.unusable", f"cannot listen on {host}:{port}: {no.strerror}", f"give another with {option}")
    holder = who_holds(port)
    return Refused(
        "port.taken",
        f"port {port} on {host} is taken by {holder or 'another process (its owner is not told)'}",
        f"stop that, or use the next free one: {option} {next_free(host, port)}",
    )


def next_free(host: str, port: int) -> int:
    """Return the next port above that can be had; any, when those are all taken."""
    above = range(port + 1, min(port + _TRIED, 65536))
    return next((candidate for candidate in above if why_not(host, candidate) is None), None) or any_free()


def any_free(wanted: int = 0) -> int:
    """Return a free loopback port: the wanted one if it can be had."""
    for port in (wanted, 0):
        with suppress(OSError), closing(socket.socket()) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((LOOPBACK, port))
            found: int = probe.getsockname()[1]
            return found
    raise OSError(errno.EADDRINUSE, "no port is free")
