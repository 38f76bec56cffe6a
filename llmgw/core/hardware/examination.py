"""What the doctor found on a node at one moment: every check's outcome, what it costs and how to cure it."""

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

import msgspec

from llmgw.core.units import Seconds


class Cure(msgspec.Struct, frozen=True, kw_only=True):
    """What cures one outcome."""

    text: str = ""
    command: str = ""
    """Filled in and ready for a shell; empty where no command cures it."""
    undo: str = ""
    safe: bool = False
    """Whether `doctor --fix` may run it: it loses nothing, stops nothing, and may be done while engines serve."""


class Examined(msgspec.Struct, frozen=True, kw_only=True):
    """What one check came to for one thing."""

    check: str
    """Its id, the anchor of its paragraph in the reference: `gpu.row-remap`."""
    group: str
    title: str
    verdict: str
    """`fail`, `warn`, `unknown`, `pass`, `not-applicable`."""
    text: str
    about: str = ""
    """The UUID of a card, `mlx5_0:1`, an interface; empty for the whole node."""
    costs: str = ""
    cure: Cure = Cure()
    evidence: Mapping[str, Any] = {}
    """The facts that it was concluded from."""


def alike(outcomes: Iterable[Examined]) -> list[tuple[Examined, ...]]:
    """Put neighbours together that one check found and one cure mends: ten ports without a cable are one fault."""
    by = groupby(outcomes, key=lambda outcome: (outcome.verdict, outcome.check, outcome.costs, outcome.cure))
    return [tuple(group) for _, group in by]


class Examination(msgspec.Struct, frozen=True, kw_only=True):
    """One run of the doctor."""

    at: Seconds
    took_s: float = 0.0
    outcomes: tuple[Examined, ...] = ()
    """The most serious first."""
    environments: Mapping[str, Mapping[str, str]] = {}
    """Fabric → the NCCL environment that a shard on it would get here."""
    refused: Mapping[str, str] = {}
    """Fabric → why a shard on it would get none."""

    def count(self, verdict: str) -> int:
        """Return how many outcomes came to a verdict."""
        return sum(outcome.verdict == verdict for outcome in self.outcomes)
