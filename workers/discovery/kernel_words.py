"""What the kernel has said since boot, line by line, by whichever tool may read it."""

import re
from dataclasses import dataclass
from typing import Final

from llmgw.core.hardware.findings import cut
from workers import tools
from workers.ports import Machine
from workers.settings import NodeSettings

# Of the journal, lines are stamped with the seconds since boot, as by dmesg; it may be long, and the last lines count.
_ASKED: Final = (("dmesg",), ("journalctl", "-k", "-b", "0", "-n", "50000", "-o", "short-monotonic", "--no-pager"))


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


def read(machine: Machine, settings: NodeSettings) -> KernelWords:
    """Read this boot's log; one that is empty may not be read, since every kernel says something."""
    reasons = []
    for tool, *arguments in _ASKED:
        result = tools.ask(machine, settings, tool, *arguments)
        if result.ok and result.out.strip():
            return KernelWords(tuple(result.out.splitlines()))
        reasons.append(f"{tool}: {cut(result.err) or result.problem or 'nothing'}")
    return KernelWords(unknown_because="; ".join(reasons))
