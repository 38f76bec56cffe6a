"""Chooses the address that RoCE v2 traffic of a port must use: which entry of its table that is differs by vendor."""

from collections.abc import Sequence
from ipaddress import AddressValueError, IPv6Address

from llmgw.core.hardware.network import Gid


def ipv4_of(gid: str) -> str | None:
    """Return the IPv4 address that a GID maps: `0000:…:ffff:0a00:0001` is 10.0.0.1."""
    mapped = IPv6Address(gid).ipv4_mapped
    return str(mapped) if mapped else None


def is_link_local(gid: str) -> bool:
    """Tell whether no router passes an address on: `fe80::/10`, or a mapped 169.254.x.x that nobody assigned."""
    try:
        address = IPv6Address(gid)
    except AddressValueError:
        return False
    return (address.ipv4_mapped or address).is_link_local


def choose(table: Sequence[Gid], netdevs: Sequence[str]) -> int | None:
    """Return the index of the RoCE v2 entry with an IPv4 address on the port's own interface, the lowest of those.

    An entry of a VLAN or another interface is taken only where the own one has none, a global IPv6 address only where
    there is no IPv4 address at all, a link-local one never.
    """
    usable = [gid for gid in table if gid.kind == "roce-v2" and not is_link_local(gid.gid)]
    own = [gid for gid in usable if gid.netdev in netdevs or not gid.netdev]
    for group in (own, usable):
        for wanted in (True, False):
            found = [gid.index for gid in group if (gid.ipv4 is not None) is wanted]
            if found and (wanted or not any(gid.ipv4 for gid in usable)):
                return min(found)
    return None
