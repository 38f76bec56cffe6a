"""How the API describes itself: the parts of OpenAPI that all addresses use, and the shapes of what is sent."""

from collections.abc import Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Final

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse

from llmgw.core.validation.document import PROFILE_KEYS
from llmgw.core.world import NodeState, State

Schema = dict[str, Any]

# --- parts of a description ---------------------------------------------------------------------------------------


def schema(name: str) -> Schema:
    """Refer to a shape by its name."""
    return {"$ref": f"#/components/schemas/{name}"}


def ref(name: str, says: str = "") -> OpenApiResponse:
    """Describe an answer of this shape."""
    return OpenApiResponse(response=schema(name), description=says)


def body(name: str) -> dict[str, Schema]:
    """Describe a body of this shape."""
    return {"application/json": schema(name)}


def problems(*statuses: int) -> dict[Any, OpenApiResponse]:
    """Describe the problems that an address may answer with, beside those that all have."""
    return {
        (status, "application/problem+json"): ref("Problem", HTTPStatus(status).phrase)
        for status in sorted({400, 401, 403, *statuses})
    }


def one(name: str) -> dict[Any, OpenApiResponse]:
    """Describe the answers of an address that tells one thing."""
    return {200: ref(name), **problems(404)}


def page_of(name: str) -> dict[Any, OpenApiResponse]:
    """Describe one page of a list."""
    items: Schema = {
        "type": "object",
        "required": ["items", "next"],
        "properties": {
            "items": {"type": "array", "items": schema(name)},
            "next": {"type": ["string", "null"], "description": "What `after` is for the next page; null on the last."},
        },
    }
    return {200: OpenApiResponse(response=items), **problems()}


def query(name: str, says: str) -> OpenApiParameter:
    """Describe a query parameter."""
    return OpenApiParameter(name, str, OpenApiParameter.QUERY, description=says)


def paged() -> list[OpenApiParameter]:
    """Describe the parameters of every list."""
    limit = OpenApiParameter("limit", int, OpenApiParameter.QUERY, description="How many at most: 1 to 1000, else 100.")
    return [limit, query("after", "What `next` of the page before said.")]


def writing() -> list[OpenApiParameter]:
    """Describe the parameters of every write."""
    dry = OpenApiParameter(
        "dry_run", str, OpenApiParameter.QUERY, enum=["all"], description="Check and plan all of it, and keep nothing."
    )
    return [dry, query("reason", "Why, for the audit.")]


IF_MATCH: Final = OpenApiParameter(
    "If-Match", str, OpenApiParameter.HEADER, description='Only if it is what was seen: `"r57"`, as `ETag` said.'
)
IF_NONE_MATCH: Final = OpenApiParameter(
    "If-None-Match", str, OpenApiParameter.HEADER, enum=["*"], description="Only if there is none."
)

# --- shapes -------------------------------------------------------------------------------------------------------

TEXT: Final[Schema] = {"type": "string"}
WHOLE: Final[Schema] = {"type": "integer"}
NUMBER: Final[Schema] = {"type": "number"}
YES_NO: Final[Schema] = {"type": "boolean"}
TIME: Final[Schema] = {"type": "string", "format": "date-time"}
ANYTHING: Final[Schema] = {"type": "object", "additionalProperties": True}
BYTES: Final[Schema] = {
    "oneOf": [{"type": "integer", "minimum": 1}, {"type": "string", "examples": ["1.5GiB"]}],
    "description": "Bytes, or a text such as `1.5GiB`.",
}


def _maybe(shape: Schema) -> Schema:
    return {"oneOf": [shape, {"type": "null"}]}


def _many(shape: Schema) -> Schema:
    return {"type": "array", "items": shape}


def _object(**properties: Schema) -> Schema:
    """Describe an object that holds all of these keys."""
    return {"type": "object", "required": list(properties), "properties": properties}


def _lacking(shape: Schema, *optional: str) -> Schema:
    """Describe the same object, some of whose keys may be missing."""
    return {**shape, "required": [key for key in shape["required"] if key not in optional]}


_PAIRS: Final[Schema] = {"type": "object", "additionalProperties": TEXT}
_PROFILE_SHAPES: Final[Mapping[str, Schema]] = MappingProxyType(
    {
        "name": TEXT,
        "engine": TEXT,
        "device_classes": _many(TEXT),
        "devices": WHOLE,
        "tensor_parallel": WHOLE,
        "pipeline_parallel": WHOLE,
        "nodes": WHOLE,
        "quantization": _maybe(TEXT),
        "context_length": _maybe(WHOLE),
        "memory": _maybe(BYTES),
        "arguments": _many(TEXT),
        "fabric": _maybe(TEXT),
    }
)
_SOURCE: Final[Schema] = {
    "oneOf": [TEXT, _lacking(_object(uri=TEXT, size=_maybe(BYTES), sha256=_maybe(TEXT)), "size", "sha256")],
    "description": "`hf://owner/repo[@revision]/file`, `file:///absolute/path` or `package://module/file`.",
}
_DOCUMENT: Final[dict[str, Schema]] = {
    "name": TEXT,
    "aliases": _many(TEXT),
    "source": _SOURCE,
    "replicas": WHOLE,
    "priority": WHOLE,
    "labels": _PAIRS,
    "facts": {"type": "object", "description": "What is known of its shape and weights; see the how-to of models."},
    "profiles": _many(schema("Profile")),
}
_PROFILE_DEFAULTS: Final = tuple(key for key in PROFILE_KEYS if key not in ("name", "engine"))
_LEFT_OUT: Final = ("name", "aliases", "priority", "labels", "replicas", "facts", "profiles")
_FORESEEN: Final[dict[str, Schema]] = {"dry_run": YES_NO, "plan": _maybe(schema("Plan"))}
_REPLICA: Final[dict[str, Schema]] = {
    "name": TEXT,
    "model": TEXT,
    "ordinal": WHOLE,
    "state": {"type": "string", "enum": [*(state.value for state in State), "crash-looping"]},
    "state_since": TIME,
    "why": TEXT,
    "profile": _maybe(TEXT),
    "attempt": WHOLE,
    "failures": WHOLE,
    "restarts": WHOLE,
    "next_try_at": _maybe(TIME),
    "ready_at": _maybe(TIME),
    "created_at": TIME,
    "shards": _many(schema("Shard")),
    "refusals": _many(schema("RefusalGroup")),
}

SHAPES: Final[Mapping[str, Schema]] = MappingProxyType(
    {
        "Problem": _object(
            type=TEXT,
            title=TEXT,
            status=WHOLE,
            code=TEXT,
            detail=TEXT,
            errors=_many(_object(pointer=TEXT, code=TEXT, message=TEXT, cure=TEXT)),
            refusals=_many(_object(code=TEXT, text=TEXT)),
        ),
        "Profile": {
            **_lacking(_object(**_PROFILE_SHAPES), *_PROFILE_DEFAULTS),
            "additionalProperties": False,
        },
        "ModelDocument": {**_lacking(_object(**_DOCUMENT), *_LEFT_OUT), "additionalProperties": False},
        "ModelPatch": {"type": "object", "description": "A merge patch over the model's document."},
        "Catalog": _object(models=_many(schema("ModelDocument"))),
        "Documents": {"oneOf": [_many(schema("ModelDocument")), schema("Catalog")]},
        "Model": _lacking(
            _object(
                **_DOCUMENT,
                revision=WHOLE,
                created_at=TIME,
                changed_at=TIME,
                retired_at=_maybe(TIME),
                ready=WHOLE,
                wanted=WHOLE,
                state=TEXT,
                replica_names=_many(TEXT),
                **_FORESEEN,
            ),
            "aliases",
            "priority",
            "labels",
            "facts",
            *_FORESEEN,
        ),
        "Applied": _object(
            items=_many(
                _object(name=TEXT, change={"enum": ["created", "changed", "unchanged"]}, revision=WHOLE),
            ),
            **_FORESEEN,
        ),
        "Plan": _object(actions=_many(_object(code=TEXT, text=TEXT)), refusals=_many(schema("Refused"))),
        "Refused": _object(replica=TEXT, refusals=_many(schema("Refusal"))),
        "Refusal": _object(node=_maybe(TEXT), profile=_maybe(TEXT), code=TEXT, text=TEXT, cure=TEXT, facts=ANYTHING),
        "RefusalGroup": _object(code=TEXT, count=WHOLE, text=TEXT, cure=TEXT, nodes=_many(TEXT)),
        "Foreseen": _object(**_FORESEEN),
        "Requested": _object(requested=WHOLE, done=WHOLE),
        "Explanation": ANYTHING,
        "Node": _object(
            name=TEXT,
            address=TEXT,
            state={"type": "string", "enum": [state.value for state in NodeState]},
            state_since=TIME,
            cordoned=YES_NO,
            epoch=WHOLE,
            instance=TEXT,
            boot_id=TEXT,
            last_heard_at=_maybe(TIME),
            labels=_PAIRS,
            devices=_many(schema("Device")),
            inventory=ANYTHING,
            findings=_many(_object(code=TEXT, text=TEXT)),
            examination=_maybe(ANYTHING),
        ),
        "Device": _object(
            id=TEXT,
            kind=TEXT,
            **{"class": TEXT},
            memory_bytes=WHOLE,
            slots=WHOLE,
            unhealthy=_maybe(TEXT),
            unhealthy_code=_maybe(TEXT),
            index=_maybe(WHOLE),
            label=_maybe(TEXT),
            card=_maybe(TEXT),
        ),
        "Shard": _object(
            launch_id=TEXT,
            node=TEXT,
            rank=WHOLE,
            devices=_many(TEXT),
            state=TEXT,
            state_since=TIME,
            host=_maybe(TEXT),
            port=_maybe(WHOLE),
            pid=_maybe(WHOLE),
            adopted=YES_NO,
            progress=_maybe(ANYTHING),
            failure=_maybe(ANYTHING),
        ),
        "Replica": _object(**_REPLICA),
        "ReplicaWithTimeline": _object(**_REPLICA, timeline=schema("Timeline")),
        "Timeline": _object(
            first_failure=_maybe(ANYTHING), attempts=_many(_object(attempt=WHOLE, launches=_many(schema("Launch"))))
        ),
        "Launch": _object(
            launch_id=TEXT,
            node=TEXT,
            state=TEXT,
            steps=_many(
                _object(state=TEXT, at=TIME, seconds=_maybe(NUMBER), happened=TEXT, why=TEXT, by=TEXT),
            ),
            failure=_maybe(ANYTHING),
            tail=_many(TEXT),
        ),
        "Pass": _object(
            token=WHOLE,
            started_at=TIME,
            duration_ms=NUMBER,
            by=TEXT,
            actions=_many(_object(code=TEXT, text=TEXT)),
            refusals=_many(ANYTHING),
            lost_races=WHOLE,
        ),
        "AuditEntry": _object(
            id=WHOLE,
            at=TIME,
            actor=TEXT,
            door=TEXT,
            address=TEXT,
            verb=TEXT,
            object_type=TEXT,
            object_id=TEXT,
            before={},
            after={},
            reason=TEXT,
        ),
        "WhoAmI": _object(
            name=TEXT,
            superuser=YES_NO,
            token=_maybe(TEXT),
            read_only=YES_NO,
            expires_at=_maybe(TIME),
            permissions=_many(TEXT),
        ),
        "Version": _object(llmgw=TEXT, api=TEXT),
        "Reason": _lacking(_object(reason=TEXT), "reason"),
        "NeededReason": _object(reason=TEXT),
    }
)


def add_shapes(result: Schema, **options: Any) -> Schema:
    """Put the shapes where the addresses refer to them; named in the settings."""
    components = result.setdefault("components", {}).setdefault("schemas", {})
    components.update(dict(sorted(SHAPES.items())))
    return result


class BearerScheme(OpenApiAuthenticationExtension):
    """Describes our tokens."""

    target_class = "apps.console.api.authentication.BearerToken"
    name = "apiToken"

    def get_security_definition(self, auto_schema: Any) -> Schema:
        """Say where the token goes."""
        return {"type": "http", "scheme": "bearer", "description": "A token of the management API: `llmgw_…`."}
