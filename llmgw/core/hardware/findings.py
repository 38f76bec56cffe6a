"""What was found to be wrong, and what could not be found out: two kinds of news that are never mixed up."""

from enum import StrEnum
from typing import Final

import msgspec

from llmgw.core.units import LaunchId

LITERAL: Final = 500
"""How many characters of a tool's own words are kept."""


class Severity(StrEnum):
    """How much a finding costs."""

    FAIL = "fail"
    """What it is about cannot do its work, or must get none."""
    WARN = "warn"
    INFO = "info"

    @property
    def rank(self) -> int:
        """Order them, the most serious first."""
        return list(Severity).index(self)


class Finding(msgspec.Struct, frozen=True):
    """Something on the node that is wrong or odd."""

    code: str
    """Stable and dotted: `device.unhealthy.ecc`, `port.down`, `pidfile.torn`."""
    text: str
    """What was found, and where, with its numbers."""
    launch_id: LaunchId | None = None
    severity: Severity = Severity.WARN
    about: str = ""
    """The UUID of a card or instance, `mlx5_0:1` for a port, the name of a fabric; empty for the whole node."""
    costs: str = ""
    """What does not work, or works worse, because of it."""
    cure: str = ""
    """What to do."""
    literal: str = ""
    """The words of the driver or tool that it was concluded from, cut to `LITERAL`."""
    excludes: bool = False
    """True when what it is about must get no new work."""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """A fact that could not be had; what it would have been is null in the inventory."""

    code: str
    """`<source>.<why>`; why is one of `missing`, `not-allowed`, `timeout`, `held-up`, `exit`,
    `garbage`, `field-failed`, `unreadable`, `absent`."""
    fact: str
    """What is not known: `gpus`, `gpu 3: temperature`, `port mlx5_0:1: subnet manager`."""
    text: str
    """One sentence for the operator: what is not known, why, and what to do where there is something."""
    literal: str = ""
    """The tool's own words, cut to `LITERAL`."""


def cut(words: str) -> str:
    """Return a tool's words, of bounded length and without blank edges."""
    stripped = words.strip()
    return stripped if len(stripped) <= LITERAL else stripped[: LITERAL - 1] + "…"
