"""Which launches this node keeps: their ports and their processes, by the state folder."""

from dataclasses import dataclass
from pathlib import Path

from llmgw.core.world import State
from workers.doctor.entry import Patient
from workers.supervisor.journal import Journal, Unusable, parse_journal, parse_pid_file


@dataclass(frozen=True, slots=True)
class Kept:
    """One launch."""

    launch_id: str
    state: State | None = None
    """None where its journal is torn."""
    port: int | None = None
    pid: int | None = None
    """The engine's, which leads a session of its own."""


def kept(patient: Patient) -> tuple[Kept, ...]:
    """Return the launches in the state folder; what is torn there is left out."""
    folder = patient.settings.state / "launches"
    return tuple(_read(patient, folder / name) for name in patient.machine.names_in(folder))


def _read(patient: Patient, folder: Path) -> Kept:
    journal = parse_journal((patient.machine.read_text(folder / "launch.json") or "").encode(), folder.name)
    engine = parse_pid_file((patient.machine.read_text(folder / "pid.json") or "").encode(), folder.name)
    pid = None if isinstance(engine, Unusable) else engine.pid
    return (
        Kept(folder.name, journal.state, journal.port, pid)
        if isinstance(journal, Journal)
        else Kept(folder.name, pid=pid)
    )
