"""Reads one mapping of a document, key by key, and gathers what is wrong with it, each with its place."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from types import MappingProxyType
from typing import Final, Generic, TypeVar

from llmgw.core.units import GIB, MIB, Bytes
from llmgw.core.wanted import Problem

T = TypeVar("T")

_AMOUNT: Final = re.compile(r"(\d{1,15})(?:\.(\d{1,3}))? ?(B|KiB|MiB|GiB|TiB)", re.ASCII)
_UNITS: Final = MappingProxyType({"B": 1, "KiB": 1024, "MiB": MIB, "GiB": GIB, "TiB": 1024 * GIB})


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """What a value must be: how it is read, None when it is something else, and how it is asked for."""

    wanted: str
    read: Callable[[object], T | None]


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _amount(value: object) -> Bytes | None:
    """Read bytes: a number of them, or a text such as `1.5GiB`."""
    if not isinstance(value, str):
        number = _whole(value)
        return None if number is None else Bytes(number)
    told = _AMOUNT.fullmatch(value.strip())
    if told is None:
        return None
    thousandths = int(told[1]) * 1000 + int((told[2] or "0").ljust(3, "0"))
    return Bytes(thousandths * _UNITS[told[3]] // 1000)


TEXT: Final = Kind("a text; put quotes around what reads as something else", _text)
WHOLE: Final = Kind("a whole number", _whole)
AMOUNT: Final = Kind("bytes: a whole number, or a text such as `1.5GiB`", _amount)


class Form:
    """One mapping of a document, and the list that gathers what is wrong with it."""

    def __init__(self, raw: object, path: str, keys: tuple[str, ...] | None, problems: list[Problem]) -> None:
        self.path = path
        self.problems = problems
        self.values: Mapping[object, object] = {}
        if isinstance(raw, Mapping):
            self.values = raw
            self._turn_down_unknown(keys)
        else:
            self._wrong(path, raw, "a mapping of keys to values")

    def need(self, key: str, kind: Kind[T], stand_in: T) -> T:
        """Read what may not be left out; `stand_in` takes its place beside the problem."""
        if self.values.get(key) is None:
            self.problems.append(Problem(self.at(key), "key.missing", f"{key} is missing", "add it"))
        return self.take(key, kind, stand_in)

    def take(self, key: str, kind: Kind[T], default: T) -> T:
        """Read what may be left out."""
        told = self.maybe(key, kind)
        return default if told is None else told

    def maybe(self, key: str, kind: Kind[T]) -> T | None:
        """Read what may be left out and then is not known."""
        raw = self.values.get(key)
        return None if raw is None else self._read(self.at(short(key)), raw, kind)

    def texts(self, key: str, default: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Read a list of texts."""
        if self.values.get(key) is None:
            return default
        read = [self._read(at, one, TEXT) for at, one in self.items(key)]
        return tuple(text for text in read if text is not None)

    def pairs(self, key: str) -> Mapping[str, str]:
        """Read a mapping of texts to texts."""
        raw = self.values.get(key)
        below = Form({} if raw is None else raw, self.at(key), None, self.problems)
        return {name: below.take(name, TEXT, "") for name in below.values if isinstance(name, str)}

    def forms(self, key: str, keys: tuple[str, ...]) -> list["Form"]:
        """Read a list of mappings."""
        return [Form(one, at, keys, self.problems) for at, one in self.items(key)]

    def at(self, key: str) -> str:
        """Name the place of a key."""
        return f"{self.path}.{key}" if self.path else key

    def items(self, key: str) -> Iterator[tuple[str, object]]:
        """Yield each entry of a list with its place."""
        raw = self.values.get(key)
        if raw is None:
            return
        if not isinstance(raw, list | tuple):
            self._wrong(self.at(key), raw, "a list")
            return
        for i, one in enumerate(raw):
            yield f"{self.at(key)}[{i}]", one

    def _read(self, at: str, raw: object, kind: Kind[T]) -> T | None:
        told = kind.read(raw)
        if told is None:
            self._wrong(at, raw, kind.wanted)
        return told

    def _wrong(self, at: str, raw: object, wanted: str) -> None:
        self.problems.append(Problem(at, "type.wrong", f"{_named(raw)} stands here", f"write {wanted}"))

    def _turn_down_unknown(self, keys: tuple[str, ...] | None) -> None:
        for key in self.values:
            if not isinstance(key, str):
                self._wrong(self.path, key, "keys as texts; put quotes around them")
            elif keys is not None and key not in keys:
                self.problems.append(_unknown(self.at(short(key)), key, keys))


def _unknown(at: str, key: str, keys: tuple[str, ...]) -> Problem:
    near = get_close_matches(key[:64], keys, n=1)
    cure = f"did you mean `{near[0]}`?" if near else f"take it out; known are {', '.join(keys)}"
    return Problem(at, "key.unknown", f"there is no key `{short(key)}`", cure)


def _named(raw: object) -> str:
    names = {dict: "a mapping", list: "a list", str: "a text", bool: "true or false", type(None): "nothing"}
    return names.get(type(raw), f"`{short(repr(raw))}`")


def short(text: str) -> str:
    """Quote what somebody typed without letting it fill the page or break the line."""
    told = "".join(letter if letter.isprintable() else "�" for letter in text[:64])
    return told if len(text) <= 64 else f"{told}…"
