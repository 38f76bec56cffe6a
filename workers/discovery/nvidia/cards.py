"""What one way of asking for the cards comes to."""

from dataclasses import dataclass

from llmgw.core.hardware.findings import Problem
from llmgw.core.hardware.gpus import Driver, Gpu


@dataclass(frozen=True, slots=True)
class Cards:
    """All cards that were told of, and what was not told."""

    driver: Driver | None = None
    """None only where there is no driver at all."""
    gpus: tuple[Gpu, ...] = ()
    """By index; one that is lost is among them, as far as it is known."""
    problems: tuple[Problem, ...] = ()
    is_known: bool = True
    """False when it is not known which cards there are: a mismatch, a hang, a lost cgroup. What was known holds on, as
    stale. True with no cards means that there really are none: no device, no driver."""
