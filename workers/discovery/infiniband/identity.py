"""Tells one physical fabric from another: by the master on InfiniBand, by VLAN and subnet of the address on RoCE."""

import re
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Interface, IPv6Interface, ip_address, ip_interface
from pathlib import Path
from typing import Final, NamedTuple

from llmgw.core.hardware.network import Gid, LinkLayer, Port
from workers.ports import Machine

VLANS: Final = Path("/proc/net/vlan/config")
INTERFACES: Final = Path("/sys/class/net")
_VLAN: Final = re.compile(r"^(\S+)[ \t]*\|[ \t]*([0-9]{1,4})[ \t]*\|", re.MULTILINE)
ROCE: Final = "roce:"


class Interfaces(NamedTuple):
    """The network interfaces, as far as an identity needs them."""

    addresses: Mapping[str, Sequence[str]]
    """With prefix length: `10.0.0.5/24`."""
    vlans: Mapping[str, int]
    """Of interfaces whose VLAN is known; 0 for one that is in none."""


def interfaces(machine: Machine, ports: Sequence[Port]) -> Interfaces:
    """Look at the interfaces of these ports, and at the addresses of all."""
    addresses = machine.addresses()
    names = {name for port in ports for name in (*port.netdevs, *(gid.netdev for gid in port.gids)) if name}
    tagged = machine.read_text(VLANS)
    if tagged is not None:
        return Interfaces(addresses, dict.fromkeys((*names, *addresses), 0) | parse_vlans(tagged))
    return Interfaces(addresses, {name: 0 for name in sorted(names) if _is_untagged(machine, name)})


def parse_vlans(text: str) -> dict[str, int]:
    """Read `eth2.100 | 100 | eth2`."""
    return {found[1]: int(found[2]) for found in _VLAN.finditer(text)}


def _is_untagged(machine: Machine, name: str) -> bool:
    """Tell whether the kernel says of an interface what it is, and that it is of no VLAN."""
    said = machine.read_text(INTERFACES / name / "uevent")
    return said is not None and "DEVTYPE=vlan" not in said.split()


def of(port: Port, around: Interfaces) -> str | None:
    """Return `sm:<GUID>` or `roce:<VLAN or 0>:<subnet>`; None where it is not known."""
    if port.link_layer is LinkLayer.INFINIBAND:
        return f"sm:{port.subnet_manager.guid}" if port.subnet_manager else None
    gid = next((gid for gid in port.gids if gid.index == port.roce_gid_index), None)
    return _roce(gid, port.netdevs, around) if gid else None


def _roce(gid: Gid, netdevs: Sequence[str], around: Interfaces) -> str | None:
    """Find the interface that has the address: the GID's own, and only then the port's, and any other."""
    for name in (*filter(None, [gid.netdev]), *netdevs, *sorted(around.addresses)):
        found = next((told for text in around.addresses.get(name, ()) if (told := _same(gid, text))), None)
        if found is not None:
            vlan = around.vlans.get(name)
            # A prefix that covers one address says nothing of who else is there.
            says_nothing = vlan is None or found.network.prefixlen == found.max_prefixlen
            return None if says_nothing else f"{ROCE}{vlan}:{found.network}"
    return None


def _same(gid: Gid, text: str) -> IPv4Interface | IPv6Interface | None:
    try:
        found = ip_interface(text)
        return found if found.ip == ip_address(gid.ipv4 or gid.gid) else None
    except ValueError:
        return None


def network_of(identity: str) -> str:
    """Say a RoCE identity in words: `10.0.0.0/24 in VLAN 100`."""
    vlan, _, subnet = identity.removeprefix(ROCE).partition(":")
    return subnet if vlan == "0" else f"{subnet} in VLAN {vlan}"
