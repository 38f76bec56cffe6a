"""Checks of RoCE: addresses that all nodes mean alike, and a network that loses no packets."""

import re
import shlex
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from llmgw.core.hardware.findings import Severity
from llmgw.core.hardware.network import Port
from llmgw.core.units import counted
from workers import tools
from workers.discovery.infiniband.gids import is_link_local
from workers.doctor.checks import roce_loss
from workers.doctor.checks.adapters import alike, each, hardware_ports, nothing, roce_ports
from workers.doctor.entry import Check, Fix, Group, Outcome, Patient, failed, passed, unknown, warned
from workers.doctor.reading.interfaces import BONDS, Network, interface, networks, parse_bond
from workers.doctor.reading.words import listed, unanswered, whole

_NO_ROCE: Final = "there is no active RoCE port"
_FULL_RDMA_MTU: Final = 4200
"""An interface's MTU from which on RDMA uses packets of 4096 bytes, its largest."""
_ROCE_PORT: Final = 4791
_NCCL_CONF: Final = Path("/etc/nccl.conf")
_FORCED: Final = "NCCL_IB_GID_INDEX"

# --- addresses --------------------------------------------------------------------------------------------------------


def _gid(_: Patient, port: Port) -> Outcome:
    second = [gid for gid in port.gids if gid.kind == "roce-v2"]
    routed = [gid for gid in second if not is_link_local(gid.gid)]
    chosen = next((gid for gid in routed if gid.index == port.roce_gid_index), None)
    if not port.gids:
        return unknown(f"the GIDs of {port.name} could not be read", port.name)
    if chosen:
        stands_for = chosen.ipv4 or f"{chosen.gid}, of IPv6 alone"
        return passed(f"{port.name} has RoCE v2 GID {chosen.index} for {stands_for}", port.name, index=chosen.index)
    if routed:
        numbers = listed([str(gid.index) for gid in routed])
        return failed(f"none of the RoCE v2 GIDs of {port.name} ({numbers}) is of its own interface", port.name)
    if second:
        return warned(f"{port.name} has no RoCE v2 GID but link-local ones, which no router passes on", port.name)
    return failed(f"{port.name} has no RoCE v2 GID", port.name)


def _forced(patient: Patient, port: Port) -> Outcome:
    told = (patient.machine.read_text(_NCCL_CONF) or "", f"{_FORCED}={patient.machine.environment().get(_FORCED, '')}")
    found = [
        line for text in told for line in re.findall(rf"^\s*{_FORCED}\s*=\s*(-?\d+)\s*$", text, re.MULTILINE | re.ASCII)
    ]
    forced = whole(found[-1]) if found else None
    if forced is None or forced < 0:
        return passed(f"no GID index is forced on {port.name}", port.name)
    if forced == port.roce_gid_index:
        return passed(f"GID index {forced} is forced, and right for {port.name}", port.name)
    own = "has none that fits" if port.roce_gid_index is None else f"needs {port.roce_gid_index}"
    return failed(f"GID index {forced} is forced, and {port.name} {own}", port.name, forced=forced)


def _table(patient: Patient, port: Port) -> Outcome:
    if not port.gids:
        return unknown(f"the GIDs of {port.name} could not be read", port.name)
    name = f"port.{port.name}.gid-table"
    rows = sorted((gid.index, gid.gid, gid.kind or "") for gid in port.gids)
    patient.counters[name] = zlib.crc32(repr(rows).encode())
    before = patient.earlier.get(name)
    if before is None:
        return unknown(f"first look at the GIDs of {port.name}; compared at the next run", port.name)
    if before != patient.counters[name]:
        return warned(f"the GIDs of {port.name} are not those of the last run", port.name, gids=rows)
    return passed(f"the GIDs of {port.name} are those of the last run", port.name)


# --- interfaces -------------------------------------------------------------------------------------------------------


def _interface(patient: Patient, port: Port) -> Outcome:
    if not port.netdevs:
        return unknown(f"which interface {port.name} belongs to could not be read", port.name)
    found = [interface(patient.machine, name) for name in port.netdevs]
    down = [one.name for one in found if one.is_up is False]
    if down:
        return failed(f"{listed(down)} of {port.name} is down", port.name)
    if all(one.is_up is None for one in found):
        return unknown(f"whether {listed(port.netdevs)} of {port.name} is up could not be read", port.name)
    return passed(f"{listed(port.netdevs)} of {port.name} is up", port.name)


def _mtu_of(patient: Patient, port: Port) -> int | None:
    mtus = [mtu for name in port.netdevs if (mtu := interface(patient.machine, name).mtu) is not None]
    return min(mtus, default=None)


def _mtu(patient: Patient, port: Port) -> Outcome:
    own = _mtu_of(patient, port)
    if own is None:
        return unknown(f"the MTU of the interface of {port.name} could not be read", port.name)
    others = {other.name: _mtu_of(patient, other) for other in alike(patient, port) if other.is_active}
    differing = sorted(name for name, mtu in others.items() if mtu is not None and mtu != own)
    text = f"{listed(port.netdevs)} of {port.name} has MTU {own}"
    needed = {"interface": shlex.quote(port.netdevs[0]), "old": str(own)}
    if differing:
        return failed(f"{text}, {listed(differing)} another", port.name, mtu=own).cured_by(**needed)
    if own < _FULL_RDMA_MTU:
        return warned(f"{text}; from {_FULL_RDMA_MTU} on RDMA uses its largest packets", port.name, mtu=own).cured_by(
            **needed
        )
    return passed(text, port.name, mtu=own)


def _bond(patient: Patient) -> Iterator[Outcome]:
    bonds = {name: port for port in hardware_ports(patient) for name in port.netdevs}
    found = {name: parse_bond(patient.machine.read_text(BONDS / name) or "") for name in sorted(bonds)}
    for name, states in found.items():
        if states:
            up = sorted(member for member, is_up in states.items() if is_up)
            text = f"{name} of {bonds[name].name}: {len(up)} of {counted(len(states), 'member')} up"
            say = passed if len(up) == len(states) else warned if up else failed
            yield say(text, name, members=dict(states))
    if not any(found.values()):
        yield nothing(patient, "no adapter is in a bond")


# --- several rails on one host ----------------------------------------------------------------------------------------


def _rails(patient: Patient) -> Iterator[Outcome]:
    names = sorted({name for port in roce_ports(patient) for name in port.netdevs})
    addresses = patient.machine.addresses()
    by_network: dict[Network, list[str]] = {}
    for name in names:
        for network in dict.fromkeys(networks(addresses.get(name, ()))):
            by_network.setdefault(network, []).append(name)
    shared = {network: sharing for network, sharing in by_network.items() if len(sharing) > 1}
    if not names:
        yield nothing(patient, _NO_ROCE)
    elif not by_network:
        yield unknown("the addresses of the RoCE interfaces could not be read")
    elif not shared:
        yield passed(f"{counted(len(names), 'RoCE interface')}, each in a network of its own")
    else:
        yield from _shared(patient, shared)


def _shared(patient: Patient, shared: dict[Network, list[str]]) -> Iterator[Outcome]:
    result = tools.ask(patient.machine, patient.settings, "ip", "rule")
    if not result.ok:
        yield unanswered("whether packets leave by the interface of their address", "ip", result)
        return
    sources = set(re.findall(r"\bfrom ([0-9a-fA-F.:]+)", result.out))
    addresses = patient.machine.addresses()
    for network, names in shared.items():
        own = {name: {text.partition("/")[0] for text in addresses.get(name, ())} for name in names}
        ruled = [name for name in names if own[name] & sources]
        text = f"{listed(names)} are all in {network}"
        if len(ruled) >= len(names):
            yield passed(f"{text}, and packets leave by the interface of their address", str(network))
        else:
            yield warned(f"{text}, and no rule sends packets out by the interface of their address", str(network))


# --- firewall ---------------------------------------------------------------------------------------------------------


def _firewall(patient: Patient) -> Iterator[Outcome]:
    if not roce_ports(patient):
        yield nothing(patient, _NO_ROCE)
        return
    result = tools.ask(patient.machine, patient.settings, "nft", "list", "ruleset")
    if not result.ok:
        yield unanswered("whether the firewall lets RoCE through", "nft", result)
        return
    yield _judge_rules(result.out)


def _judge_rules(ruleset: str) -> Outcome:
    own = [line for line in ruleset.splitlines() if re.search(rf"\bdport\b.*\b{_ROCE_PORT}\b", line)]
    refusing = [line.strip() for line in own if re.search(r"\b(drop|reject)\b", line)]
    closes = re.search(r"hook input[^;]*;\s*policy drop", ruleset) is not None
    if refusing:
        return warned(f"the firewall refuses UDP {_ROCE_PORT}: {refusing[0]}", rule=refusing[0])
    if closes and not own:
        return warned(f"the firewall refuses what it is not told of, and nothing tells it of UDP {_ROCE_PORT}")
    return passed(f"no rule of this node's firewall refuses UDP {_ROCE_PORT}")


CHECKS: Final[tuple[Check, ...]] = (
    Check(
        id="roce.gid",
        group=Group.ROCE,
        title="Every RoCE port has an address that routers pass on",
        reads="/sys/class/infiniband/*/ports/*/{gids,gid_attrs/types}",
        rule="Passes for a RoCE v2 GID of an IPv4 address, or of an IPv6 address that is routed; warns for link-local "
        "ones alone; fails without any.",
        costs="Connections to other subnets fail to be set up.",
        fix=Fix("Give the adapter's interface an IP address."),
        judge=each(roce_ports, _gid, _NO_ROCE),
    ),
    Check(
        id="roce.gid-index",
        group=Group.ROCE,
        title="No GID index is forced that another port or node means differently",
        reads=f"{_NCCL_CONF}, the worker's environment",
        rule=f"Fails where {_FORCED} is set and is not the index that this port needs.",
        costs="NCCL ends with error 12 or `No such device`.",
        fix=Fix(f"Take {_FORCED} out; llmgw sets the index of each node, and NCCL from 2.21 on chooses by itself."),
        judge=each(roce_ports, _forced, _NO_ROCE),
    ),
    Check(
        id="roce.gid-table",
        group=Group.ROCE,
        title="The GIDs are those of the last run",
        reads="/sys/class/infiniband/*/ports/*/gids",
        rule="Warns where they have changed.",
        costs="What was started before the change uses an index that means something else now.",
        fix=Fix("See why addresses of the interface came or went; start engines that span nodes again."),
        judge=each(roce_ports, _table, _NO_ROCE),
        worst=Severity.WARN,
    ),
    Check(
        id="roce.interface",
        group=Group.ROCE,
        title="The interface of every RoCE port is up",
        reads="/sys/class/net/*/{operstate,carrier}",
        rule="Fails where one is down.",
        costs="Its addresses are gone, and with them the port's GIDs.",
        fix=Fix("Switch it on: `ip link set dev INTERFACE up`, and in the system's configuration."),
        judge=each(roce_ports, _interface, _NO_ROCE),
    ),
    Check(
        id="roce.mtu",
        group=Group.ROCE,
        title="The interfaces of RoCE ports have large packets, all the same",
        reads="/sys/class/net/*/mtu",
        rule=f"Warns below {_FULL_RDMA_MTU}; fails where ports of one fabric or kind differ.",
        costs="RDMA uses packets of 1024 bytes; where they differ, large messages are lost while small ones pass.",
        fix=Fix(
            "Set 9000 on all nodes, and on every switch between them first.",
            "ip link set dev {interface} mtu 9000",
            undo="ip link set dev {interface} mtu {old}",
        ),
        judge=each(roce_ports, _mtu, _NO_ROCE),
    ),
    Check(
        id="roce.bond",
        group=Group.ROCE,
        title="All members of a bond are up",
        reads="/proc/net/bonding",
        rule="Warns where one is down, fails where all are.",
        costs="Half the bandwidth.",
        fix=Fix("Look at the cable of the member that is down, and at the switch's side of the bond."),
        judge=_bond,
    ),
    Check(
        id="roce.rails",
        group=Group.ROCE,
        title="Packets leave by the interface whose address they bear",
        reads="the interfaces' addresses, ip rule",
        rule="Warns where several RoCE interfaces are in one network and no rule by source address tells them apart.",
        costs="Answers come by another interface than expected: rails are mixed, or cut off.",
        fix=Fix("Give each rail a network of its own, or a rule and a table for each address."),
        judge=_rails,
        worst=Severity.WARN,
    ),
    Check(
        id="roce.firewall",
        group=Group.ROCE,
        title="No rule of this node refuses RoCE's packets",
        reads="nft list ruleset",
        rule=f"Warns where a rule refuses UDP {_ROCE_PORT}, or all is refused that no rule allows. Most adapters take "
        "these packets before the node's firewall sees them; the firewalls of the network are not seen from here.",
        costs="NCCL ends with error 12.",
        fix=Fix(f"Allow UDP {_ROCE_PORT} between the nodes, here and in the network."),
        judge=_firewall,
        worst=Severity.WARN,
    ),
    *roce_loss.CHECKS,
)
NOT_YET: Final[tuple[tuple[str, str, str], ...]] = (
    ("roce.jumbo-path", "Large packets pass all the way to the other nodes", "needs the address of another node"),
)
