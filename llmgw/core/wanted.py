"""What is asked for: models, the profiles they may run by, and the demand of one replica."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

from llmgw.core.estimates.architecture import Facts
from llmgw.core.estimates.fit import Estimate, Split, Unknown, card_for, estimate
from llmgw.core.units import MIB, Bytes, ModelName

CPU_CLASS = "cpu"


@dataclass(frozen=True, slots=True)
class Source:
    """Where the weights come from, and what is known of them before a byte is fetched.

    `uri` is `package://<import name>/<file>`, `file:///absolute/path` or `hf://<owner>/<repo>[@revision]/<file>`.
    """

    uri: str
    size: Bytes | None = None
    sha256: str | None = None

    @property
    def copied(self) -> bool:
        """True when a node keeps its own copy on disk; packages and files are used where they lie."""
        return self.uri.startswith("hf://")


@dataclass(frozen=True, slots=True)
class Profile:
    """One way to run a model."""

    name: str
    engine: str
    device_classes: tuple[str, ...] = (CPU_CLASS,)
    devices: int = 1
    """Devices over all nodes together; tensor × pipeline parallel must equal it."""
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    nodes: int = 1
    quantization: str | None = None
    context_length: int | None = None
    """Tokens; None leaves it to the model's own maximum."""
    memory: Bytes | None = None
    """What one device must have free, when the operator knows better than the estimate."""
    arguments: tuple[str, ...] = ()
    """Extra engine arguments, passed through; those that llmgw owns are refused."""
    fabric: str | None = None
    """The fabric that a replica over several nodes must go over; None takes any, and an NVLink domain first."""


@dataclass(frozen=True, slots=True)
class Model:
    """A catalog entry."""

    name: ModelName
    source: Source
    profiles: tuple[Profile, ...]
    """In order of preference: the first that fits is used."""
    replicas: int = 1
    aliases: tuple[str, ...] = ()
    priority: int = 0
    labels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """A node must carry all of these labels to run a replica."""
    facts: Facts | None = None
    """What is known of its shape and weights; with it, memory is worked out and not guessed."""

    def fingerprint(self, profile: Profile) -> str:
        """Tell two starts apart that would differ in what runs: changes when a restart is needed, and only then."""
        # What stands at its default is left out, so that a new field restarts nothing.
        said = [(f.name, value) for f in fields(profile) if (value := getattr(profile, f.name)) != f.default]
        told = repr((self.name, self.source.uri, self.source.sha256, said))
        return hashlib.sha256(told.encode()).hexdigest()[:16]

    def fingerprints(self) -> frozenset[str]:
        """Return what each profile of this entry would be started as."""
        return frozenset(self.fingerprint(profile) for profile in self.profiles)


@dataclass(frozen=True)
class Demand:
    """One replica that wants a place by one profile; what it needs is worked out once, and asked for often."""

    model: Model
    profile: Profile

    @property
    def split(self) -> Split:
        """Say how the replica is spread, for an estimate."""
        on_cpu = self.profile.device_classes == (CPU_CLASS,)
        return Split(self.profile.engine, self.profile.tensor_parallel, self.profile.pipeline_parallel, on_cpu)

    @cached_property
    def memory(self) -> Bytes:
        """Return what one device must hold, in bytes; 0 when nothing is known.

        What the profile declares; else what the model's facts come to, on a card of which the engine gets its share;
        else the weights split over the devices, and a quarter and 256 MiB for the cache and the engine itself.
        """
        if self.profile.memory is not None:
            return self.profile.memory
        told = self.estimate
        if isinstance(told, Estimate):
            return card_for(told, self.split)
        if self.model.source.size is None:
            return Bytes(0)
        share = self.model.source.size // self.profile.devices
        return Bytes(share + share // 4 + 256 * MIB)

    @property
    def missing(self) -> tuple[str, ...]:
        """Name what is not known of the memory; nothing where it can at least be guessed by size."""
        told = self.estimate
        if self.profile.memory is not None or isinstance(told, Estimate):
            return ()
        if isinstance(told, Unknown):
            return told.missing
        return () if self.model.source.size is not None else ("weights",)

    @cached_property
    def estimate(self) -> Estimate | Unknown | None:
        """Work out what one device must hold by the model's facts; None where there are none."""
        facts = self.model.facts
        if facts is not None and facts.weights is None and self.model.source.size is not None:
            facts = replace(facts, weights=self.model.source.size)
        return estimate(facts, self.split, self.profile.context_length) if facts else None


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with what somebody typed: the field, what is wrong, and what to do about it."""

    field: str
    """A path into the document: `profiles[0].engine`."""
    code: str
    message: str
    cure: str

    def text(self) -> str:
        """Say it in one line."""
        return f"{self.field}: {self.message} – {self.cure}" if self.field else f"{self.message} – {self.cure}"

    def to_json(self) -> dict[str, Any]:
        """Return the shape that the API and `--json` print."""
        return {"field": self.field, "code": self.code, "message": self.message, "cure": self.cure}
