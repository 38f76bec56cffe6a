"""Reads what a disk says of its own health, from `smartctl --json`."""

from dataclasses import dataclass

import msgspec


class _Status(msgspec.Struct):
    passed: bool | None = None


class _Nvme(msgspec.Struct):
    critical_warning: int | None = None
    percentage_used: int | None = None
    media_errors: int | None = None


class _Document(msgspec.Struct):
    smart_status: _Status | None = None
    nvme_smart_health_information_log: _Nvme | None = None


@dataclass(frozen=True, slots=True)
class Health:
    """How a disk is; what it does not tell is None."""

    passed: bool | None
    critical_warning: int | None
    percentage_used: int | None
    """Of the writing that its makers foresaw; may go beyond 100."""
    media_errors: int | None


def parse(text: str) -> Health | None:
    """Read `smartctl --json -H -A`; None when it tells nothing of the disk's health."""
    try:
        told = msgspec.json.decode(text.encode(), type=_Document)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None
    status, nvme = told.smart_status or _Status(), told.nvme_smart_health_information_log or _Nvme()
    health = Health(status.passed, nvme.critical_warning, nvme.percentage_used, nvme.media_errors)
    return None if health == Health(None, None, None, None) else health
