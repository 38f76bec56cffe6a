"""Checks of TCP ports: free for engines, kept from the kernel's own use, and closed to strangers."""

import ipaddress
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from llmgw.core.hardware.findings import Severity
from llmgw.core.units import counted
from workers.doctor.entry import Check, Fix, Group, Outcome, Patient, failed, passed, unknown, warned
from workers.doctor.reading.launches import kept
from workers.doctor.reading.sockets import Listener, listeners, parse_ranges, without
from workers.doctor.reading.words import listed
from workers.engines.probe import is_any

_UNREAD: Final = "who listens here is not told: /proc/net/tcp cannot be read"
_EPHEMERAL: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_RESERVED: Final = Path("/proc/sys/net/ipv4/ip_local_reserved_ports")
_DASHBOARD: Final = 8265


def _free(patient: Patient) -> Iterator[Outcome]:
    found = listeners(patient.machine)
    if found is None:
        yield unknown(_UNREAD)
        return
    first, last = patient.settings.engine_ports
    ours = {launch.port for launch in kept(patient)}
    in_the_way = {one.port for one in found if first <= one.port <= last and _is_in_the_way(patient, one)}
    strangers, many = sorted(in_the_way - ours), last - first + 1
    facts: dict[str, Any] = {"taken": strangers[:20], "ours": sorted(in_the_way & ours)}
    text = f"{listed([str(port) for port in strangers])} of the engines' ports taken by others"
    if not strangers:
        yield passed(f"no stranger listens on the {counted(many, 'port')} for engines", **facts)
    elif len(strangers) < many:
        yield warned(text, **facts)
    else:
        yield failed(f"all of the engines' ports, {first} to {last}, are taken by others", **facts)


def _is_in_the_way(patient: Patient, listener: Listener) -> bool:
    host = patient.settings.engine_host
    return is_any(host) or is_any(listener.address) or listener.address == host or not _is_address(host)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _ephemeral(patient: Patient) -> Iterator[Outcome]:
    told = (patient.machine.read_text(_EPHEMERAL) or "").split()
    bounds = [int(word) for word in told if word.isascii() and word.isdigit() and len(word) < 6]
    if len(bounds) != 2:
        yield unknown("which ports the kernel hands out by itself is not told")
        return
    reserved = (patient.machine.read_text(_RESERVED) or "").strip()
    first, last = patient.settings.engine_ports
    shared = (max(first, bounds[0]), min(last, bounds[1]))
    open_parts = without(shared, parse_ranges(reserved)) if shared[0] <= shared[1] else ()
    if not open_parts:
        yield passed(f"the kernel hands out none of the engines' ports, {first} to {last}", range=bounds)
        return
    parts = ",".join(f"{low}-{high}" for low, high in open_parts)
    text = f"the kernel hands out {bounds[0]} to {bounds[1]} by itself, the engines' ports {parts} among them"
    old = ",".join(f"{low}-{high}" for low, high in parse_ranges(reserved))
    yield warned(text, range=bounds).cured_by(ports=",".join(filter(None, (old, parts))), old=old)


def _dashboard(patient: Patient) -> Iterator[Outcome]:
    found = listeners(patient.machine)
    if found is None:
        yield unknown(_UNREAD)
        return
    there = [one for one in found if one.port == _DASHBOARD]
    public = sorted({one.address for one in there if not one.is_local})
    if public:
        yield failed(f"port {_DASHBOARD}, Ray's dashboard, is open on {listed(public)}", addresses=public)
    else:
        where = "on loopback alone" if there else "nowhere"
        yield passed(f"port {_DASHBOARD}, Ray's dashboard, is open {where}")


def _exposure(patient: Patient) -> Iterator[Outcome]:
    host = patient.settings.engine_host
    if is_any(host):
        yield warned(f"engines listen on every address of this node ({host}), in every network that it is in")
    elif _is_address(host) and ipaddress.ip_address(host).is_global:
        yield warned(f"engines listen on {host}, an address of the public internet")
    else:
        yield passed(f"engines listen on {host} alone")


CHECKS: Final[tuple[Check, ...]] = (
    Check(
        id="network.engine-ports",
        group=Group.NETWORK,
        title="No stranger listens on the engines' ports",
        reads="/proc/net/tcp, /proc/net/tcp6, engine_ports in the settings, the node's own launches",
        rule="Warns where some are taken, fails where all are.",
        costs="Engines have fewer ports, or none: `address already in use`.",
        fix=Fix("End what listens there (`ss -ltnp`), or choose another range for engine_ports."),
        judge=_free,
    ),
    Check(
        id="network.ephemeral",
        group=Group.NETWORK,
        title="The kernel does not hand out the engines' ports",
        reads=f"{_EPHEMERAL}, {_RESERVED}",
        rule="Warns where the ranges overlap and the overlap is not reserved.",
        costs="Now and then an engine's port is taken by somebody's connection: `address already in use`.",
        fix=Fix(
            "Reserve them, for good in /etc/sysctl.d; or choose engine_ports below the kernel's range.",
            "sysctl -w 'net.ipv4.ip_local_reserved_ports={ports}'",
            undo="sysctl -w 'net.ipv4.ip_local_reserved_ports={old}'",
            safe=True,
        ),
        judge=_ephemeral,
        worst=Severity.WARN,
    ),
    Check(
        id="network.exposure",
        group=Group.NETWORK,
        title="Engines listen on one address, of a private network",
        reads="engine_host in the settings",
        rule="Warns for every address at once, and for one of the public internet.",
        costs="Engines ask for no key: whoever reaches them uses them, past every quota.",
        fix=Fix("Name the address that routers use as engine_host in the settings; let a firewall do the rest."),
        judge=_exposure,
        worst=Severity.WARN,
    ),
    Check(
        id="network.ray-dashboard",
        group=Group.NETWORK,
        title="Ray's dashboard is not open to others",
        reads=f"/proc/net/tcp, /proc/net/tcp6 (port {_DASHBOARD})",
        rule="Fails where it listens on another address than loopback.",
        costs="Whoever reaches it runs commands on this node: it takes jobs and asks for nothing.",
        fix=Fix("Start Ray with `--include-dashboard=false`."),
        judge=_dashboard,
    ),
)
