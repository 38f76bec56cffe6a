"""Which engines this machine can start, in words."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from llmgw.core.hardware.findings import Problem
from workers.ports import Machine
from workers.settings import NodeSettings

Program = tuple[str, ...]

_LIMIT_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Engines:
    """What is installed, and what is not and why."""

    words: Mapping[str, str]
    """Engine name → how it would be started: `llama-server at /usr/bin/llama-server`."""
    problems: tuple[Problem, ...] = ()


def look(machine: Machine, settings: NodeSettings, programs: Mapping[str, Program | None]) -> Engines:
    """Ask each program that was found which version it is."""
    words = {name: _words(machine, program) for name, program in programs.items() if program}
    return Engines(words, tuple(_absences(settings, programs)))


def _words(machine: Machine, program: Program) -> str:
    if len(program) > 1:
        return f"xllamacpp {_installed('xllamacpp')}, run by {' '.join(program)}"
    said = machine.output((*program, "--version"), _LIMIT_S)
    told = next((line.strip() for line in (said.out + said.err).splitlines() if "version" in line.lower()), "")
    return f"{program[0]}, {told[:100]}" if told else program[0]


def _absences(settings: NodeSettings, programs: Mapping[str, Program | None]) -> Iterator[Problem]:
    for name in (name for name, program in programs.items() if not program):
        is_named = settings.llama_server and name == "llamacpp"
        why = f"llama_server in the settings is {settings.llama_server}, no program" if is_named else "not installed"
        text = f"engine {name} is not offered: {why}"
        yield Problem(code="engine.missing", fact=f"engine {name}", text=text)


def _installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "of unknown version"
