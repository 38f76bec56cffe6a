"""A model as people write it, in YAML or as an API's body, to the value that the core knows, and back."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar

from llmgw.core.units import GIB, MIB, Bytes, ModelName
from llmgw.core.wanted import Model, Problem, Profile, Source

T = TypeVar("T")

CPU_PROFILE: Final = Profile(name="cpu", engine="llamacpp")
"""What a model without `profiles` runs by."""

MODEL_KEYS: Final = ("name", "aliases", "source", "replicas", "priority", "labels", "profiles")
SOURCE_KEYS: Final = tuple(field.name for field in fields(Source))
PROFILE_KEYS: Final = tuple(field.name for field in fields(Profile))

_AMOUNT: Final = re.compile(r"(\d{1,15})(?:\.(\d{1,3}))? ?(B|KiB|MiB|GiB|TiB)", re.ASCII)
_UNITS: Final = MappingProxyType({"B": 1, "KiB": 1024, "MiB": MIB, "GiB": GIB, "TiB": 1024 * GIB})


def model_from_document(raw: object, path: str = "") -> Model | tuple[Problem, ...]:
    """Read one model; whatever is wrong comes back as problems, each with its place below `path`."""
    problems: list[Problem] = []
    model = _model(_Form(raw, path, MODEL_KEYS, problems))
    return tuple(problems) or model


def catalog_from_document(raw: object) -> tuple[Model, ...] | tuple[Problem, ...]:
    """Read `models: [ … ]`; the problems of all models come together."""
    problems: list[Problem] = []
    document = _Form(raw, "", ("models",), problems)
    if not problems and document.values.get("models") is None:
        problems.append(
            Problem("models", "key.missing", "models is missing", "write `models: []` for a catalog of none")
        )
    models = tuple(_model(form) for form in document.forms("models", MODEL_KEYS))
    return tuple(problems) or models


def model_to_document(model: Model) -> dict[str, Any]:
    """Write a model as a document that reads back as the same model; what stands at its default is left out."""
    return {
        "name": model.name,
        **_said(aliases=list(model.aliases)),
        "source": _source_to_document(model.source),
        "replicas": model.replicas,
        **_said(priority=model.priority, labels=dict(model.labels)),
        "profiles": [_profile_to_document(profile) for profile in model.profiles],
    }


def _source_to_document(source: Source) -> str | dict[str, Any]:
    known = _said(size=source.size, sha256=source.sha256)
    return {"uri": source.uri, **known} if known else source.uri


def _profile_to_document(profile: Profile) -> dict[str, Any]:
    always = ("name", "engine", "device_classes")
    told = {key: getattr(profile, key) for key in PROFILE_KEYS if key in always or _differs(profile, key)}
    return {key: list(value) if isinstance(value, tuple) else value for key, value in told.items()}


def _differs(profile: Profile, key: str) -> bool:
    return bool(getattr(profile, key) != getattr(CPU_PROFILE, key))


def _said(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value}


@dataclass(frozen=True, slots=True)
class _Kind(Generic[T]):
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


TEXT: Final = _Kind("a text; put quotes around what reads as something else", _text)
WHOLE: Final = _Kind("a whole number", _whole)
AMOUNT: Final = _Kind("bytes: a whole number, or a text such as `1.5GiB`", _amount)


class _Form:
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

    def need(self, key: str, kind: _Kind[T], stand_in: T) -> T:
        """Read what may not be left out; `stand_in` takes its place beside the problem."""
        if self.values.get(key) is None:
            self.problems.append(Problem(self.at(key), "key.missing", f"{key} is missing", "add it"))
        return self.take(key, kind, stand_in)

    def take(self, key: str, kind: _Kind[T], default: T) -> T:
        """Read what may be left out."""
        told = self.maybe(key, kind)
        return default if told is None else told

    def maybe(self, key: str, kind: _Kind[T]) -> T | None:
        """Read what may be left out and then is not known."""
        raw = self.values.get(key)
        return None if raw is None else self._read(self.at(_short(key)), raw, kind)

    def texts(self, key: str, default: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Read a list of texts."""
        if self.values.get(key) is None:
            return default
        read = [self._read(at, one, TEXT) for at, one in self._items(key)]
        return tuple(text for text in read if text is not None)

    def pairs(self, key: str) -> Mapping[str, str]:
        """Read a mapping of texts to texts."""
        raw = self.values.get(key)
        below = _Form({} if raw is None else raw, self.at(key), None, self.problems)
        return {name: below.take(name, TEXT, "") for name in below.values if isinstance(name, str)}

    def forms(self, key: str, keys: tuple[str, ...]) -> list["_Form"]:
        """Read a list of mappings."""
        return [_Form(one, at, keys, self.problems) for at, one in self._items(key)]

    def at(self, key: str) -> str:
        """Name the place of a key."""
        return f"{self.path}.{key}" if self.path else key

    def _items(self, key: str) -> Iterator[tuple[str, object]]:
        raw = self.values.get(key)
        if raw is None:
            return
        if not isinstance(raw, list | tuple):
            self._wrong(self.at(key), raw, "a list")
            return
        for i, one in enumerate(raw):
            yield f"{self.at(key)}[{i}]", one

    def _read(self, at: str, raw: object, kind: _Kind[T]) -> T | None:
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
                self.problems.append(_unknown(self.at(_short(key)), key, keys))


def _model(form: _Form) -> Model:
    return Model(
        name=ModelName(form.need("name", TEXT, "")),
        source=_source(form),
        profiles=_profiles(form),
        replicas=form.take("replicas", WHOLE, 1),
        aliases=form.texts("aliases"),
        priority=form.take("priority", WHOLE, 0),
        labels=MappingProxyType(dict(form.pairs("labels"))),
    )


def _source(model: _Form) -> Source:
    raw = model.values.get("source")
    if raw is None or isinstance(raw, str):
        return Source(model.need("source", TEXT, ""))
    form = _Form(raw, model.at("source"), SOURCE_KEYS, model.problems)
    if not isinstance(raw, Mapping):
        return Source("")
    return Source(form.need("uri", TEXT, ""), form.maybe("size", AMOUNT), form.maybe("sha256", TEXT))


def _profiles(model: _Form) -> tuple[Profile, ...]:
    if model.values.get("profiles") is None:
        return (CPU_PROFILE,)
    return tuple(_profile(form) for form in model.forms("profiles", PROFILE_KEYS))


def _profile(form: _Form) -> Profile:
    return Profile(
        name=form.need("name", TEXT, ""),
        engine=form.need("engine", TEXT, ""),
        device_classes=form.texts("device_classes", CPU_PROFILE.device_classes),
        devices=form.take("devices", WHOLE, 1),
        tensor_parallel=form.take("tensor_parallel", WHOLE, 1),
        pipeline_parallel=form.take("pipeline_parallel", WHOLE, 1),
        nodes=form.take("nodes", WHOLE, 1),
        quantization=form.maybe("quantization", TEXT),
        context_length=form.maybe("context_length", WHOLE),
        memory=form.maybe("memory", AMOUNT),
        arguments=form.texts("arguments"),
        fabric=form.maybe("fabric", TEXT),
    )


def _unknown(at: str, key: str, keys: tuple[str, ...]) -> Problem:
    near = get_close_matches(key[:64], keys, n=1)
    cure = f"did you mean `{near[0]}`?" if near else f"take it out; known are {', '.join(keys)}"
    return Problem(at, "key.unknown", f"there is no key `{_short(key)}`", cure)


def _named(raw: object) -> str:
    names = {dict: "a mapping", list: "a list", str: "a text", bool: "true or false", type(None): "nothing"}
    return names.get(type(raw), f"`{_short(repr(raw))}`")


def _short(text: str) -> str:
    told = "".join(letter if letter.isprintable() else "�" for letter in text[:64])
    return told if len(text) <= 64 else f"{told}…"
