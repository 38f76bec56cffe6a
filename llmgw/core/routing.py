"""The routing table, and which endpoint the next request goes to."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import msgspec

TABLE_VERSION: Final = 1


class Endpoint(msgspec.Struct, frozen=True):
    """A ready replica's address."""

    replica: str
    """Replica id, for logs and metrics: `smollm2/1`."""
    launch_id: str
    host: str
    port: int


class Route(msgspec.Struct, frozen=True):
    """What a served name leads to."""

    model: str
    """The name the engine serves under; an alias leads to a route of the same model."""
    endpoints: tuple[Endpoint, ...] = ()
    created: int = 0
    """Unix seconds, for `/v1/models`."""


class Key(msgspec.Struct, frozen=True):
    """What a client's key allows. The key itself is never stored: the table maps its SHA-256 to this."""

    id: str
    models: tuple[str, ...] | None = None
    """Served names allowed; None allows all."""
    expires_at: float | None = None


class Table(msgspec.Struct, frozen=True):
    """All that the router needs to know."""

    revision: int
    """Rises with each publication."""
    routes: Mapping[str, Route] = {}
    """Served name or alias → route. A declared model without a ready replica has a route with no endpoints."""
    keys: Mapping[str, Key] = {}
    """Hexadecimal SHA-256 of a key → what it allows."""
    open: bool = False
    """True lets requests in without a key."""
    v: int = TABLE_VERSION

    @property
    def models(self) -> frozenset[str]:
        """The models that are routed, each once however many aliases it has."""
        return frozenset(route.model for route in self.routes.values())


def encode(table: Table) -> bytes:
    """Return the table as JSON."""
    return msgspec.json.encode(table)


def decode(raw: bytes) -> Table | None:
    """Read a table; None when it is no table of this version."""
    try:
        table = msgspec.json.decode(raw, type=Table)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None
    return table if table.v == TABLE_VERSION else None


@dataclass(frozen=True, slots=True)
class ModelUnknown:
    """Nobody has declared a model under this name, or the key may not see it."""

    code: ClassVar[str] = "model_not_found"
    status: ClassVar[int] = 404
    model: str

    def text(self) -> str:
        """Say it in one line, in the words that OpenAI's clients know."""
        return f"The model `{self.model}` does not exist or you do not have access to it."


@dataclass(frozen=True, slots=True)
class NotServing:
    """The model is declared, but no replica can take the request now."""

    code: ClassVar[str] = "model_not_ready"
    status: ClassVar[int] = 503
    model: str
    suspended: int
    """Replicas that the table names and that did not answer a moment ago."""

    def text(self) -> str:
        """Say it in one line."""
        if self.suspended:
            return f"The model `{self.model}` has {self.suspended} replicas and none answers; try again shortly."
        return f"The model `{self.model}` has no ready replica; try again shortly."


def pick(
    table: Table,
    model: str,
    in_flight: Callable[[str], int],
    suspended: Collection[str] = (),
    turn: int = 0,
) -> Endpoint | ModelUnknown | NotServing:
    """Choose the endpoint with the fewest requests under way; `turn` rotates among equals.

    `in_flight` takes a launch id; `suspended` holds launch ids that are to be left out.
    """
    route = table.routes.get(model)
    if route is None:
        return ModelUnknown(model)
    usable = [e for e in route.endpoints if e.launch_id not in suspended]
    if not usable:
        return NotServing(model, len(route.endpoints))
    loads = [in_flight(e.launch_id) for e in usable]
    least = min(loads)
    equals = [e for e, load in zip(usable, loads, strict=True) if load == least]
    return equals[turn % len(equals)]


def to_json(table: Table) -> dict[str, Any]:
    """Return the table for printing, with the key hashes left out."""
    return {
        "revision": table.revision,
        "open": table.open,
        "keys": len(table.keys),
        "routes": msgspec.to_builtins(table.routes),
    }
