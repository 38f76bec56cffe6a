"""A static list of endpoints, for a router that serves without any control plane."""

from collections.abc import Mapping

import msgspec

from llmgw.core.routing import Endpoint, Key, Route, Table


class StaticModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One model: where it is served, and the other names it goes by."""

    endpoints: tuple[str, ...]
    """`host:port`, with IPv6 addresses in brackets."""
    aliases: tuple[str, ...] = ()


class EndpointsFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    models: Mapping[str, StaticModel]
    keys: Mapping[str, Key] = {}
    """Hexadecimal SHA-256 of a key → what it allows, as in the routing table."""
    open: bool = False


def parse(raw: bytes) -> Table | str:
    """Read the file's JSON; anything wrong is told in a sentence."""
    try:
        told = msgspec.json.decode(raw, type=EndpointsFile)
    except (msgspec.DecodeError, RecursionError) as wrong:
        return str(wrong)
    if not told.keys and not told.open:
        return 'nobody could call this router: add "keys", or "open": true to let everybody in'
    routes: dict[str, Route] = {}
    for name, model in told.models.items():
        route = _route(name, model)
        if isinstance(route, str):
            return route
        for called in (name, *model.aliases):
            if called in routes:
                return f"the name {called!r} is used twice"
            routes[called] = route
    return Table(revision=0, routes=routes, keys=told.keys, open=told.open)


def _route(name: str, model: StaticModel) -> Route | str:
    endpoints = []
    for number, address in enumerate(model.endpoints):
        host, colon, port = address.rpartition(":")
        if not (host and colon and port.isdecimal() and 0 < int(port) < 65536):
            return f"endpoint {address!r} of {name!r} is not of the form host:port"
        endpoints.append(Endpoint(f"{name}/{number}", address, host.strip("[]"), int(port)))
    return Route(name, tuple(endpoints))
