"""Reads what ib_write_bw prints: the average in Gb/s, or why there is none; formats of perftest's sources."""

import math
import re
from typing import Final, NamedTuple

import msgspec

from llmgw.core.hardware.findings import cut
from workers.ports import ToolResult

_UNIT: Final = re.compile(r"BW average\s*\[(Gb|MiB|MB)/sec\]")
_ROW: Final = re.compile(r"^\s*(\d+)\s+(\d+)\s+(\S+)\s+(\S+)\s+(\S+)\s*$", re.MULTILINE)
_MIB_IN_GBPS: Final = 8 * 2**20 / 1e9
"""Older builds print MB/sec and divide by 2^20 all the same."""
GOOD, SLOW = 0.90, 0.75
"""Of the port's rate: our own limits."""


class Failure(NamedTuple):
    """Why a test has no result."""

    code: str
    pattern: re.Pattern[str]
    text: str


_FAILURES: Final = (
    Failure(
        "bandwidth.no-device",
        re.compile(r"IB device \S+ not found|Unable to find the Infiniband"),
        "there is no such adapter; see `llmgw-node inventory`",
    ),
    Failure(
        "bandwidth.port-down",
        re.compile(r"Port number \d+ state is"),
        "the port is not active; see `llmgw-node doctor`",
    ),
    Failure(
        "bandwidth.port-in-use",
        re.compile(r"Couldn't listen to port"),
        "the TCP port is in use; name another by --tcp-port",
    ),
    Failure(
        "bandwidth.no-server",
        re.compile(r"Couldn't connect to|Unable to (?:open file descriptor|init the socket)"),
        "no server answers: start it on the other node, and open its TCP port",
    ),
    Failure(
        "bandwidth.gid",
        re.compile(r"Incompatibility issue with GID types"),
        "the two ends use addresses of different kinds: name --gid-index on both",
    ),
    Failure(
        "bandwidth.no-path",
        re.compile(r"Failed to modify QP|Unable to Connect the HCA"),
        "the two ports do not reach each other: another fabric, a wrong GID index, or another MTU",
    ),
    Failure(
        "bandwidth.retries",
        re.compile(r"Failed status\D*12\b|syndrom 0x81"),
        "no path for the data: PFC, a firewall, or another fabric",
    ),
    Failure(
        "bandwidth.memlock",
        re.compile(r"Couldn't allocate MR|Couldn't create IB resources"),
        "memory cannot be locked: `ulimit -l unlimited`",
    ),
    Failure(
        "bandwidth.peer-died",
        re.compile(r"ethernet_read_keys|Couldn't read remote address"),
        "the other end died, or is of another version",
    ),
)


class BandwidthResult(msgspec.Struct, frozen=True, kw_only=True):
    """What one test came to."""

    code: str
    """`bandwidth.good`, `bandwidth.slow`, `bandwidth.low`, or why there is no figure."""
    gbps: float | None = None
    """The average, in 10⁹ bits per second."""
    expected_gbps: float | None = None
    """The rate of the port."""
    text: str = ""
    literal: str = ""


def parse(text: str) -> float | None:
    """Return the average of the last row in Gb/s; None for no table, and for what is no positive number."""
    unit = _UNIT.search(text)
    rows = _ROW.findall(text[unit.end() :]) if unit else []
    if unit is None or not rows:
        return None
    try:
        average = float(rows[-1][3])
    except ValueError:
        return None
    if not math.isfinite(average) or average <= 0:
        return None
    return average if unit[1] == "Gb" else average * _MIB_IN_GBPS


def result(answer: ToolResult, expected_gbps: float | None) -> BandwidthResult:
    """Judge what a run printed against the rate of the port."""
    said = f"{answer.out}\n{answer.err}"
    gbps = parse(answer.out) if answer.ok else None
    if gbps is None:
        return _failed(answer, said)
    share = gbps / expected_gbps if expected_gbps else None
    word = "good" if share is None or share >= GOOD else "slow" if share >= SLOW else "low"
    of = f" of {expected_gbps:g}" if expected_gbps else ""
    return BandwidthResult(
        code=f"bandwidth.{word}", gbps=round(gbps, 2), expected_gbps=expected_gbps, text=f"{gbps:.1f}{of} Gb/s"
    )


def _failed(answer: ToolResult, said: str) -> BandwidthResult:
    if answer.problem == "not found":
        return BandwidthResult(code="bandwidth.missing", text="ib_write_bw is not installed: install perftest")
    if answer.problem:
        return BandwidthResult(code="bandwidth.timeout", text=f"the test gave {answer.problem}", literal=cut(said))
    known = next((failure for failure in _FAILURES if failure.pattern.search(said)), None)
    if known is not None:
        return BandwidthResult(code=known.code, text=known.text, literal=cut(said))
    text = f"ib_write_bw ended with {answer.code} and no figure that can be believed"
    return BandwidthResult(code="bandwidth.no-figure", text=text, literal=cut(said))
