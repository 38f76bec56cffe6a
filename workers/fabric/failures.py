"""Why ib_write_bw has no figure, told by its own words: what perftest's sources print to stderr, old and new."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple


class Failure(NamedTuple):
    """One kind of failure."""

    code: str
    text: str
    cure: str


def _words(code: str, pattern: str, text: str, cure: str) -> tuple[re.Pattern[str], Failure]:
    return re.compile(pattern, re.IGNORECASE), Failure(f"bandwidth.{code}", text, cure)


_KNOWN: Final = (
    _words(
        "device-not-found",
        r"IB device \S+ not found|Unable to find the Infiniband|No IB devices found|Did not detect devices",
        "ib_write_bw does not find the adapter, though the kernel has it",
        "load the RDMA modules (ib_uverbs and the adapter's own) and install its user library: `llmgw-node doctor`",
    ),
    _words(
        "port-down",
        r"Port number \d+ state is",
        "the port is not active",
        "see to the cable and the subnet manager: `llmgw-node doctor`",
    ),
    _words(
        "port-not-found",
        r"Unable to query port \d+ attributes",
        "the adapter has no such port",
        "see `llmgw-node inventory` for those that there are",
    ),
    _words(
        "old-tool",
        r"unrecognized option|invalid option|Parser function exited|Invalid Command",
        "this ib_write_bw does not know what it was told",
        "install a newer perftest, or leave out --bind",
    ),
    _words(
        "port-in-use",
        r"Couldn't listen to port",
        "another process listens at the TCP port, or the address to bind is not this node's",
        "name another port by --listen-port on both ends; `ss -ltnp` shows who has it",
    ),
    _words(
        "no-such-host",
        r"Name or service not known|Temporary failure in name resolution|No address associated with hostname",
        "the server's name has no address",
        "give its IP address",
    ),
    _words(
        "no-server",
        r"Couldn't connect to|Unable to (?:open file descriptor|init the socket)",
        "no server answers",
        "start it on the other node first, with the same --listen-port, and let that TCP port through its firewall",
    ),
    _words(
        "version-mismatch",
        r"not compatible with versions|Failed to exchange (?:Page Size|Cache Line Size)",
        "the two ends are of versions that do not understand each other",
        "install the same perftest on both nodes",
    ),
    _words(
        "gid-mismatch",
        r"Incompatibility issue with GID types",
        "the two ends use addresses of different kinds: RoCE v1 and v2, or IPv4 and IPv6",
        "name --gid-index on both ends; `llmgw-node inventory --json` lists each port's addresses",
    ),
    _words(
        "no-lid",
        r"Local lid 0x0 detected",
        "the port has no LID: no subnet manager has set it up",
        "start or repair the subnet manager",
    ),
    _words(
        "memlock",
        r"Couldn't allocate MR|ibv_reg_mr",
        "memory cannot be locked",
        "allow it: `ulimit -l unlimited` in this shell, LimitMEMLOCK=infinity for a unit",
    ),
    _words(
        "path",
        r"Failed to modify QP|Unable to Connect the HCA|Failed to create AH|ibv_create_ah",
        "the two ports do not reach each other",
        "check that both are on one fabric, that each --gid-index names its own RoCE v2 address, and that the MTU is "
        "the same",
    ),
)
_LATER: Final = (
    _words(
        "peer-died",
        r"ethernet_(?:read|write)_(?:keys|data)|Couldn't (?:read|send) (?:remote address|local address|reports)"
        r"|Failed to exchange data between|Unable to (?:read|write) (?:to|from) socket|Couldn't parse line",
        "the other end left in the middle, or is of another version, or was told another --duration or --qps",
        "look at what it said; tell both ends the same",
    ),
    _words(
        "resources",
        r"Couldn't create IB resources|Unable to create QP|Couldn't create (?:QP|CQ)|Couldn't allocate PD",
        "the adapter gives the test no queues",
        "see to locked memory (`ulimit -l`), and to what else uses the adapter",
    ),
    _words(
        "not-allowed",
        r"Permission denied|Operation not permitted|Couldn't get context for",
        "the adapter may not be opened by this user",
        "run as root, or give the user /dev/infiniband/uverbs*",
    ),
    _words(
        "broken-tool",
        r"error while loading shared libraries|cannot execute|Exec format error",
        "ib_write_bw cannot be started",
        "install perftest for this system again",
    ),
)

_STATUS: Final = re.compile(r"Failed status(?:\s+|[^\n]*\()(\d{1,4})\)?:", re.IGNORECASE)
_SYNDROME: Final = re.compile(r"syndrom 0x81\b", re.IGNORECASE)
_RETRIES: Final = Failure(
    "bandwidth.retry-exceeded",
    "the ports found each other, and no data came through",
    "RoCE: let UDP port 4791 through firewalls and give its class a lossless queue (PFC); InfiniBand: check that both "
    "ports are on one fabric and in one partition",
)
_BY_STATUS: Final[Mapping[int, Failure]] = MappingProxyType(
    {
        5: Failure("bandwidth.flushed", "the transfer was broken off", "look at what the other end said"),
        10: Failure(
            "bandwidth.remote-access",
            "the other end refused access to its memory",
            "tell both ends the same --duration and --qps, and install the same perftest",
        ),
        12: _RETRIES,
        13: Failure(
            "bandwidth.not-ready",
            "the other end was not ready to receive",
            "look at its load and at what it said; try again",
        ),
    }
)
_STATUS_ELSE: Final = Failure(
    "bandwidth.completion", "the adapter reported an error for the transfer", "look at `dmesg` on both nodes"
)


def classify(said: str) -> Failure | None:
    """Return what kind of failure the words of ib_write_bw tell, the cause before what follows from it."""
    return _first(_KNOWN, said) or _by_status(said) or _first(_LATER, said)


def _first(known: tuple[tuple[re.Pattern[str], Failure], ...], said: str) -> Failure | None:
    return next((failure for pattern, failure in known if pattern.search(said)), None)


def _by_status(said: str) -> Failure | None:
    found = _STATUS.search(said)
    if found:
        return _BY_STATUS.get(int(found[1]), _STATUS_ELSE)
    return _RETRIES if _SYNDROME.search(said) else None
