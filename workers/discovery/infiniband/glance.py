"""A glance at the states of all ports, cheap enough for each heartbeat: a difference is worth a full look."""

from pathlib import Path
from typing import Final

from workers.discovery.infiniband.ports import CLASS
from workers.ports import Machine

_TELLING: Final = ("state", "phys_state", "rate", "lid", "sm_lid")
"""What decides whether a port carries traffic, how fast, and who manages it; counters change all the time."""


def states(machine: Machine) -> tuple[tuple[str, str | None], ...]:
    """Return each file that tells and what it says, None where it says nothing; equal while nothing has changed."""
    return tuple(
        (str(path), machine.read_text(path))
        for hca in sorted(machine.names_in(CLASS))
        for number in sorted(machine.names_in(CLASS / hca / "ports"))
        for path in _files(CLASS / hca / "ports" / number)
    )


def _files(port: Path) -> tuple[Path, ...]:
    return tuple(port / name for name in _TELLING)
