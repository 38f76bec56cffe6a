"""Checks of the network by which the processes of several nodes meet: interfaces, names, addresses."""

import ipaddress
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from llmgw.core.hardware.findings import Severity
from llmgw.core.hardware.interfaces import is_of_this_host
from workers import tools
from workers.doctor.checks import network_ports, network_proxy
from workers.doctor.entry import Check, Fix, Group, Outcome, Patient, failed, not_here, passed, unknown, warned
from workers.doctor.reading.interfaces import FOLDER, Network, interface, networks
from workers.doctor.reading.procfs import setting
from workers.doctor.reading.sockets import is_loopback
from workers.doctor.reading.words import listed, unanswered

_HOSTNAME: Final = Path("/proc/sys/kernel/hostname")
_HOSTS: Final = Path("/etc/hosts")
_NOT_DECLARED: Final = "this node is on no fabric"
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,252}")
_STRICT: Final = 1
_NEARLY_FULL: Final = 0.75
_FULL: Final = 0.95

# --- interfaces -------------------------------------------------------------------------------------------------------


def _bootstrap(patient: Patient) -> Iterator[Outcome]:
    for fabric in patient.inventory.fabrics:
        if fabric.interface:
            yield _judge_bootstrap(patient, fabric.name, fabric.interface)
    if not any(fabric.interface for fabric in patient.inventory.fabrics):
        yield not_here("no fabric has an interface to meet over")


def _judge_bootstrap(patient: Patient, fabric: str, name: str) -> Outcome:
    found = interface(patient.machine, name)
    addresses = patient.machine.addresses().get(name, ())
    use = f"the interface {name} of fabric {fabric}"
    if not found.is_there and not addresses:
        return failed(f"{use} is not there", name)
    if found.is_up is False:
        return failed(f"{use} is down or has no carrier", name)
    if not networks(addresses):
        return failed(f"{use} has no address that other nodes reach", name)
    if found.is_up is None:
        return unknown(f"whether {use} is up could not be read", name)
    return passed(f"{use} is up with {listed(addresses)}", name)


def _chosen(patient: Patient) -> Iterator[Outcome]:
    for fabric in patient.inventory.fabrics:
        name = fabric.interface
        if name is None:
            yield warned(f"fabric {fabric.name} has no interface to meet over, so NCCL would choose one", fabric.name)
        elif is_of_this_host(name):
            yield failed(f"fabric {fabric.name} would meet over {name}, which reaches no other node", fabric.name)
        else:
            yield passed(f"fabric {fabric.name} meets over {name}", fabric.name)
    if not patient.inventory.fabrics:
        yield not_here(_NOT_DECLARED)


def _address(patient: Patient) -> Iterator[Outcome]:
    told = patient.settings.address
    resolved = _literal(told) or _resolve(patient, told)
    if isinstance(resolved, Outcome):
        yield resolved
        return
    holders = [
        name for name, texts in patient.machine.addresses().items() if resolved in {_bare(text) for text in texts}
    ]
    if is_loopback(resolved):
        text = f"{told} reaches this machine alone; that is right where control plane and routers run here too"
        yield warned(text) if patient.inventory.fabrics else passed(text)
    elif holders:
        yield passed(f"{told} is on {holders[0]}")
    else:
        yield failed(f"{told} is on no interface of this node: engines cannot listen on it")


def _literal(text: str) -> str | None:
    try:
        return str(ipaddress.ip_address(text.partition("%")[0]))
    except ValueError:
        return None


def _bare(text: str) -> str:
    return text.partition("/")[0]


# --- names ------------------------------------------------------------------------------------------------------------


def _resolve(patient: Patient, name: str) -> str | Outcome:
    """Return the address that a name stands for; an outcome where it is not known, or there is none."""
    result = tools.ask(patient.machine, patient.settings, "getent", "hosts", name)
    found = _literal(result.out.split()[0]) if result.out.split() else None
    if found:
        return found
    if result.problem == "not found":
        return _from_hosts(patient, name) or unanswered(f"the address of {name}", "getent", result)
    if result.code is None:
        return unanswered(f"the address of {name}", "getent", result)
    return failed(f"{name} resolves to no address")


def _from_hosts(patient: Patient, name: str) -> str | None:
    rows = (line.partition("#")[0].split() for line in (patient.machine.read_text(_HOSTS) or "").splitlines())
    return next((found for row in rows if name in row[1:] and (found := _literal(row[0]))), None)


def _hostname(patient: Patient) -> str:
    """Return the host's name; empty where it is not told, or is nothing to ask a tool for."""
    name = (patient.machine.read_text(_HOSTNAME) or "").strip()
    return name if _NAME.fullmatch(name) else ""


def _own_name(patient: Patient) -> Iterator[Outcome]:
    name = _hostname(patient)
    resolved = _resolve(patient, name) if name else unknown("this host's name is not told")
    if isinstance(resolved, Outcome):
        yield resolved
    elif is_loopback(resolved):
        yield warned(f"{name} resolves to {resolved}, which on every other node is that node itself", address=resolved)
    elif resolved in {_bare(text) for texts in patient.machine.addresses().values() for text in texts}:
        yield passed(f"{name} resolves to {resolved}", address=resolved)
    else:
        yield warned(f"{name} resolves to {resolved}, which is on no interface of this node", address=resolved)


def _families(patient: Patient) -> Iterator[Outcome]:
    name = _hostname(patient)
    resolved = _resolve(patient, name) if name else unknown("this host's name is not told")
    told = {"address in the settings": patient.settings.address}
    told |= {f"fabric {fabric.name}": fabric.address for fabric in patient.inventory.fabrics if fabric.address}
    told |= {f"the name {name}": resolved} if isinstance(resolved, str) else {}
    kinds = {what: ipaddress.ip_address(found).version for what, text in told.items() if (found := _literal(text))}
    if len(set(kinds.values())) > 1:
        said = listed([f"{what} is IPv{kind}" for what, kind in kinds.items()])
        yield warned(f"addresses of both families are in use: {said}", families=kinds)
    elif len(kinds) > 1:
        yield passed(f"{len(kinds)} addresses, all of IPv{next(iter(kinds.values()))}")
    else:
        yield unknown("there are not two addresses to compare")


# --- the way of packets -----------------------------------------------------------------------------------------------


def _reverse_path(patient: Patient) -> Iterator[Outcome]:
    by_network: dict[Network, list[str]] = {}
    for name, texts in patient.machine.addresses().items():
        if not is_of_this_host(name):
            for network in dict.fromkeys(networks(texts)):
                by_network.setdefault(network, []).append(name)
    shared = {name for names in by_network.values() if len(names) > 1 for name in names}
    strict = sorted(name for name in shared if _is_strict(patient, name))
    if strict:
        first = strict[0] if _NAME.fullmatch(strict[0]) else "all"
        text = f"several interfaces are in one network, and {listed(strict)} drops what belongs to another (rp_filter)"
        yield warned(text, interfaces=strict).cured_by(interface=first)
    elif shared:
        yield passed(f"{listed(sorted(shared))} share a network, and answers by either are taken")
    else:
        yield passed("no two interfaces share a network")


def _is_strict(patient: Patient, name: str) -> bool:
    folders = ("all", name)
    return max(setting(patient.machine, f"net/ipv4/conf/{folder}/rp_filter") or 0 for folder in folders) == _STRICT


def _conntrack(patient: Patient) -> Iterator[Outcome]:
    count, most = (setting(patient.machine, f"net/netfilter/nf_conntrack_{what}") for what in ("count", "max"))
    if count is None or not most or most < 0:
        yield not_here("the kernel does not track connections")
        return
    text = f"{count} of {most} connections are tracked"
    if count > _FULL * most:
        yield failed(f"{text}: new ones are dropped", count=count, max=most).cured_by(max=str(most * 4), old=str(most))
    elif count > _NEARLY_FULL * most:
        yield warned(text, count=count, max=most).cured_by(max=str(most * 4), old=str(most))
    else:
        yield passed(text, count=count, max=most)


CHECKS: Final[tuple[Check, ...]] = (
    Check(
        id="network.address",
        group=Group.NETWORK,
        title="The node's address is on one of its interfaces",
        reads="address in the settings, the interfaces' addresses",
        rule="Fails where no interface has it; an address of the machine alone warns on a node that is on a fabric.",
        costs="Engines cannot listen, or no router reaches them.",
        fix=Fix("Correct `address` in the node's settings."),
        judge=_address,
    ),
    Check(
        id="network.bootstrap",
        group=Group.NETWORK,
        title="The interface over which the processes of a fabric meet is up and has an address",
        reads=f"the fabric's interface, {FOLDER}/*/{{operstate,carrier}}, the interfaces' addresses",
        rule="Fails where it is missing, down, or has no address but link-local ones.",
        costs="`Bootstrap : no socket interface found`: nothing that spans nodes starts.",
        fix=Fix("Correct `interface` of the fabric in the node's settings, or bring the interface up."),
        judge=_bootstrap,
    ),
    Check(
        id="network.chosen-interface",
        group=Group.NETWORK,
        title="NCCL is told which interface to meet over",
        reads="the fabric's interface",
        rule="Fails for loopback and for bridges of containers; warns where there is none.",
        costs="NCCL takes a bridge that leads nowhere, and hangs.",
        fix=Fix("Name `interface` for the fabric in the node's settings."),
        judge=_chosen,
    ),
    Check(
        id="network.hostname",
        group=Group.NETWORK,
        title="The host's own name stands for an address that other nodes reach",
        reads=f"getent hosts, else {_HOSTS}",
        rule="Warns for loopback (127.0.1.1) and for an address of no interface; fails where it resolves to nothing.",
        costs="Processes tell others to meet them at loopback, and wait for each other until they give up.",
        fix=Fix(f"Put the node's address and name into {_HOSTS}, and take the name out of its loopback lines."),
        judge=_own_name,
    ),
    Check(
        id="network.families",
        group=Group.NETWORK,
        title="All addresses of the node are of one family",
        reads="address in the settings, the fabrics' addresses, getent hosts",
        rule="Warns where IPv4 and IPv6 are mixed.",
        costs="One process offers an address of a family that another does not use.",
        fix=Fix("Use addresses of one family, or set NCCL_SOCKET_FAMILY."),
        judge=_families,
        worst=Severity.WARN,
    ),
    Check(
        id="network.reverse-path",
        group=Group.NETWORK,
        title="Packets are taken by whichever interface they come",
        reads="/proc/sys/net/ipv4/conf/*/rp_filter, the interfaces' addresses",
        rule="Warns where several interfaces share a network and the filter is strict (1).",
        costs="Answers that come by the other interface are dropped without a word.",
        fix=Fix(
            "Make the filter loose, for good in /etc/sysctl.d.",
            "sysctl -w net.ipv4.conf.{interface}.rp_filter=2",
            undo="sysctl -w net.ipv4.conf.{interface}.rp_filter=1",
        ),
        judge=_reverse_path,
        worst=Severity.WARN,
    ),
    Check(
        id="network.conntrack",
        group=Group.NETWORK,
        title="The kernel's table of connections has room",
        reads="/proc/sys/net/netfilter/nf_conntrack_{count,max}",
        rule="Warns above three quarters, fails above 95 %.",
        costs="New connections are dropped at random.",
        fix=Fix(
            "Enlarge it, for good in /etc/sysctl.d.",
            "sysctl -w net.netfilter.nf_conntrack_max={max}",
            undo="sysctl -w net.netfilter.nf_conntrack_max={old}",
            safe=True,
        ),
        judge=_conntrack,
    ),
    *network_ports.CHECKS,
    *network_proxy.CHECKS,
)
NOT_YET: Final[tuple[tuple[str, str, str], ...]] = (
    ("network.both-ways", "Each node of a fabric reaches each other one", "needs a listener on another node"),
    ("network.mtu", "The interfaces of all nodes have one MTU", "needs the other nodes' values beside this one's"),
    (
        "network.open-ports",
        "The ports that processes meet on are open between nodes",
        "needs a listener on another node",
    ),
    ("network.closed-ports", "Those ports are closed to everybody else", "needs a look from outside of the node"),
)
