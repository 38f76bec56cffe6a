"""The Protocol that every engine fulfils."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Protocol

from llmgw.core.wanted import Problem, Profile
from llmgw.core.wire import LaunchOrder


@dataclass(frozen=True, slots=True)
class LaunchFacts:
    """What the node found out for one launch, beside the order."""

    program: tuple[str, ...]
    """How the engine is called here: `("/usr/bin/llama-server",)`, or Python and a runner module."""
    weights: str
    """Absolute path of the fetched weights."""
    host: str
    port: int
    threads: int


@dataclass(frozen=True, slots=True)
class Command:
    """What to execute: no shell, no secret in it."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Added to the environment that the node gives every engine."""


class Readiness(StrEnum):
    """What two questions, `/health` and `/v1/models`, say of an engine."""

    NO_ANSWER = "no-answer"
    LOADING = "loading"
    READY = "ready"
    FOREIGN = "foreign"
    """Something answers there, but it does not serve the expected name."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP answer; `status` 0 when there was none."""

    status: int
    body: bytes = b""


class Engine(Protocol):
    """One inference engine."""

    @property
    def name(self) -> str:
        """The word in a profile: `llamacpp`."""
        ...

    def profile_problems(self, profile: Profile) -> tuple[Problem, ...]:
        """Turn down what `command` would not honour, and arguments that llmgw itself sets.

        `field` is relative to the profile: `quantization`, `arguments[2]`.
        """
        ...

    def command(self, order: LaunchOrder, facts: LaunchFacts) -> Command:
        """Build the command line."""
        ...

    def readiness(self, health: Reply, models: Reply, expected: str) -> Readiness:
        """Judge the answers of `GET /health` and `GET /v1/models`."""
        ...

    @property
    def busy_path(self) -> str:
        """Where to ask how many requests are under way."""
        ...

    def busy(self, reply: Reply) -> int | None:
        """Read that answer; None when it does not say."""
        ...

    def is_noise(self, line: str) -> bool:
        """Tell whether a printed line says nothing to people who ask how this engine is."""
        ...
