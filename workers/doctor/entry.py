"""What one check of the doctor is: an entry with its reading, its rule, what it costs and how to cure it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Final, TypeVar, cast

from llmgw.core.hardware.findings import Severity
from llmgw.core.units import Seconds
from llmgw.core.wire import Inventory
from workers.ports import Machine
from workers.settings import NodeSettings

T = TypeVar("T")


class Group(StrEnum):
    """Where a check stands on the page; in the order in which they are looked at."""

    DRIVER = "driver"
    GPUS = "gpus"
    MIG = "mig"
    TOPOLOGY = "topology"
    NVSWITCH = "nvswitch"
    IMEX = "imex"
    PORTS = "ports"
    FABRICS = "fabrics"
    ROCE = "roce"
    RDMA = "rdma"
    KERNEL = "kernel"
    LIMITS = "limits"
    NETWORK = "network"
    DISK = "disk"
    TIME = "time"
    SOFTWARE = "software"


class Verdict(StrEnum):
    """What a check came to, the most serious first."""

    FAIL = "fail"
    WARN = "warn"
    UNKNOWN = "unknown"
    """It could not be checked, and why is said; never taken for a pass."""
    PASS = "pass"  # noqa: S105 – a verdict
    NOT_APPLICABLE = "not-applicable"
    """There is nothing of the kind here."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One judgement, of one thing."""

    verdict: Verdict
    text: str
    """What was seen, with its numbers: `GPU 3: row remap pending`."""
    about: str = ""
    """The UUID of a card, `mlx5_0:1`, an interface; empty for the whole node."""
    evidence: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
    """The facts that it was concluded from, as JSON."""
    fix_arguments: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """What the check's fix needs filled in: `{index}`; each is fit for a shell as it stands."""

    def cured_by(self, **arguments: str) -> "Outcome":
        """Return it with what the check's fix needs filled in."""
        return replace(self, fix_arguments=MappingProxyType(arguments))


@dataclass(frozen=True, slots=True)
class Fix:
    """What cures it."""

    text: str
    """What to do, in words; holds without the command too."""
    command: str = ""
    """A command line for a shell, with `{names}` of `Outcome.fix_arguments`; empty where no command cures it."""
    undo: str = ""
    """The command that takes it back, where there is one."""
    safe: bool = False
    """True only where it loses nothing, stops nothing and can be done while engines serve."""


@dataclass(frozen=True, slots=True)
class Patient:
    """The node as the checks see it."""

    machine: Machine
    settings: NodeSettings
    inventory: Inventory
    now: Seconds
    service: str = "llmgw-node.service"
    """The unit that runs the worker, whose limits count."""
    earlier: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """Counters at the last run on this boot, for those that are judged by their growth."""
    earlier_at: Seconds | None = None
    counters: dict[str, int] = field(default_factory=dict)
    """What this run leaves for the next one."""
    answers: dict[str, object] = field(default_factory=dict, repr=False)
    """What was asked in this run, for checks that need the same."""

    def growth(self, name: str, value: int) -> int | None:
        """Note a counter and return by how much it rose since the last run; None at the first, or when it fell."""
        self.counters[name] = value
        before = self.earlier.get(name)
        return None if before is None or value < before else value - before

    def once(self, name: str, ask: Callable[[], T]) -> T:
        """Return what `ask` answers; it is asked once a run, whichever check needs it first."""
        if name not in self.answers:
            self.answers[name] = ask()
        return cast("T", self.answers[name])


@dataclass(frozen=True, slots=True)
class Check:
    """One entry of the catalogue."""

    id: str
    """Stable, dotted, for ever: `gpu.row-remap`."""
    group: Group
    title: str
    """What holds when it passes: `No row of memory waits to be remapped`."""
    reads: str
    """Where it is read: `NVML remapped rows, else nvidia-smi -q`."""
    rule: str
    """When it passes, warns and fails, in a sentence."""
    costs: str
    """What does not work, or works worse, when it does not pass."""
    fix: Fix
    judge: Callable[[Patient], Iterable[Outcome]]
    """One outcome for each thing looked at; a check that has nothing to look at says so by `NOT_APPLICABLE`."""
    worst: Severity = Severity.FAIL
    """The most serious that it can come to."""

    @property
    def anchor(self) -> str:
        """Return where it is described: `docs/reference/doctor.md#gpu.row-remap`."""
        return f"{PAGE}#{self.id}"


PAGE: Final = "docs/reference/doctor.md"


def passed(text: str, about: str = "", **evidence: object) -> Outcome:
    """Say that it is well."""
    return Outcome(Verdict.PASS, text, about, MappingProxyType(evidence))


def warned(text: str, about: str = "", **evidence: object) -> Outcome:
    """Say that it is not well, and that work goes on."""
    return Outcome(Verdict.WARN, text, about, MappingProxyType(evidence))


def failed(text: str, about: str = "", **evidence: object) -> Outcome:
    """Say that it is broken."""
    return Outcome(Verdict.FAIL, text, about, MappingProxyType(evidence))


def unknown(text: str, about: str = "", **evidence: object) -> Outcome:
    """Say that it could not be checked, and why."""
    return Outcome(Verdict.UNKNOWN, text, about, MappingProxyType(evidence))


def not_here(text: str) -> Outcome:
    """Say that there is nothing of the kind."""
    return Outcome(Verdict.NOT_APPLICABLE, text)
