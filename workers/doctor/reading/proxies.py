"""Reads the environment's proxy variables: what goes where, and which hosts are spared. No password leaves here."""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

_SCHEMES: Final = ("http", "https", "all")


@dataclass(frozen=True, slots=True)
class Proxy:
    """One proxy variable."""

    variable: str
    place: str | None
    """`proxy.example:3128`, without user and password; None for what is no address."""


def proxies(environment: Mapping[str, str]) -> tuple[Proxy, ...]:
    """Return the proxies that are set, each by the spelling that programs look at first."""
    spellings = ((f"{scheme}_proxy", f"{scheme}_PROXY".upper()) for scheme in _SCHEMES)
    names = (next((name for name in both if environment.get(name)), None) for both in spellings)
    return tuple(Proxy(name, _place(environment[name])) for name in names if name)


def _place(url: str) -> str | None:
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        return f"{parts.hostname}:{parts.port}" if parts.port else parts.hostname
    except ValueError:
        return None


def spared(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the hosts that are reached without a proxy, as `no_proxy` names them."""
    told = environment.get("no_proxy") or environment.get("NO_PROXY") or ""
    return tuple(entry.strip() for entry in told.split(",") if entry.strip())


def is_spared(host: str, entries: tuple[str, ...]) -> bool:
    """Tell whether a host is among those; names by their end, addresses by themselves or by their network."""
    return any(_matches(host, entry) for entry in entries)


def _matches(host: str, entry: str) -> bool:
    if entry == "*" or host.lower() == entry.lower():
        return True
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return host.lower().endswith(f".{entry.lstrip('*.').lower()}")
