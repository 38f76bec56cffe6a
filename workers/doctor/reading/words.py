"""Numbers and names in plain text, and the sentence for a tool that did not tell them."""

import math
import re
from collections.abc import Sequence
from typing import Final

from llmgw.core.hardware.findings import cut
from workers.doctor.entry import Outcome, unknown
from workers.ports import ToolResult

_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,20}")
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,20}(\.[0-9]{0,20})?([eE][+-]?[0-9]{1,3})?")


def whole(text: str | None) -> int | None:
    """Read a whole number; None for anything else."""
    stripped = (text or "").strip()
    return int(stripped) if _WHOLE.fullmatch(stripped) else None


def number(text: str | None) -> float | None:
    """Read a finite number; None for anything else."""
    stripped = (text or "").strip()
    value = float(stripped) if _NUMBER.fullmatch(stripped) else math.nan
    return value if math.isfinite(value) else None


def pairs(text: str, separator: str) -> dict[str, str]:
    """Read lines such as `Leap status     : Normal`; of a name that is there twice, the first holds."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, is_there, value = line.partition(separator)
        if is_there:
            found.setdefault(name.strip(), value.strip())
    return found


def listed(names: Sequence[str], most: int = 4) -> str:
    """Say several names, the first few by name: `a, b and 3 more`."""
    rest = len(names) - most
    return ", ".join(names) if rest <= 0 else f"{', '.join(names[:most])} and {rest} more"


def unanswered(fact: str, tool: str, result: ToolResult) -> Outcome:
    """Say that a tool did not tell a fact, and why."""
    said = cut(result.err or result.out)
    why = result.problem or (f"ended with {result.code}" if result.code else "told it in no form that is known")
    return unknown(f"{fact} is not known: {tool} {_as_clause(why)}", literal=said)


def _as_clause(problem: str) -> str:
    if problem == "not found":
        return "is not installed"
    if problem.startswith("not allowed"):
        return problem.replace("not allowed", "may not be run", 1)
    return f"gave {problem}" if problem.startswith("no answer") else problem
