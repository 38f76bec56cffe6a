"""The facts of one card, or of a part of it, as they are read from its tree, with the problems in reading them."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final
from xml.etree.ElementTree import Element

from llmgw.core.hardware.findings import Problem, cut
from workers.discovery.nvidia import words
from workers.discovery.nvidia.smi_tree import children, text_at
from workers.discovery.nvidia.words import Failed, Word

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
_UNITS: Final = ("_bytes", "_celsius", "_watts", "_mhz", "_percent")


class Sheet:
    """The facts of one card, or of a part of it, and the problems in reading them."""

    def __init__(self, element: Element, called: str) -> None:
        self.element = element
        self.called = called
        self.problems: list[Problem] = []
        self.failed: dict[str, str] = {}
        """Fields that the driver failed to tell anybody, and what it said instead."""

    def all(self, rows: Rows) -> dict[str, Any]:
        """Read many fields."""
        return {field: self.one(field, read, *paths) for field, read, paths in rows}

    def one(self, field: str, read: Reader, *paths: str) -> Any:
        """Read one field; None where there is nothing of the kind, and where it failed, with a problem."""
        word = self._word(paths)
        told = word if word is None or isinstance(word, Failed) else read(word)
        if not isinstance(told, Failed):
            return told
        if isinstance(word, Failed) and not words.NOT_ALLOWED.search(word.words):
            self.failed[field] = word.words
        self.note(field.rsplit("_", 1)[0] if field.endswith(_UNITS) else field, told)
        return None

    def note(self, fact: str, failure: Failed) -> None:
        """Note that a fact could not be told."""
        self.problems.append(problem_of(f"{self.called}: {fact}", failure.words))

    def total(self, fact: str, path: str, names: tuple[str, ...], old: str) -> int | None:
        """Add up the counters that this driver has; where none is a number the answer is not known, which is not 0.

        Where one failed, the others still tell of errors, but not that there are none.
        """
        said = [word for name in names if (word := words.read(text_at(self.element, f"{path}/{name}"))) is not None]
        failed = next((word for word in said if isinstance(word, Failed)), None)
        counts = list(_counts(said)) or list(_by_place(self.element, f"{path}/{old}"))
        if failed is not None:
            self.note(fact, failed)
        known = sum(counts) if counts else None
        return known or (known if failed is None else None)

    def _word(self, paths: tuple[str, ...]) -> Word:
        """Return what the first of these paths says where a value stands; drivers leave old ones as N/A."""
        said = [words.read(text_at(self.element, path)) for path in paths]
        value = next((word for word in said if isinstance(word, str)), None)
        return value if value is not None else next((word for word in said if word is not None), None)


def problem_of(fact: str, said: str) -> Problem:
    """Say that the driver could not tell one fact."""
    if words.NOT_ALLOWED.search(said):
        text = f"{fact}: the driver does not tell it to this user or container"
        return Problem(code="nvidia-smi.not-allowed", fact=fact, text=text, literal=cut(said))
    text = f"{fact}: the driver failed to tell it"
    return Problem(code="nvidia-smi.field-failed", fact=fact, text=text, literal=cut(said))


def _counts(said: Iterable[Word]) -> Iterator[int]:
    return (told for word in said if isinstance(word, str) and (told := words.count(word)) is not None)


def _by_place(element: Element, path: str) -> Iterator[int]:
    """Read the counters of boards that count by place, with a total below."""
    total = words.count(text_at(element, f"{path}/total"))
    return iter([total]) if total is not None else _counts(words.read(each.text) for each in children(element, path))
