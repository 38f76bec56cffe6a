"""Where the node keeps things: which file system holds a folder, and whether it answers at all."""

from dataclasses import dataclass
from pathlib import Path

from llmgw.core.hardware.findings import cut
from workers import tools
from workers.doctor.entry import Patient
from workers.doctor.reading import mounts
from workers.doctor.reading.mounts import Mount
from workers.ports import Disk


@dataclass(frozen=True, slots=True)
class Place:
    """A folder and what it is on."""

    path: Path
    mount: Mount | None
    """None where the kernel does not tell."""
    silence: str = ""
    """Why its server did not answer; it must then not be touched, since whoever does may never come back."""
    disk: Disk | None = None
    """None where it may not be touched, or cannot be read."""


def place(patient: Patient, path: Path) -> Place:
    """Look at a folder; one that is on another machine is first asked for by a program that can be given up."""
    return patient.once(f"place {path}", lambda: _look(patient, path))


def _look(patient: Patient, path: Path) -> Place:
    mount = mounts.holding(mounts.parse(patient.machine.read_text(mounts.FILE) or ""), path)
    silence = _silence(patient, mount.point) if mount and mount.is_network else ""
    return Place(path, mount, silence, None if silence else patient.machine.disk(path))


def _silence(patient: Patient, point: str) -> str:
    result = tools.ask(patient.machine, patient.settings, "stat", "-f", "--", point)
    if result.ok:
        return ""
    return f"stat: {result.problem or cut(result.err) or 'failed'}"
