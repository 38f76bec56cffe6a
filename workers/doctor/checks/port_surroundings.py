"""Checks of what a port needs around it: a card nearby, a device node that engines may open, and an equal MTU."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from llmgw.core.hardware.findings import Severity
from llmgw.core.hardware.network import LinkLayer, Port
from llmgw.core.units import counted
from workers import tools
from workers.doctor.checks.adapters import active_ports, alike, each, hardware_ports, nothing
from workers.doctor.entry import Check, Fix, Group, Outcome, Patient, failed, passed, unknown, warned
from workers.doctor.reading import ibstat
from workers.doctor.reading.ibstat import SeenPort
from workers.doctor.reading.verbs import node_of, parse_active_mtus
from workers.doctor.reading.words import listed, unanswered

_NONE_ACTIVE: Final = "there is no active port"
_NEAREST_FIRST: Final = ("PIX", "PXB", "PHB", "NODE", "SYS")
_NEAR: Final = frozenset({"PIX", "PXB"})
_WHOLE_MTU: Final = 4096
_MODULES: Final = Path("/sys/module")
"""There on every live kernel; a tree without it is a part of one, in which nothing else need be."""

# --- near a card ----------------------------------------------------------------------------------------------------


def _near(patient: Patient, port: Port) -> Outcome | None:
    if not patient.inventory.gpus:
        return None
    by = _nearest(patient, port.hca)
    if by is not None:
        return _judge_path(patient, port, by)
    nodes = {gpu.numa_node for gpu in patient.inventory.gpus} - {None, -1}
    if port.numa_node in {None, -1} or not nodes:
        return unknown(f"how near {port.name} is to the cards could not be read", port.name)
    if port.numa_node in nodes:
        return passed(f"{port.name} is on NUMA node {port.numa_node}, as a card is", port.name)
    return failed(f"{port.name} is on NUMA node {port.numa_node}, and no card is", port.name)


def _nearest(patient: Patient, hca: str) -> str | None:
    """Return the shortest way from an adapter to any card, by the driver's matrix."""
    pairs = patient.inventory.topology.pairs if patient.inventory.topology else ()
    ways = {pair.by for pair in pairs if hca in {pair.a, pair.b} and any(n.startswith("GPU") for n in (pair.a, pair.b))}
    return next((way for way in _NEAREST_FIRST if way in ways), None)


def _judge_path(patient: Patient, port: Port, by: str) -> Outcome:
    text = f"the way from {port.name} to its nearest card is {by}"
    # On Grace the cards hang on the processor itself, and NCCL counts that as near.
    if by in _NEAR or (by != "SYS" and patient.inventory.architecture == "aarch64"):
        return passed(text, port.name, path=by)
    return failed(text, port.name, path=by) if by == "SYS" else warned(text, port.name, path=by)


# --- a second look --------------------------------------------------------------------------------------------------


def _second_look(patient: Patient) -> Iterator[Outcome]:
    ports = {port.name: port for port in hardware_ports(patient)}
    if not ports:
        yield nothing(patient, "there is no InfiniBand or RoCE adapter")
        return
    answer = tools.ask(patient.machine, patient.settings, "ibstat")
    seen = {each.name: each for each in ibstat.parse(answer.out)}
    if not seen:  # it ends with 255 after good ports where one is not its own, so its code says nothing
        yield unanswered("what the library sees", "ibstat", answer)
        return
    odd = [text for name, each in seen.items() if name in ports and (text := _differs(ports[name], each))]
    missing = sorted(ports.keys() - seen.keys())
    yield from (warned(text) for text in odd)
    if missing:
        yield warned(f"ibstat does not see {listed(missing)}: the user-space library lacks the driver's part")
    if not odd and not missing:
        yield passed(f"ibstat says the same of {counted(len(ports), 'port')}")


def _differs(port: Port, seen: SeenPort) -> str:
    is_active = seen.state == "active"
    if port.state is not None and seen.state and port.is_active != is_active:
        return f"{port.name}: ibstat says {seen.state}, the kernel {port.state}"
    if port.rate_gbps and seen.rate_gbps and is_active and abs(port.rate_gbps - seen.rate_gbps) >= 1:
        return f"{port.name}: ibstat says {seen.rate_gbps:g} Gb/s, the kernel {port.rate_gbps:g}"
    return ""


# --- device nodes ---------------------------------------------------------------------------------------------------


def _nodes(patient: Patient, port: Port) -> Outcome:
    machine = patient.machine
    verbs = node_of(machine, "uverbs", port.hca)
    node = machine.device_node(verbs) if verbs else None
    if verbs is None and not machine.names_in(_MODULES):
        return unknown(f"whether {port.hca} has a uverbs device: {_MODULES} could not be read", port.name)
    if verbs is None:
        return failed(f"{port.hca} has no uverbs device", port.name)
    if node is None:
        return failed(f"{verbs} of {port.hca} is missing", port.name)
    if not (node.readable and node.writable):
        return failed(f"{verbs} of {port.hca} may not be opened by the user that the doctor runs as", port.name)
    if port.link_layer is not LinkLayer.INFINIBAND:
        return passed(f"{verbs} may be opened", port.name)
    return _management_node(patient, port)


def _management_node(patient: Patient, port: Port) -> Outcome:
    path = node_of(patient.machine, "umad", port.hca, port.port)
    node = patient.machine.device_node(path) if path else None
    if path is None or node is None:
        return warned(f"{port.name} has no umad device, so its subnet manager cannot be asked", port.name)
    if not (node.readable and node.writable):
        return warned(f"{path} of {port.name} may not be opened, so its subnet manager cannot be asked", port.name)
    return passed(f"the uverbs and umad devices of {port.name} may be opened", port.name)


# --- MTU ------------------------------------------------------------------------------------------------------------


def _mtus(patient: Patient) -> Iterator[Outcome]:
    ports = active_ports(patient)
    if not ports:
        yield nothing(patient, _NONE_ACTIVE)
        return
    result = tools.ask(patient.machine, patient.settings, "ibv_devinfo")
    mtus = parse_active_mtus(result.out)
    if not mtus:
        yield unanswered("the MTU of the ports", "ibv_devinfo", result)
        return
    for port in ports:
        yield _mtu(patient, port, mtus)


def _mtu(patient: Patient, port: Port, mtus: dict[str, int]) -> Outcome:
    own = mtus.get(port.name)
    if own is None:
        return unknown(f"ibv_devinfo does not tell the MTU of {port.name}", port.name)
    others = {other.name: mtus[other.name] for other in alike(patient, port) if other.name in mtus}
    larger = sorted(name for name, mtu in others.items() if mtu > own)
    if larger:
        return warned(f"{port.name} has MTU {own}, {listed(larger)} more", port.name, mtu=own)
    if own < _WHOLE_MTU and port.link_layer is LinkLayer.INFINIBAND:
        return warned(f"{port.name} has MTU {own} of {_WHOLE_MTU}", port.name, mtu=own)
    return passed(f"{port.name} has MTU {own}", port.name, mtu=own)


CHECKS: Final[tuple[Check, ...]] = (
    Check(
        id="port.near-gpu",
        group=Group.PORTS,
        title="Every active port is near a card",
        reads="the driver's topology matrix, else NUMA nodes in sysfs",
        rule="PIX and PXB pass, PHB and NODE warn, SYS (another processor) fails; without a matrix, a port on a NUMA "
        "node without cards fails.",
        costs="Data between card and adapter goes through the processor: GPUDirect is slow or not used.",
        fix=Fix("Leave the port out of the fabric, or put the adapter into a slot beside the cards."),
        judge=each(active_ports, _near, "there are no cards, or no active ports"),
    ),
    Check(
        id="port.second-look",
        group=Group.PORTS,
        title="The user-space library sees the ports as the kernel does",
        reads="`ibstat`, against /sys/class/infiniband",
        rule="Warns where state or rate differ, and for a port that ibstat does not see.",
        costs="Engines go by the library: a port that it does not see is not used.",
        fix=Fix("Install rdma-core of this system's version, with the adapter's provider; look again after a change."),
        judge=_second_look,
        worst=Severity.WARN,
    ),
    Check(
        id="port.device-nodes",
        group=Group.PORTS,
        title="Engines may open every active adapter, and the doctor may ask its fabric",
        reads="/sys/class/infiniband_verbs, /sys/class/infiniband_mad, /dev/infiniband",
        rule="Fails where uverbs is missing or may not be read and written by this user; warns where umad may not.",
        costs="Without uverbs there is no RDMA; without umad it stays unknown which subnet manager a port obeys.",
        fix=Fix("Give the worker's user the group of the files in /dev/infiniband, by a udev rule that sets both."),
        judge=each(active_ports, _nodes, _NONE_ACTIVE),
    ),
    Check(
        id="port.mtu",
        group=Group.PORTS,
        title="Every active port has the MTU of its like",
        reads="ibv_devinfo (active_mtu)",
        rule="Warns where a port has less than another of its fabric, and on InfiniBand where it is below 4096.",
        costs="Connections fail to be set up, or large messages are lost while small ones pass.",
        fix=Fix("On InfiniBand the subnet manager sets it (partitions.conf), on RoCE the interface's own MTU."),
        judge=_mtus,
        worst=Severity.WARN,
    ),
)
