"""The facts of one card, or of a part of it, as they are read from its tree, with the problems in reading them."""

from collections.abc import Callable
from typing import Any, Final
from xml.etree.ElementTree import Element

from llmgw.core.hardware.findings import Problem, cut
from workers.discovery.nvidia import words
from workers.discovery.nvidia.smi_tree import children, text_at
from workers.discovery.nvidia.words import Failed

Reader = Callable[[str], Any]
Rows = tuple[tuple[str, Reader, tuple[str, ...]], ...]
"""Field, how its text is read, and where it stands: XML of each generation first, then the text form."""

FB: Final = "fb_memory_usage"
UNCORRECTED: Final = (
    "sram_uncorrectable",
    "sram_uncorrectable_parity",
    "sram_uncorrectable_secded",
    "sram_uncorrectable_sec_ded",
    "dram_uncorrectable",
)
CORRECTED: Final = ("sram_correctable", "dram_correctable")


class Sheet:
    """The facts of one card, or of a part of it, and the problems in reading them."""

    def __init__(self, element: Element, called: str) -> None:
        self.element = element
        self.called = called
        self.problems: list[Problem] = []
        self.failed: list[str] = []
        """Names of the fields that the driver failed to tell."""

    def all(self, rows: Rows) -> dict[str, Any]:
        """Read many fields."""
        return {field: self.one(field, read, *paths) for field, read, paths in rows}

    def one(self, field: str, read: Reader, *paths: str) -> Any:
        """Read one field; None where there is nothing of the kind, and where it failed, with a problem."""
        word = words.read(text_at(self.element, *paths))
        told = word if word is None or isinstance(word, Failed) else read(word)
        if not isinstance(told, Failed):
            return told
        self.failed.append(field)
        self.problems.append(
            problem_of(f"{self.called}: {field.rsplit('_', 1)[0] if field.endswith(_UNITS) else field}", told.words)
        )
        return None


_UNITS: Final = ("_bytes", "_celsius", "_watts", "_mhz", "_percent")


def problem_of(fact: str, said: str) -> Problem:
    """Say that the driver could not tell one fact."""
    if words.NOT_ALLOWED.search(said):
        text = f"{fact}: the driver does not tell it to this user or container"
        return Problem(code="nvidia-smi.not-allowed", fact=fact, text=text, literal=cut(said))
    text = f"{fact}: the driver failed to tell it"
    return Problem(code="nvidia-smi.field-failed", fact=fact, text=text, literal=cut(said))


def total(element: Element, path: str, names: tuple[str, ...], old: str) -> int | None:
    """Add up the counters that this driver has; where none is a number the answer is not known, which is not 0."""
    block = element.find(path)
    if block is None:
        return None
    counts = [told for name in names if (told := count(text_at(block, name))) is not None]
    if not counts and block.find(old) is not None:
        whole = count(text_at(block, f"{old}/total"))
        parts = [told for each in children(block, old) if (told := count(each.text)) is not None]
        counts = parts if whole is None else [whole]
    return sum(counts) if counts else None


def count(text: str | None) -> int | None:
    word = words.read(text)
    told = words.whole(word) if isinstance(word, str) and not isinstance(word, Failed) else None
    return told if isinstance(told, int) else None
