"""The rules that a declared model must keep, whichever door it came through."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from llmgw.core.engines import ENGINES
from llmgw.core.engines.needs import NEEDS
from llmgw.core.units import GIB, gib
from llmgw.core.validation.shape import shape_problems
from llmgw.core.validation.sources import source_problems
from llmgw.core.wanted import CPU_CLASS, Model, Problem, Profile

MOST_REPLICAS: Final = 1000
MOST_ALIASES: Final = 50
MOST_PROFILES: Final = 20
MOST_DEVICES: Final = 1024
MOST_CONTEXT: Final = 16 * 1024**2
MOST_MEMORY: Final = 4096 * GIB
HIGHEST_PRIORITY: Final = 1_000_000
MOST_ARGUMENTS: Final = 200
LONGEST_ARGUMENT: Final = 4096

_NAME: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,62}")
_LABEL: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._/-]{0,62}")
_LABEL_VALUE: Final = re.compile(r"[a-zA-Z0-9._/-]{0,63}")
_CLASS: Final = re.compile(r"[a-z0-9][a-z0-9.+-]{0,63}")
_QUANTIZATION: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,31}")
_NAME_CURE: Final = "use letters, digits and `.` `_` `-`, beginning with a letter or digit, at most 63 characters"


def validate(model: Model, others: Collection[str] = (), *, planning: bool = False) -> tuple[Problem, ...]:
    """Find all that is wrong with a model; `others` are the names and aliases that other models go by.

    When `planning`, engines may be named that can be planned for and not be started yet.
    """
    startable = () if planning else _startable(model)
    return (*_names(model, frozenset(others)), *(problem for rule in _RULES for problem in rule(model)), *startable)


def validate_catalog(
    models: Sequence[Model], others: Collection[str] = (), *, planning: bool = False
) -> tuple[Problem, ...]:
    """Find all that is wrong with models that are declared together, each by its place: `models[2].replicas`.

    `others` are the names and aliases that models which stay as they are go by; `planning` as with one model.
    """
    taken = set(others)
    problems: list[Problem] = []
    for i, model in enumerate(models):
        found = validate(model, taken, planning=planning)
        problems += [replace(problem, field=f"models[{i}].{problem.field}") for problem in found]
        taken.update(_goes_by(model))
    return tuple(problems)


def _goes_by(model: Model) -> tuple[str, ...]:
    return (model.name, *model.aliases)


def _names(model: Model, others: frozenset[str]) -> Iterator[Problem]:
    seen: set[str] = set()
    fields = ["name", *(f"aliases[{i}]" for i in range(len(model.aliases)))]
    for field, name in zip(fields, _goes_by(model), strict=True):
        if not _NAME.fullmatch(name):
            yield Problem(field, "name.form", f"`{_short(name)}` cannot be served as a name", _NAME_CURE)
        if name in others:
            yield Problem(field, "name.taken", f"`{_short(name)}` is another model's name or alias", "choose another")
        if name in seen:
            yield Problem(field, "name.twice", f"`{_short(name)}` is here already", "leave it out once")
        seen.add(name)
    if len(model.aliases) > MOST_ALIASES:
        yield _beyond("aliases", "aliases", len(model.aliases), 0, MOST_ALIASES)


def _source(model: Model) -> Iterator[Problem]:
    return source_problems(model.source)


def _counts(model: Model) -> Iterator[Problem]:
    yield from _within("replicas", model.replicas, 0, MOST_REPLICAS)
    yield from _within("priority", model.priority, -HIGHEST_PRIORITY, HIGHEST_PRIORITY)


def _labels(model: Model) -> Iterator[Problem]:
    for key, value in model.labels.items():
        if not (_LABEL.fullmatch(key) and _LABEL_VALUE.fullmatch(value)):
            told = _short(f"{key}={value}")
            yield Problem(f"labels.{_short(key)}", "label.form", f"`{told}` is no label", _NAME_CURE)


def _profiles(model: Model) -> Iterator[Problem]:
    if not model.profiles:
        cure = "add one, or leave `profiles` out to run llamacpp on CPUs"
        yield Problem("profiles", "profiles.none", "there is no profile to run the model by", cure)
    if len(model.profiles) > MOST_PROFILES:
        yield _beyond("profiles", "profiles", len(model.profiles), 1, MOST_PROFILES)
    times = Counter(profile.name for profile in model.profiles)
    for i, profile in enumerate(model.profiles):
        at = f"profiles[{i}]"
        if times[profile.name] > 1:
            message = f"{times[profile.name]} profiles are named `{_short(profile.name)}`"
            yield Problem(f"{at}.name", "profile.twice", message, "give each its own name")
        by_shape = shape_problems(profile, model.facts.architecture) if model.facts else ()
        for rule in (*(rule(profile) for rule in _PROFILE_RULES), by_shape):
            for p in rule:
                yield Problem(f"{at}.{p.field}", p.code, p.message, p.cure)


def _profile_words(profile: Profile) -> Iterator[Problem]:
    if not _NAME.fullmatch(profile.name):
        yield Problem("name", "name.form", f"`{_short(profile.name)}` cannot name a profile", _NAME_CURE)
    if profile.engine not in NEEDS:
        known = ", ".join(sorted(ENGINES))
        message = f"there is no engine `{_short(profile.engine)}`"
        yield Problem("engine", "engine.unknown", message, f"use one of: {known}")
    if profile.quantization is not None and not _QUANTIZATION.fullmatch(profile.quantization):
        message = f"`{_short(profile.quantization)}` is no quantisation"
        yield Problem("quantization", "quantization.form", message, "write it as the engine does: `fp8`, `awq`")


def _profile_classes(profile: Profile) -> Iterator[Problem]:
    if not profile.device_classes:
        yield Problem(
            "device_classes", "class.none", "no device class is named", f"name one, for example `{CPU_CLASS}`"
        )
    for i, name in enumerate(profile.device_classes):
        field = f"device_classes[{i}]"
        if not _CLASS.fullmatch(name):
            cure = "write it as the node's page does: `cpu`, `h100-80g`, `a100-80g-mig-3g.40gb`"
            yield Problem(field, "class.form", f"`{_short(name)}` is no device class", cure)
        if name in profile.device_classes[:i]:
            yield Problem(field, "class.twice", f"`{_short(name)}` is here already", "leave it out once")


def _profile_numbers(profile: Profile) -> Iterator[Problem]:
    for field in ("devices", "tensor_parallel", "pipeline_parallel", "nodes"):
        yield from _within(field, getattr(profile, field), 1, MOST_DEVICES)
    if profile.context_length is not None:
        yield from _within("context_length", profile.context_length, 1, MOST_CONTEXT)
    if profile.memory is not None and not 0 < profile.memory <= MOST_MEMORY:
        message = f"memory is {gib(profile.memory)} for one device"
        yield Problem("memory", "memory.range", message, f"use more than 0 and at most {gib(MOST_MEMORY)}")


def _profile_arithmetic(profile: Profile) -> Iterator[Problem]:
    sizes = (profile.devices, profile.tensor_parallel, profile.pipeline_parallel, profile.nodes)
    if min(sizes) < 1:
        return  # told already, and nothing adds up with it
    devices, tensor, pipeline, nodes = sizes
    if tensor * pipeline != devices:
        message = (
            f"tensor_parallel {tensor} × pipeline_parallel {pipeline} is {tensor * pipeline}, but devices is {devices}"
        )
        yield Problem(
            "devices", "parallel.product", message, f"set devices to {tensor * pipeline}, or change the split"
        )
    if devices % nodes:
        message = f"{devices} devices cannot be shared evenly by {nodes} nodes"
        yield Problem("nodes", "parallel.nodes", message, "use a number of nodes that divides devices")


def _profile_fabric(profile: Profile) -> Iterator[Problem]:
    if profile.fabric is None:
        return
    if not _NAME.fullmatch(profile.fabric):
        yield Problem("fabric", "name.form", f"`{_short(profile.fabric)}` cannot name a fabric", _NAME_CURE)
    elif profile.nodes == 1:
        message = f"fabric is `{profile.fabric}`, but the replica runs on one node"
        yield Problem("fabric", "fabric.unneeded", message, "leave fabric out, or set nodes")


def _profile_whole(profile: Profile) -> Iterator[Problem]:
    """A CPU and a MIG instance are each used whole and alone."""
    alone = [name for name in profile.device_classes if name == CPU_CLASS or "-mig-" in name]
    fields = ("devices", "tensor_parallel", "pipeline_parallel", "nodes")
    for field in fields if alone else ():
        if (amount := getattr(profile, field)) > 1:
            code = "cpu.alone" if alone[0] == CPU_CLASS else "mig.alone"
            message = f"{field} is {amount}, but one device of class `{_short(alone[0])}` is used by itself"
            yield Problem(field, code, message, f"set {field} to 1, or use another class")


def _profile_arguments(profile: Profile) -> Iterator[Problem]:
    if len(profile.arguments) > MOST_ARGUMENTS:
        yield _beyond("arguments", "arguments", len(profile.arguments), 0, MOST_ARGUMENTS)
    for i, argument in enumerate(profile.arguments):
        if not argument or "\0" in argument or len(argument) > LONGEST_ARGUMENT:
            message = f"an argument of {len(argument)} characters that is empty, too long or has a NUL in it"
            cure = f"use 1 to {LONGEST_ARGUMENT} characters"
            yield Problem(f"arguments[{i}]", "argument.form", message, cure)


def _profile_engine(profile: Profile) -> Iterator[Problem]:
    if profile.engine in ENGINES:
        yield from ENGINES[profile.engine].profile_problems(profile)
    owned = NEEDS[profile.engine].owned if profile.engine in NEEDS else {}
    for i, argument in enumerate(profile.arguments):
        flag = argument.partition("=")[0].replace("_", "-")
        if flag in owned:
            yield Problem(f"arguments[{i}]", "argument.owned", f"{flag} is set by llmgw", owned[flag])


def _startable(model: Model) -> Iterator[Problem]:
    for i, profile in enumerate(model.profiles):
        if profile.engine in NEEDS and profile.engine not in ENGINES:
            message = f"{profile.engine} can be planned for (`manage.py plan`), and not be started by this version"
            cure = f"use one of: {', '.join(sorted(ENGINES))}"
            yield Problem(f"profiles[{i}].engine", "engine.not-yet", message, cure)


def _within(field: str, amount: int, low: int, high: int) -> Iterable[Problem]:
    if not low <= amount <= high:
        yield Problem(field, "number.range", f"{field} is {amount}", f"use {low} to {high}")


def _beyond(field: str, what: str, amount: int, low: int, high: int) -> Problem:
    return Problem(field, "number.range", f"there are {amount} {what}", f"use {low} to {high}")


def _short(text: str) -> str:
    """Quote what somebody typed without letting it fill the page or break the line."""
    told = "".join(letter if letter.isprintable() else "�" for letter in text[:80])
    return told if len(text) <= 80 else f"{told}…"


_RULES: Final[tuple[Callable[[Model], Iterator[Problem]], ...]] = (
    _source,
    _counts,
    _labels,
    _profiles,
)
_PROFILE_RULES: Final[tuple[Callable[[Profile], Iterator[Problem]], ...]] = (
    _profile_words,
    _profile_classes,
    _profile_numbers,
    _profile_arithmetic,
    _profile_fabric,
    _profile_whole,
    _profile_arguments,
    _profile_engine,
)
