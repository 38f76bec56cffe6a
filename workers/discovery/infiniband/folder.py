"""Reads the files of one port, or of its adapter, and keeps what cannot be read as problems of that port."""

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

from llmgw.core.hardware.findings import Problem, cut
from workers.ports import FileText, Machine

_UNUSED: Final = frozenset({"Invalid argument", "Operation not supported"})
"""How the kernel answers for an entry that is not set, and for a counter that the driver has not."""
_NAMED: Final = 3
"""Of files that fail alike, so many are named, and the others counted: a port has hundreds."""


class Folder:
    """The files of one port, or of its adapter."""

    def __init__(self, machine: Machine, path: Path, called: str) -> None:
        """Take where they are, and the name of the port that is told in problems."""
        self._machine = machine
        self._path = path
        self._called = called
        self._unread: list[tuple[str, str]] = []

    def text(self, name: str, *, needed: bool = False) -> str | None:
        """Return what a file holds; one that is needed and cannot be read is a problem."""
        told = self._machine.read(self._path / name)
        if told.text is None and (needed or not _is_unused(told)):
            self._unread.append((name, told.problem))
        word = (told.text or "").strip()
        if needed and told.text is not None and not word:
            self.garbled(name, "nothing")
        return word if word and not word.startswith("N/A") else None

    def whole(self, name: str) -> int | None:
        """Return a number in a file, decimal or hexadecimal."""
        word = self.text(name)
        try:
            return None if word is None else int(word, 0)
        except ValueError:
            return None

    def names(self, name: str) -> tuple[str, ...]:
        """Return the names of the files in a folder of it."""
        return self._machine.names_in(self._path / name)

    def numbers(self, name: str) -> list[str]:
        """Return the names of the entries of a table, in order."""
        return sorted((entry for entry in self.names(name) if re.fullmatch("[0-9]{1,9}", entry)), key=int)

    def garbled(self, name: str, said: str) -> None:
        """Note that a file holds what it should not."""
        self._unread.append((name, f"it says {cut(said)}"))

    def problems(self) -> Iterator[Problem]:
        """Tell what could not be read; files of one table that fail alike are told together."""
        alike: dict[tuple[str, str], list[str]] = {}
        for name, why in self._unread:
            table = str(PurePosixPath(name).parent)
            alike.setdefault((name if table == "." else table, why), []).append(name)
        for (table, why), names in alike.items():
            yield self._problem(names[0] if len(names) == 1 else table, names, why)

    def _problem(self, fact: str, names: list[str], why: str) -> Problem:
        more = len(names) - _NAMED
        told = ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
        text = f"port {self._called}: {told} cannot be read: {why}"
        return Problem(code="sysfs.unreadable", fact=f"port {self._called}: {fact}", text=text, literal=cut(why))


def _is_unused(told: FileText) -> bool:
    return told.is_missing or told.problem in _UNUSED
