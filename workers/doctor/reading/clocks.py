"""Reads what chrony, systemd and ntpd say of this machine's clock."""

import re
from dataclasses import dataclass
from typing import Final

from workers.doctor.reading.words import number, pairs

_UNITS_S: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0}
_YES_NO: Final = {"yes": True, "no": False}


@dataclass(frozen=True, slots=True)
class Clock:
    """How right the clock is, by what one program says."""

    told_by: str
    synchronised: bool | None = None
    offset_s: float | None = None
    """By how much it is wrong, without sign; None where it is not told."""


def parse_chrony(text: str) -> Clock:
    """Read `chronyc tracking`."""
    told = pairs(text, ":")
    leap = told.get("Leap status", "").lower()
    offset = number(told.get("System time", "").partition(" ")[0])
    return Clock("chrony", None if not leap else not leap.startswith("not"), None if offset is None else abs(offset))


def parse_timedatectl(text: str) -> Clock:
    """Read `timedatectl show`, or what it prints without an argument."""
    told = {**pairs(text, ":"), **pairs(text, "=")}
    names = ("NTPSynchronized", "System clock synchronized", "NTP synchronized")
    return Clock("systemd", next((_YES_NO.get(told[name]) for name in names if name in told), None))


def parse_timesync_offset(text: str) -> float | None:
    """Read the offset from `timedatectl timesync-status`: `Offset: -1.234ms`."""
    told = re.search(
        r"^\s*Offset:\s*[+-]?(?:(\d{1,4})min\s*)?([\d.]{1,20})(us|ms|s)\s*$", text, re.MULTILINE | re.ASCII
    )
    value = number(told[2]) if told else None
    if told is None or value is None:
        return None
    return int(told[1] or 0) * _UNITS_S["min"] + value * _UNITS_S[told[3]]


def parse_ntp(text: str) -> Clock:
    """Read `ntpq -c rv`; its offset is in milliseconds."""
    leap = re.search(r"leap_(none|alarm|add_sec|del_sec)|leap=(\d\d)", text, re.ASCII)
    offset = re.search(r"\boffset=([+-]?[\d.]{1,20})", text, re.ASCII)
    value = number(offset[1]) if offset else None
    is_alarm = leap is not None and not {"alarm", "11"}.isdisjoint(leap.groups())
    return Clock("ntpd", not is_alarm if leap else None, None if value is None else abs(value) / 1000)
