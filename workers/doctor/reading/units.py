"""Reads what systemd says of the worker's unit, and what the kernel really allows the process that it started."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final

from llmgw.core.hardware.findings import cut
from workers import tools
from workers.doctor.entry import Patient
from workers.doctor.reading.procfs import Limit, parse_limits
from workers.doctor.reading.words import pairs, whole

_OF_SYSTEMD: Final[Mapping[str, str]] = MappingProxyType(
    {
        "Max locked memory": "LimitMEMLOCK",
        "Max open files": "LimitNOFILE",
        "Max processes": "LimitNPROC",
        "Max stack size": "LimitSTACK",
    }
)
"""The kernel's name of a limit → systemd's, which with `Soft` behind it is the one that holds."""
_ASKED: Final = ("LoadState", "MainPID", *(f"{name}{kind}" for name in _OF_SYSTEMD.values() for kind in ("", "Soft")))
_LOCK: Final = "worker.lock"
_WORKER: Final = re.compile(r"llmgw-node|workers\.(?:cli|app)|llmgw\.local")
"""By this the pid in the lock is known to be no later process of that number."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits that engines get, and whose they are."""

    whose: str
    """In words, for a sentence: `llmgw-node.service (pid 812)`."""
    counts: bool
    """False where they are of this process, and not of the unit that runs the worker."""
    why_not: str = ""
    """Why those of the unit are not known."""
    pid: int | None = None
    """The worker's, where it runs."""
    limits: Mapping[str, Limit] = field(default_factory=dict)


def limits(patient: Patient) -> Limits:
    """Return the limits of the unit or process that is the worker; where none is found, those of this process."""
    return patient.once("unit limits", lambda: _look(patient))


def _look(patient: Patient) -> Limits:
    result = tools.ask(patient.machine, patient.settings, "systemctl", "show", patient.service, "-p", ",".join(_ASKED))
    told = pairs(result.out, "=") if result.ok else {}
    for whose, pid in ((patient.service, whole(told.get("MainPID"))), ("the worker", _holder(patient))):
        running = _of_process(patient, str(pid)) if pid else {}
        if running:
            return Limits(f"{whose} (pid {pid})", counts=True, pid=pid, limits=running)
    if told.get("LoadState") == "loaded":
        return Limits(f"{patient.service} as it would start", counts=True, limits=_of_unit(told))
    said = result.problem or next(iter(result.err.splitlines()), f"ended with {result.code}")
    why = f"there is no {patient.service}" if result.ok else f"systemctl: {cut(said)}"
    return Limits("this process", counts=False, why_not=why, limits=_of_process(patient, "self"))


def _holder(patient: Patient) -> int | None:
    """Return the worker that holds the state folder: one that runs in no unit, or in one of another name."""
    pid = whole(patient.machine.read_text(patient.settings.state / _LOCK))
    command = patient.machine.read_text(Path("/proc") / str(pid) / "cmdline") if pid else None
    return pid if command and _WORKER.search(command) else None


def _of_process(patient: Patient, pid: str) -> dict[str, Limit]:
    return parse_limits(patient.machine.read_text(Path("/proc") / pid / "limits") or "")


def _of_unit(told: Mapping[str, str]) -> dict[str, Limit]:
    words = ((name, told.get(f"{key}Soft", told.get(key)), told.get(key)) for name, key in _OF_SYSTEMD.items())
    return parse_limits("\n".join(f"{name}  {soft}  {hard}" for name, soft, hard in words))
