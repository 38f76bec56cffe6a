"""Reads what ib_write_bw prints: the average in Gb/s, and what it is worth; formats of perftest's sources."""

import math
import re
from typing import Final

import msgspec

from llmgw.core.hardware.bandwidth import BandwidthResult, Role, Verdict
from llmgw.core.hardware.findings import cut
from workers.fabric.failures import Failure, classify
from workers.ports import ToolResult

_UNIT: Final = re.compile(r"BW average\s*\[(Gb|MiB|MB)/sec\]")
_NUMBER: Final = r"[-+]?(?:\d+(?:\.\d*)?(?:e[-+]?\d+)?|nan|inf(?:inity)?)"
_GAP: Final = r"[ \t]+"
_ROW: Final = re.compile(
    rf"^[ \t]*\d+{_GAP}\d+{_GAP}{_NUMBER}{_GAP}({_NUMBER})(?:{_GAP}{_NUMBER})*\s*$", re.MULTILINE | re.IGNORECASE
)
_JSON: Final = re.compile(rf"[\"']?\b(?:BW_average|bw_avg)\b[\"']?\s*:\s*[\"']?({_NUMBER})(?![\w.])", re.IGNORECASE)
"""Of a report by --out_json; some builds leave out the quotes, and nan is no JSON."""
_BANNER: Final = re.compile(r"RDMA_Write BW Test")
"""Printed once a client has come."""
_MIB_IN_GBPS: Final = 8 * 2**20 / 1e9
"""Older builds print MB/sec and divide by 2^20 all the same."""
GOOD, SLOW = 0.90, 0.75
"""Of the port's rate: our own limits."""
_ONE_QUEUE_GBPS: Final = 200.0
"""What one queue pair can be expected to fill."""


def parse(text: str) -> float | None:
    """Return the average of the last row in Gb/s; None for no table, and for what is no positive number.

    The peak before it is 0.00 in a test of fixed duration. A report in JSON says no unit: it is Gb/s, as was asked for.
    """
    unit = _UNIT.search(text)
    rows = _ROW.findall(text, unit.end()) if unit else []
    if unit and rows:
        return _positive(rows[-1], 1.0 if unit[1] == "Gb" else _MIB_IN_GBPS)
    found = _JSON.findall(text)
    return _positive(found[-1], 1.0) if found else None


def _positive(word: str, factor: float) -> float | None:
    gbps = float(word) * factor
    return gbps if math.isfinite(gbps) and gbps > 0 else None


def judged(asked: BandwidthResult, answer: ToolResult) -> BandwidthResult:
    """Fill in what a run came to; `asked` holds what it was about, with the rate that is expected."""
    gbps = parse(answer.out) if answer.ok else None
    if gbps is None:
        return _failed(asked, answer)
    ratio = gbps / asked.expected_gbps if asked.expected_gbps else None
    code, verdict = _worth(ratio)
    of = f", {ratio:.0%} of the port's {asked.expected_gbps:g}" if ratio is not None else ""
    cure = "" if verdict is Verdict.GOOD else _cure(asked, ratio)
    figures = {"gbps": round(gbps, 2), "ratio": ratio if ratio is None else round(ratio, 4)}
    return msgspec.structs.replace(asked, code=code, verdict=verdict, text=f"{gbps:.1f} Gb/s{of}", cure=cure, **figures)


def _worth(ratio: float | None) -> tuple[str, Verdict]:
    if ratio is None:
        return "bandwidth.unrated", Verdict.UNRATED
    if ratio >= GOOD:
        return "bandwidth.good", Verdict.GOOD
    return ("bandwidth.slow", Verdict.SLOW) if ratio >= SLOW else ("bandwidth.low", Verdict.FAILED)


def _cure(asked: BandwidthResult, ratio: float | None) -> str:
    if ratio is None:
        return "compare it with the other ports of the fabric"
    if (asked.expected_gbps or 0) > _ONE_QUEUE_GBPS:
        return (
            "try --qps 4 on both ends; then see to PCIe (generation, width), NUMA, ACS and IOMMU: `llmgw-node doctor`"
        )
    return "see to PCIe (generation, width), NUMA, ACS and IOMMU of both nodes: `llmgw-node doctor`"


def failed(asked: BandwidthResult, failure: Failure, literal: str = "") -> BandwidthResult:
    """Say why there is no figure."""
    return msgspec.structs.replace(
        asked,
        code=failure.code,
        verdict=Verdict.FAILED,
        text=failure.text,
        cure=failure.cure,
        literal=cut(literal),
    )


def _failed(asked: BandwidthResult, answer: ToolResult) -> BandwidthResult:
    said = "\n".join(part for part in (answer.err.strip(), answer.out.strip()) if part)
    if answer.problem.startswith("no answer"):
        return failed(asked, classify(answer.err) or _late(asked, answer), said)
    if answer.problem:
        return failed(asked, Failure("bandwidth.not-started", f"ib_write_bw: {answer.problem}", "try again"), said)
    known = None if answer.ok else classify(said)
    return failed(asked, known or _odd(answer), said)


def _late(asked: BandwidthResult, answer: ToolResult) -> Failure:
    """Tell a server to which nobody came from a test that hangs; what the tool had not yet printed is lost."""
    if asked.role is Role.SERVER and not _BANNER.search(answer.out):
        cure = "start the client while the server waits (--wait), and let the TCP port through this node's firewall"
        return Failure("bandwidth.no-client", f"no client has been measured: {answer.problem}", cure)
    text = f"the test did not end: {answer.problem}"
    return Failure("bandwidth.hung", text, "see to the ports of both nodes: `llmgw-node doctor`")


def _odd(answer: ToolResult) -> Failure:
    ended = "ended well" if answer.ok else f"ended with {answer.code}"
    text = f"ib_write_bw {ended} and printed no figure that can be believed"
    return Failure("bandwidth.no-figure", text, "look at what it said, and at the other end")
