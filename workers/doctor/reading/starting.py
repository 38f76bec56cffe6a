"""What became of starting CUDA on this machine."""

import sys
from typing import Final

import msgspec

from llmgw.core.hardware.findings import cut
from workers import tools
from workers.doctor.entry import Patient
from workers.ports import ToolResult

PROGRAM: Final = (sys.executable, "-m", "workers.doctor.cuda")


class Started(msgspec.Struct, frozen=True):
    """What the child printed."""

    library: str | None = None
    """Why libcuda could not be loaded; None where it could."""
    code: int | None = None
    """CUresult of cuInit, or of the call after it that failed."""
    name: str = ""
    """`CUDA_ERROR_SYSTEM_NOT_READY`."""
    count: int | None = None
    """How many devices CUDA offers."""
    version: int | None = None
    """1000 × major + 10 × minor."""


class NotAsked(msgspec.Struct, frozen=True):
    """Nothing is known of CUDA."""

    why: str
    hangs: bool = False
    """CUDA was begun and did not come back."""


def cuda(patient: Patient) -> Started | NotAsked:
    """Start CUDA, once in a run of the doctor."""
    return patient.once("cuda", lambda: _ask(patient))


def _ask(patient: Patient) -> Started | NotAsked:
    return parse(patient.machine.output(PROGRAM, tools.limit("cuda", patient.settings)))


def parse(answer: ToolResult) -> Started | NotAsked:
    """Read the last line: a library may print what it likes before."""
    if answer.problem:
        return NotAsked(answer.problem, hangs=answer.problem.startswith(("no answer", "held up")))
    if answer.code is not None and answer.code < 0:
        return NotAsked(f"CUDA crashed whoever started it (signal {-answer.code})", hangs=True)
    line = next(iter(answer.out.strip().splitlines()[-1:]), "")
    try:
        return msgspec.json.decode(line, type=Started)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return NotAsked(f"what started it printed no answer: {cut(answer.err or answer.out) or 'nothing'}")
