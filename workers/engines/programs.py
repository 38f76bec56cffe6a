"""Which program an engine is on this node."""

import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from workers.ports import Machine
from workers.settings import NodeSettings

Program = tuple[str, ...]

RUNNER: Final = "workers.engines.llama_server"


def find_llamacpp(settings: NodeSettings, machine: Machine) -> Program | None:
    """Take the program that the settings name, else llama-server on PATH, else xllamacpp's server by our runner.

    A program that is named and is not there is no reason to take another one quietly.
    """
    if settings.llama_server is not None:
        named = machine.which(settings.llama_server)
        return (named,) if named else None
    found = machine.which("llama-server")
    if found:
        return (found,)
    return (sys.executable, "-m", RUNNER) if machine.has_module("xllamacpp") else None


_FINDERS: Final[Mapping[str, Callable[[NodeSettings, Machine], Program | None]]] = MappingProxyType(
    {"llamacpp": find_llamacpp}
)


def find(engine: str, settings: NodeSettings, machine: Machine) -> Program | None:
    """Return how an engine is called here; None when it is not installed, or not known."""
    finder = _FINDERS.get(engine)
    return finder(settings, machine) if finder else None
