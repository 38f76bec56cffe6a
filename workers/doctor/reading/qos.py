"""Reads how an Ethernet port keeps RoCE from being lost: priorities that pause, trust, and counters of pauses."""

import re
from collections.abc import Mapping

from workers.doctor.reading.words import pairs, whole


def parse_dcb_pfc(text: str) -> tuple[int, ...] | None:
    """Read the priorities that pause from `dcb pfc show dev X`; None when it is no such text."""
    line = re.search(r"^\s*prio-pfc\s+(.+)$", text, re.MULTILINE)
    states = re.findall(r"([0-7]):(on|off)", line[1], re.ASCII) if line else []
    return tuple(int(priority) for priority, state in states if state == "on") if states else None


def parse_mlnx_pfc(text: str) -> tuple[int, ...] | None:
    """Read the priorities that pause from `mlnx_qos -i X`; None when it is no such text."""
    row = re.search(r"PFC configuration:\s*\n\s*priority[\d \t]+\n\s*enabled([01 \t]+)", text, re.ASCII)
    return tuple(at for at, state in enumerate(row[1].split()) if state == "1") if row else None


def parse_mlnx_trust(text: str) -> str | None:
    """Read by what `mlnx_qos -i X` says a packet's priority is told: `dscp` or `pcp`."""
    told = re.search(r"^\s*Priority trust state:\s*(\w+)", text, re.MULTILINE)
    return told[1].lower() if told else None


def parse_pauses(text: str) -> Mapping[str, int]:
    """Read the counters of pause frames from `ethtool -S X`; times and per-cause counts of the same are left out."""
    counters = ((name, whole(value)) for name, value in pairs(text, ":").items())
    return {name: count for name, count in counters if count is not None and _counts_pauses(name)}


def _counts_pauses(name: str) -> bool:
    return "pause" in name and not name.endswith(("_duration", "_transition"))
