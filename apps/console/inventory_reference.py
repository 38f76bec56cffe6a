"""Makes the reference of what a node tells of itself: a page for people and a JSON schema for programs."""

import inspect
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from types import MappingProxyType, UnionType
from typing import Any, Final, get_args, get_origin

import msgspec

from apps.console import sources
from apps.console.reference import page
from llmgw.core.hardware.examination import Examination
from llmgw.core.wire import Inventory

_SAYS: Final = """`llmgw-node inventory --json` prints an `Inventory`, and `llmgw-node doctor --json` an `Inventory` and
an `Examination`. The same inventory reaches the control plane with a node's registration, and again when something in
it changes that matters. As JSON schemas: [inventory](inventory.schema.json), [examination](examination.schema.json).

Names do not change, units stand in the names, and null is what is not known or does not apply. A fact that should have
been had and was not is null and named in `problems`, with the tool's own words."""


def inventory_page() -> str:
    """Describe every object and field of the inventory and of the doctor's examination."""
    kinds = dict.fromkeys((*_structs(Inventory), *_structs(Examination)))
    return page("What a node tells of itself", _SAYS, *(_object(kind) for kind in kinds))


def schema_of(kind: type[msgspec.Struct]) -> str:
    """Return the JSON schema of a struct, each property with its sentence."""
    schema = msgspec.json.schema(kind)
    for struct in _structs(kind):
        properties = schema["$defs"][struct.__name__]["properties"]
        for field in _fields(struct):
            if field.says:
                properties[field.name]["description"] = field.says
    told = {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
    return json.dumps(told, indent=2, ensure_ascii=False) + "\n"


def _structs(kind: type) -> tuple[type[msgspec.Struct], ...]:
    """Return a struct and all that can stand inside it, each once, the outermost first."""
    found: dict[type[msgspec.Struct], None] = {}
    _visit(kind, found)
    return tuple(found)


def _visit(kind: Any, found: dict[type[msgspec.Struct], None]) -> None:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        if kind not in found:
            found[kind] = None
            for field in msgspec.structs.fields(kind):
                _visit(field.type, found)
    elif get_origin(kind) is not None or isinstance(kind, UnionType):
        for part in get_args(kind):
            _visit(part, found)


def _fields(kind: type[msgspec.Struct]) -> Iterable[sources.Field]:
    """Return the fields of a struct under the names that they have in JSON."""
    travels_as = {field.name: field.encode_name for field in msgspec.structs.fields(kind)}
    told = sources.fields_of(inspect.getsource(sys.modules[kind.__module__]), kind.__name__)
    return [field._replace(name=travels_as[field.name]) for field in told]


def _object(kind: type[msgspec.Struct]) -> str:
    rows = [f"| `{field.name}` | `{_cell(field.kind)}` | {_cell(field.says)} |" for field in _fields(kind)]
    table = "\n".join(["| field | type | |", "| --- | --- | --- |", *rows])
    return f'<a id="{kind.__name__}"></a>\n\n## {kind.__name__}\n\n{inspect.getdoc(kind)}\n\n{table}'


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


PAGES: Final[Mapping[PurePosixPath, Any]] = MappingProxyType(
    {
        PurePosixPath("docs/reference/inventory.md"): inventory_page,
        PurePosixPath("docs/reference/inventory.schema.json"): lambda: schema_of(Inventory),
        PurePosixPath("docs/reference/examination.schema.json"): lambda: schema_of(Examination),
    }
)
