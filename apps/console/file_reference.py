"""The JSON schema of fleet files, for editors and for whoever writes them by program."""

import json
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any, Final

from llmgw.core.validation.fleet import MOST_DEVICES, MOST_NODES

_TEXT: Final = {"type": "string"}
_YES_NO: Final = {"type": "boolean"}
_AMOUNT: Final = {
    "description": "Bytes, or a text such as `1.5GiB`.",
    "anyOf": [
        {"type": "integer", "minimum": 0},
        {"type": "string", "pattern": "^[0-9]+(\\.[0-9]+)? ?(B|KiB|MiB|GiB|TiB)$"},
    ],
}
_DEVICES: Final[Mapping[str, Any]] = {
    "class": {"type": "string", "examples": ["h100-80g", "a100-80g-mig-3g.40gb", "cpu"]},
    "count": {"type": "integer", "minimum": 1, "maximum": MOST_DEVICES},
    "memory": {**_AMOUNT, "title": "Of each device; what the class ends in, without it."},
    "nvlink": {**_YES_NO, "title": "Whether NVLink joins these cards."},
    "domain": {**_TEXT, "title": "The NVLink domain over several nodes."},
    "unhealthy": {**_TEXT, "title": "Why they may not be used."},
}
_FABRIC: Final[Mapping[str, Any]] = {
    "name": _TEXT,
    "identity": {**_TEXT, "title": "What tells two networks of one name apart."},
    "rail_only": {**_YES_NO, "title": "Whether only ports of one number reach each other."},
}
_NODE: Final[Mapping[str, Any]] = {
    "name": _TEXT,
    "count": {"type": "integer", "minimum": 1, "maximum": MOST_NODES, "title": "How many alike, numbered from 1."},
    "devices": {
        "type": "array",
        "items": {"anyOf": [{"type": "string", "examples": ["8 x h100-80g"]}, {"$ref": "#/$defs/devices"}]},
    },
    "engines": {"type": "array", "items": _TEXT},
    "labels": {"type": "object", "additionalProperties": _TEXT},
    "fabrics": {"type": "array", "items": {"anyOf": [_TEXT, {"$ref": "#/$defs/fabric"}]}},
    "cordoned": _YES_NO,
    "disk_free": _AMOUNT,
}


def _object(properties: Mapping[str, Any], *required: str) -> dict[str, Any]:
    return {"type": "object", "properties": dict(properties), "required": list(required), "additionalProperties": False}


def fleet_schema() -> dict[str, Any]:
    """Return the schema, in the words of JSON Schema 2020-12."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A fleet, for `manage.py plan --fleet`",
        **_object({"nodes": {"type": "array", "items": {"$ref": "#/$defs/node"}}}, "nodes"),
        "$defs": {
            "node": _object(_NODE, "name"),
            "devices": _object(_DEVICES, "class"),
            "fabric": _object(_FABRIC, "name"),
        },
    }


PAGES: Final[Mapping[PurePosixPath, Callable[[], str]]] = MappingProxyType(
    {PurePosixPath("docs/reference/fleet.schema.json"): lambda: json.dumps(fleet_schema(), indent=2) + "\n"}
)
