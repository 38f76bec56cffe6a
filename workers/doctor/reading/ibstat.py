"""Reads `ibstat`: what the user-space library says of each port."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_LINE: Final = re.compile(
    r"^\s*(?:CA '(?P<hca>[^']+)'|Port (?P<port>\d{1,3}):|(?P<name>State|Rate): *(?P<value>.*?)) *$"
)


@dataclass(frozen=True, slots=True)
class SeenPort:
    """One port, as far as it is told."""

    name: str
    """`mlx5_0:1`."""
    state: str = ""
    """In lower case: `active`, `down`, `initializing`."""
    rate_gbps: float | None = None


def parse(text: str) -> tuple[SeenPort, ...]:
    """Return the ports in their order; lines of another form are passed over."""
    return tuple(_ports(text))


def _ports(text: str) -> Iterator[SeenPort]:
    hca, name, facts = "", "", {"State": "", "Rate": ""}
    for found in filter(None, map(_LINE.match, text.splitlines())):
        if found["name"]:
            facts[found["name"]] = found["value"]
            continue
        if name:
            yield _port(name, facts)
        hca = found["hca"] or hca
        name = f"{hca}:{found['port']}" if found["port"] and hca else ""
        facts = {"State": "", "Rate": ""}
    if name:
        yield _port(name, facts)


def _port(name: str, facts: dict[str, str]) -> SeenPort:
    rate = re.match(r"\d{1,6}(?:\.\d{1,3})?", facts["Rate"])
    return SeenPort(name, facts["State"].lower(), float(rate[0]) if rate else None)
