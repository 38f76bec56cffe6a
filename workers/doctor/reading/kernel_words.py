"""What the kernel has said since boot, line by line."""

import re
from dataclasses import dataclass
from typing import Final

from llmgw.core.hardware.findings import cut
from workers import tools
from workers.doctor.entry import Patient

_ASKED: Final = (("dmesg",), ("journalctl", "-k", "-b", "-o", "short-iso", "--no-pager", "-q"))


@dataclass(frozen=True, slots=True)
class KernelWords:
    """The kernel's log."""

    lines: tuple[str, ...] = ()
    unknown_because: str = ""
    """Why there are none; empty where there are."""

    def matching(self, pattern: str) -> tuple[str, ...]:
        """Return the lines in which a pattern is found."""
        wanted = re.compile(pattern)
        return tuple(line for line in self.lines if wanted.search(line))

    def last(self, pattern: str) -> str:
        """Return the last line in which a pattern is found, of bounded length; empty where it is in none."""
        return cut(next(iter(self.matching(pattern)[-1:]), ""))


def kernel_words(patient: Patient) -> KernelWords:
    """Return the kernel's log, by whichever tool may read it."""
    return patient.once("kernel words", lambda: _ask(patient))


def _ask(patient: Patient) -> KernelWords:
    reasons = []
    for tool, *arguments in _ASKED:
        result = tools.ask(patient.machine, patient.settings, tool, *arguments)
        if result.ok and result.out.strip():
            return KernelWords(tuple(result.out.splitlines()))
        reasons.append(f"{tool}: {result.problem or cut(result.err) or 'nothing'}")
    return KernelWords(unknown_because="; ".join(reasons))
