"""What the doctor keeps between two runs: counters, which are judged by their growth."""

from pathlib import Path
from typing import Final

import msgspec
import structlog

from llmgw.core.units import Seconds
from workers.ports import Machine
from workers.supervisor.files import write_atomically

log = structlog.get_logger(__name__)
FILE: Final = "doctor.json"


class Kept(msgspec.Struct, frozen=True):
    """Counters at the last run; those of another boot have begun anew."""

    at: Seconds
    boot_id: str
    counters: dict[str, int]


def read(machine: Machine, state: Path) -> Kept | None:
    """Return what the last run left; None for nothing, for what is torn, and for another boot's."""
    try:
        kept = msgspec.json.decode(machine.read_text(state / FILE) or "", type=Kept)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None
    return kept if kept.boot_id == machine.boot_id() else None


def write(machine: Machine, state: Path, at: Seconds, counters: dict[str, int]) -> None:
    """Leave the counters for the next run, where there is a state folder that may be written."""
    if not state.is_dir():
        return
    try:
        write_atomically(state / FILE, msgspec.json.encode(Kept(at, machine.boot_id(), counters)), durable=False)
    except OSError as error:
        log.debug("counters not kept", error=str(error))
