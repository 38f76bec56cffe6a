"""Reads what the kernel has logged of cards since boot: Xid and SXid errors, and cards that fell off the bus."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from llmgw.core.hardware.findings import Problem, cut
from workers.discovery import kernel_words
from workers.discovery.kernel_words import KernelWords
from workers.discovery.pci import canonical
from workers.ports import Machine
from workers.settings import NodeSettings


class Kind(StrEnum):
    """What a line of the kernel's log is about."""

    XID = "xid"
    LOST = "lost"
    """A card has fallen off the bus; may come without an Xid."""
    SXID = "sxid"
    LOADED = "driver-loaded"
    """What was logged of cards before is of a driver that is gone."""


@dataclass(frozen=True, slots=True)
class KernelEvent:
    """One line worth knowing of."""

    kind: Kind
    literal: str
    pci_address: str | None = None
    """Of the card or switch that it names."""
    number: int | None = None
    """Of an Xid or SXid."""
    is_fatal: bool = False
    """For an SXid, and an Xid of NVLink 5."""
    seconds: float | None = None
    """Since boot, where the line says."""


class XidClass(StrEnum):
    """What an Xid asks for; NVIDIA's catalogue of Xid errors."""

    APPLICATION = "application"
    """The program's fault: nothing is wrong with the card."""
    WARN = "warn"
    RESET = "reset"
    NODE = "node"
    """The card is off the bus: power-cycle."""


_NVLINK_5: Final = range(144, 151)
_BY_CLASS: Final = MappingProxyType(
    {
        XidClass.APPLICATION: (13, 31, 32, 43, 45, 68, 69, 94, 137),
        XidClass.WARN: (63, 92, 121, 154, 168, 172, *_NVLINK_5),
        XidClass.RESET: (48, 64, 74, 95, 109, 110, 119, 120, 136, 140, 143, 151, 155, 156, 157, 158, 167, 171),
        XidClass.NODE: (79,),
    }
)
_CLASS_OF: Final = MappingProxyType({number: kind for kind, numbers in _BY_CLASS.items() for number in numbers})
MEANS: Final = MappingProxyType(
    {
        48: "double-bit ECC error",
        63: "a row of memory was remapped, or a page retired",
        64: "remapping a row of memory failed",
        74: "NVLink error",
        79: "fell off the bus",
        92: "many corrected memory errors",
        94: "contained memory error",
        95: "uncontained memory error",
        109: "context switch timed out",
        110: "security fault",
        119: "the card's own processor (GSP) does not answer",
        120: "error of the card's own processor (GSP)",
        121: "error on the link to the CPU (C2C)",
        136: "link training failed",
        140: "unrecovered ECC error",
        143: "initialisation failed",
        **dict.fromkeys(_NVLINK_5, "NVLink error"),
        154: "the recovery that it needs has changed",
    }
)

_ADDRESS: Final = r"(?P<pci>(?:PCI:)?[0-9a-fA-F]{1,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?)"
_PATTERNS: Final = (
    (
        Kind.SXID,
        re.compile(
            rf"nvidia-nvswitch\S*: SXid \({_ADDRESS}\): (?P<number>\d+), (?P<fatal>Fatal|Non-fatal)", re.IGNORECASE
        ),
    ),
    (
        Kind.XID,
        re.compile(
            rf"NVRM: (?:GPU at [^:]*: )?Xid \({_ADDRESS}\).*?: (?P<number>\d+),(?:.*?\b(?P<fatal>Fatal|Non-?fatal)\b)?"
        ),
    ),
    (Kind.LOST, re.compile(rf"NVRM: GPU {_ADDRESS}: GPU has fallen off the bus")),
    (Kind.LOADED, re.compile(r"NVRM: loading NVIDIA UNIX")),
)
_STAMPS: Final = (re.compile(r"^\[\s*(\d+\.\d+)\]"), re.compile(r"^\d+,\d+,(\d+),[^;]*;"))
_MICROSECONDS: Final = 1e6
_MOST: Final = 2000
_LONGEST: Final = 4096
"""Of a line; the kernel's own are shorter."""


def xid_class(number: int, *, is_fatal: bool = False) -> XidClass:
    """Return what an Xid asks for; one that is not in the catalogue is worth a look, one of NVLink 5 may be fatal."""
    if is_fatal and number in _NVLINK_5:
        return XidClass.RESET
    return _CLASS_OF.get(number, XidClass.WARN)


def read(machine: Machine, settings: NodeSettings) -> tuple[tuple[KernelEvent, ...], tuple[Problem, ...]]:
    """Read this boot's log; what may not be read is one problem."""
    words = kernel_words.read(machine, settings)
    return ((), (_unreadable(words),)) if words.unknown_because else (events(words.lines), ())


def _unreadable(words: KernelWords) -> Problem:
    if "no answer" in words.unknown_because or "held up" in words.unknown_because:
        code, why = "kernel-log.timeout", "neither dmesg nor journalctl answers in time"
    else:
        code = "kernel-log.not-allowed"
        why = "let the worker's user read it (`sysctl kernel.dmesg_restrict=0`, or the group systemd-journal)"
    text = f"the kernel's log cannot be read, so Xid errors are not known: {why}"
    return Problem(code=code, fact="kernel log", text=text, literal=cut(words.unknown_because))


def events(lines: Iterable[str]) -> tuple[KernelEvent, ...]:
    """Read lines of dmesg, of dmesg -T, of the journal and of /dev/kmsg; the last ones where there are very many."""
    return tuple(_events(lines))[-_MOST:]


def _events(lines: Iterable[str]) -> Iterator[KernelEvent]:
    for line in (line[:_LONGEST] for line in lines):
        for kind, pattern in _PATTERNS:
            if found := pattern.search(line):
                yield _event(kind, line, found)
                break


def _event(kind: Kind, line: str, found: "re.Match[str]") -> KernelEvent:
    told = found.groupdict()
    fatal = (told.get("fatal") or "").lower()
    return KernelEvent(
        kind=kind,
        literal=cut(line),
        pci_address=canonical(told["pci"]) if told.get("pci") else None,
        number=int(told["number"]) if told.get("number") else None,
        is_fatal=bool(fatal) and not fatal.startswith("non"),
        seconds=_seconds(line),
    )


def _seconds(line: str) -> float | None:
    for pattern in _STAMPS:
        if found := pattern.match(line):
            stamp = float(found[1])
            return stamp if "." in found[1] else stamp / _MICROSECONDS
    return None


def since_the_driver(told: tuple[KernelEvent, ...]) -> tuple[KernelEvent, ...]:
    """Return those after the driver was last loaded: a reload, as a reboot, ends what was wrong before."""
    loads = [at for at, event in enumerate(told) if event.kind is Kind.LOADED]
    return told[loads[-1] + 1 :] if loads else told
