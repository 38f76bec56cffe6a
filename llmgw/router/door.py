"""What can be decided before an engine is asked: paths, keys, the model's name, and the router's own answers."""

import hashlib
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

import httptools
import msgspec

from llmgw.core.routing import Key, ModelUnknown, NotServing, Route, Table
from llmgw.core.units import Seconds
from llmgw.router import replies
from llmgw.router.replies import Reply
from llmgw.router.request import Request

HEALTH: Final = "/health"
MODELS: Final = "/v1/models"
ONE_MODEL: Final = "/v1/models/"
FOR_ENGINES: Final = frozenset({"/v1/chat/completions", "/v1/completions", "/v1/embeddings"})

_READ: Final = (b"GET", b"HEAD")
_SEND: Final = (b"POST",)
ANYONE: Final = Key("anyone")
NO_TABLE: Final = replies.try_again(503, "no_routing_table", "This router has no routing table yet; try again shortly.")


@dataclass(frozen=True, slots=True)
class Ask:
    """A request that is for an engine."""

    model: str
    """The name that the client used: a served name or an alias."""
    body: bytes


class _Asked(msgspec.Struct):
    """All that the router reads of a body; the rest is skipped, not decoded."""

    model: Any = None


def split_target(target: bytes) -> tuple[str, bytes]:
    """Return path and query of a request target; a target that is none leads to an unknown path."""
    if not target.startswith(b"/"):
        try:
            url = httptools.parse_url(target)
        except httptools.HttpParserInvalidURLError:
            return "", b""
        target = (url.path or b"/") + (b"?" + url.query if url.query else b"")
    path, _, query = target.partition(b"?")
    return path.decode("latin-1"), query


def refuse_head(request: Request, table: Table | None, body_limit: int, now: Seconds) -> Reply | None:
    """Judge a request by its head, so that nobody uploads a long body for nothing. Settles its key."""
    if no := _refuse_path(request.path, request.verb) or _refuse_size(request.kept, body_limit):
        return no
    if request.path == HEALTH:
        return None
    if table is None:
        return NO_TABLE
    found = find_key(table, request.kept.get(b"authorization"), now)
    if isinstance(found, Reply):
        return found
    request.key = found
    return None


def _refuse_path(path: str, verb: bytes) -> Reply | None:
    allowed: tuple[bytes, ...]
    if path in FOR_ENGINES:
        allowed = _SEND
    elif path in {HEALTH, MODELS} or path.startswith(ONE_MODEL):
        allowed = _READ
    else:
        return replies.error(404, "unknown_url", f"Unknown request URL: {verb.decode('latin-1')} {path}.")
    if verb in allowed:
        return None
    told = f"Not allowed to {verb.decode('latin-1')} on {path}."
    return replies.error(405, "method_not_allowed", told, headers=((b"allow", b", ".join(allowed)),))


def _refuse_size(kept: dict[bytes, bytes], body_limit: int) -> Reply | None:
    # The parser has seen to it that this is a number.
    if int(kept.get(b"content-length", 0)) > body_limit:
        return too_large(body_limit)
    return None


def too_large(body_limit: int) -> Reply:
    """Refuse a body of more than `body_limit` bytes."""
    return replies.last_words(413, "body_too_large", f"The request body is larger than {body_limit} bytes.")


def find_key(table: Table, authorization: bytes | None, now: Seconds) -> Key | Reply:
    """Find what the client's key allows; where everybody may come in, an unknown key does no harm."""
    scheme, _, secret = (authorization or b"").partition(b" ")
    secret = secret.strip() if scheme.lower() == b"bearer" else b""
    key = table.keys.get(hashlib.sha256(secret).hexdigest()) if secret else None
    expired = key is not None and key.expires_at is not None and key.expires_at <= now
    if key and not expired:
        return key
    if table.open:
        return ANYONE
    if expired:
        return _unauthorised("expired_api_key", "This API key has expired; ask for a new one.")
    if not secret:
        return _unauthorised("missing_api_key", "No API key: send it as `Authorization: Bearer <key>`.")
    return _unauthorised("invalid_api_key", "Incorrect API key provided.")


def _unauthorised(code: str, message: str) -> Reply:
    return replies.error(401, code, message, headers=((b"www-authenticate", b"Bearer"),))


def allows(key: Key, name: str, route: Route) -> bool:
    """Tell whether a key may call a model under this name: the key may name the model or the alias."""
    return key.models is None or name in key.models or route.model in key.models


def read_ask(body: bytes, key: Key, table: Table) -> Ask | Reply:
    """Find out which model a body asks for, and whether the key may have it."""
    try:
        name = msgspec.json.decode(body, type=_Asked).model
    except msgspec.ValidationError:
        return replies.error(400, "invalid_body", "The request body must be a JSON object.")
    except (msgspec.DecodeError, RecursionError) as wrong:
        return replies.error(400, "invalid_json", f"The request body is not valid JSON: {wrong}.")
    if not isinstance(name, str) or not name:
        return replies.error(400, "missing_required_parameter", "`model` must name a model.", param="model")
    route = table.routes.get(name)
    if route is None or not allows(key, name, route):
        return refused(ModelUnknown(name))
    return _under_its_own_name(name, route.model, body)


def _under_its_own_name(name: str, served: str, body: bytes) -> Ask | Reply:
    """Leave the body as it is, unless an alias was used: then the engine must hear the name it serves."""
    if name == served:
        return Ask(name, body)
    try:
        fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, RecursionError) as wrong:
        return replies.error(400, "invalid_json", f"The request body is not valid JSON: {wrong}.")
    fields["model"] = msgspec.Raw(msgspec.json.encode(served))
    return Ask(name, msgspec.json.encode(fields))


def refused(no: ModelUnknown | NotServing) -> Reply:
    """Say that nobody takes this request."""
    if isinstance(no, NotServing):
        return replies.try_again(no.status, no.code, no.text())
    return replies.error(no.status, no.code, no.text(), param="model")


def models(key: Key, table: Table) -> Reply:
    """List what the key may call now: served names and aliases with at least one ready endpoint."""
    usable = sorted((n, r) for n, r in table.routes.items() if r.endpoints and allows(key, n, r))
    return replies.as_json({"object": "list", "data": [_described(name, route) for name, route in usable]})


def one_model(path: str, key: Key, table: Table) -> Reply:
    """Describe one model; one that is declared and not ready is not denied, but said to be on its way."""
    name = unquote(path.removeprefix(ONE_MODEL))
    route = table.routes.get(name)
    if route is None or not allows(key, name, route):
        return refused(ModelUnknown(name))
    return replies.as_json(_described(name, route)) if route.endpoints else refused(NotServing(name, 0))


def _described(name: str, route: Route) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": route.created, "owned_by": "llmgw"}
