"""Checks of InfiniBand and RoCE ports: are they there, are they up, and do they run as fast as their like."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from llmgw.core.hardware.findings import Severity
from llmgw.core.hardware.network import LinkLayer, Port, PortState
from llmgw.core.units import counted
from workers.doctor.checks import port_counters, port_surroundings
from workers.doctor.checks.adapters import (
    active_ports,
    alike,
    each,
    fabric_of,
    full_name,
    hardware_ports,
    infiniband_ports,
    is_wanted,
    nothing,
)
from workers.doctor.entry import Check, Fix, Group, Outcome, Patient, failed, passed, unknown, warned
from workers.doctor.reading.pcie import DEVICES
from workers.doctor.reading.words import listed
from workers.ports import Machine

_MELLANOX: Final = "0x15b3"
_INFINIBAND_CLASS: Final = "0x0207"
_ETHERNET_CLASS: Final = "0x0200"
_NO_ADAPTER: Final = "there is no InfiniBand or RoCE adapter"
_OLD_SPEEDS: Final = frozenset({"SDR", "DDR", "QDR", "FDR", "FDR10", "EDR", "HDR"})
"""With one lane, none of these is sold: the cable or the port has lost its others."""


def _is_down(port: Port, physical: str) -> bool:
    return port.state is PortState.DOWN and port.physical_state == physical


def _words(port: Port) -> str:
    return (
        f"{port.name} is {(port.state or 'in an unknown state').upper()}, physically {port.physical_state or 'unknown'}"
    )


def _worse(patient: Patient, port: Port, text: str) -> Outcome:
    """Judge a port that carries nothing by whether work is to go over it."""
    if is_wanted(patient, port):
        return failed(text, port.name)
    return warned(f"{text}; no fabric is declared on it, so nothing waits for it", port.name)


# --- is it there ----------------------------------------------------------------------------------------------------


def _present(patient: Patient) -> Iterator[Outcome]:
    names = {port.name for port in patient.inventory.ports}
    missing = [
        failed(f"{name} is declared for fabric {fabric.name} and not there", name)
        for fabric in patient.settings.fabrics
        for name in map(full_name, fabric.ports)
        if name not in names
    ]
    idle = [outcome for address in _functions(patient) if (outcome := _without_rdma(patient, address))]
    yield from missing + idle
    if not missing and not idle:
        adapters = {port.hca for port in hardware_ports(patient)}
        is_there = f"{counted(len(adapters), 'adapter')}, as PCI shows them"
        yield passed(is_there, adapters=sorted(adapters)) if adapters else nothing(patient, _NO_ADAPTER)


def _functions(patient: Patient) -> tuple[str, ...]:
    """Return the PCI addresses of network functions that belong to this system: no guest's, and none in a bond."""
    machine = patient.machine
    return tuple(address for address in machine.names_in(DEVICES) if _is_adapter(machine, DEVICES / address))


def _is_adapter(machine: Machine, device: Path) -> bool:
    if (machine.read_text(device / "vendor") or "").strip() != _MELLANOX or not _class_of(machine, device):
        return False
    is_lent = machine.link(device / "physfn") or (machine.link(device / "driver") or "").endswith("/vfio-pci")
    is_bonded = any(machine.link(Path("/sys/class/net") / name / "master") for name in machine.names_in(device / "net"))
    return not is_lent and not is_bonded


def _class_of(machine: Machine, device: Path) -> str | None:
    told = (machine.read_text(device / "class") or "").strip()[: len(_ETHERNET_CLASS)]
    return told if told in {_INFINIBAND_CLASS, _ETHERNET_CLASS} else None


def _without_rdma(patient: Patient, address: str) -> Outcome | None:
    if any(port.pci_address == address for port in patient.inventory.ports):
        return None
    text = f"the adapter at {address} is on PCI and offers no RDMA device"
    is_infiniband = _class_of(patient.machine, DEVICES / address) == _INFINIBAND_CLASS
    return failed(text, address) if is_infiniband else warned(text, address)


# --- is it up -------------------------------------------------------------------------------------------------------


def _state(patient: Patient, port: Port) -> Outcome | None:
    if port.is_active:
        return passed(f"{port.name} is ACTIVE", port.name)
    if port.state is None:
        return unknown(f"the state of {port.name} could not be read", port.name)
    is_told_below = port.state in {PortState.INIT, PortState.ARMED}
    is_told_below = is_told_below or any(_is_down(port, physical) for physical in ("polling", "disabled"))
    return None if is_told_below else _worse(patient, port, _words(port))


def _cable(patient: Patient, port: Port) -> Outcome | None:
    if _is_down(port, "polling"):
        return _worse(patient, port, f"{port.name} hears no light from the far end (DOWN, Polling)")
    return None if port.state in {PortState.DOWN, None} else passed(f"{port.name} has a link", port.name)


def _disabled(patient: Patient, port: Port) -> Outcome | None:
    if _is_down(port, "disabled"):
        return _worse(patient, port, f"{port.name} was switched off (DOWN, Disabled)")
    return None if port.state is None else passed(f"{port.name} is switched on", port.name)


def _managed(patient: Patient, port: Port) -> Outcome | None:
    if port.link_layer is not LinkLayer.INFINIBAND or port.state in {PortState.DOWN, PortState.NOP, None}:
        return None
    if port.state is PortState.INIT:
        text = f"{port.name} has a link and no subnet manager has reached it (INIT)"
    elif port.state is PortState.ARMED:
        text = f"{port.name} stays ARMED: its subnet manager does not finish"
    else:
        return passed(f"{port.name} was set up by a subnet manager", port.name)
    is_left_out = patient.settings.fabrics and not fabric_of(patient, port)
    return warned(text, port.name) if is_left_out else failed(text, port.name)


def _lid(_: Patient, port: Port) -> Outcome:
    if port.lid is None or port.subnet_manager_lid is None:
        return unknown(f"the LIDs of {port.name} could not be read", port.name)
    if port.lid and port.subnet_manager_lid:
        return passed(f"{port.name} has LID {port.lid}, its subnet manager {port.subnet_manager_lid}", port.name)
    return failed(f"{port.name} has LID {port.lid}, its subnet manager {port.subnet_manager_lid}", port.name)


# --- does it run as it should ---------------------------------------------------------------------------------------


def _rate(patient: Patient, port: Port) -> Outcome:
    if port.rate_gbps is None:
        return unknown(f"the rate of {port.name} could not be read", port.name)
    fabric = fabric_of(patient, port)
    rates = [other.rate_gbps for other in alike(patient, port) if other.is_active and other.rate_gbps]
    expected = fabric.rate_gbps if fabric and fabric.rate_gbps else max([port.rate_gbps, *rates])
    runs = f"{port.name} runs at {port.rate_gbps:g} Gb/s"
    lanes = f" over {counted(port.width, 'lane')}" if port.width else ""
    facts = {"rate_gbps": port.rate_gbps, "expected_gbps": expected, "width": port.width}
    if port.rate_gbps < expected:
        whose = "is declared" if fabric and fabric.rate_gbps else "its like does"
        return failed(f"{runs}{lanes}, {expected:g} Gb/s {whose}", port.name, **facts)
    if port.width == 1 and port.speed in _OLD_SPEEDS and port.link_layer is LinkLayer.INFINIBAND:
        return failed(f"{runs} over 1 lane: the others are broken", port.name, **facts)
    return passed(f"{runs}{lanes}", port.name, **facts)


def _link_layer(patient: Patient) -> Iterator[Outcome]:
    for fabric in patient.settings.fabrics:
        ports = [port for port in hardware_ports(patient) if fabric_of(patient, port) == fabric]
        kinds = sorted({port.link_layer.value for port in ports if port.link_layer})
        if not kinds:
            yield unknown(f"what the ports of fabric {fabric.name} speak could not be read", fabric.name)
        elif len(kinds) == 1:
            yield passed(f"all ports of fabric {fabric.name} speak {kinds[0]}", fabric.name)
        else:
            yield failed(
                f"fabric {fabric.name} has ports that speak {' and some that speak '.join(kinds)}", fabric.name
            )
    if not patient.settings.fabrics:
        yield nothing(patient, "no fabric is declared")


def _partition(_: Patient, port: Port) -> Outcome:
    keys = [int(key, 16) for key in port.partitions if _is_hexadecimal(key)]
    said = listed(port.partitions)
    if not keys:
        return unknown(f"the partitions of {port.name} could not be read", port.name)
    if any(key & 0x8000 for key in keys):
        return passed(f"{port.name} is a full member of a partition: {said}", port.name)
    return warned(f"{port.name} is a limited member only: {said}", port.name)


def _is_hexadecimal(text: str) -> bool:
    digits = text.removeprefix("0x")
    return 0 < len(digits) <= 8 and all(digit in "0123456789abcdefABCDEF" for digit in digits)


def _firmware(patient: Patient) -> Iterator[Outcome]:
    boards: dict[str, dict[str, list[str]]] = {}
    for port in hardware_ports(patient):
        if port.board and port.firmware:
            boards.setdefault(port.board, {}).setdefault(port.firmware, []).append(port.name)
    for board, versions in sorted(boards.items()):
        if len(versions) == 1:
            yield passed(f"all adapters {board} have firmware {next(iter(versions))}", board)
        else:
            each_one = "; ".join(f"{version} on {listed(names)}" for version, names in sorted(versions.items()))
            yield warned(f"adapters {board} have several firmwares: {each_one}", board, versions=versions)
    if not boards:
        ports = hardware_ports(patient)
        yield unknown("no adapter tells its firmware") if ports else nothing(patient, _NO_ADAPTER)


_NCCL_SKIPS: Final = "NCCL passes over the port without a word: fewer rails, or none, and then traffic over TCP."

CHECKS: Final[tuple[Check, ...]] = (
    Check(
        id="port.present",
        group=Group.PORTS,
        title="Every adapter that is on PCI or declared offers its RDMA device",
        reads="/sys/bus/pci/devices (vendor 15b3), /sys/class/infiniband, the declared fabrics",
        rule="Fails for a declared port that is not there and for an InfiniBand function without RDMA device; warns "
        "for an Ethernet function without one. Functions lent to guests and members of a bond are left out.",
        costs="A rail is lost.",
        fix=Fix(
            "Load the adapter's driver, or seat the card anew when the driver does not find it.", "modprobe mlx5_ib"
        ),
        judge=_present,
    ),
    Check(
        id="port.state",
        group=Group.PORTS,
        title="Every port is active",
        reads="/sys/class/infiniband/*/ports/*/{state,phys_state}",
        rule="Passes for ACTIVE with LinkUp. A port that polls, is switched off, or waits for its subnet manager is "
        "told by the checks of that; any other state fails, or warns where no work is to go over the port.",
        costs=_NCCL_SKIPS,
        fix=Fix(
            "Look at the cable, the module and the switch port; a port that trains for ever has a bad one of them."
        ),
        judge=each(hardware_ports, _state, "there is no port, or none but those that the next checks tell of"),
    ),
    Check(
        id="port.cable",
        group=Group.PORTS,
        title="Every port hears its far end",
        reads="/sys/class/infiniband/*/ports/*/{state,phys_state}",
        rule="DOWN with Polling fails for a port that is declared, or whose like is in use; else it warns.",
        costs=_NCCL_SKIPS,
        fix=Fix("Plug in or change the cable; see whether the switch port is on."),
        judge=each(hardware_ports, _cable, _NO_ADAPTER),
    ),
    Check(
        id="port.disabled",
        group=Group.PORTS,
        title="No port is switched off",
        reads="/sys/class/infiniband/*/ports/*/{state,phys_state}",
        rule="DOWN with Disabled fails for a port that is declared, or whose like is in use; else it warns.",
        costs=_NCCL_SKIPS,
        fix=Fix(
            "Switch it on: InfiniBand by `ibportstate -C HCA -D 0 PORT enable`, RoCE by `ip link set dev INTERFACE up`."
        ),
        judge=each(hardware_ports, _disabled, _NO_ADAPTER),
    ),
    Check(
        id="port.subnet-manager",
        group=Group.PORTS,
        title="Every InfiniBand port with a link was set up by a subnet manager",
        reads="/sys/class/infiniband/*/ports/*/state",
        rule="INIT and ARMED fail; they warn for a port of no declared fabric where others are declared.",
        costs="The link is well and carries nothing: no subnet manager has reached it, or it does not finish.",
        fix=Fix("Start or repair the fabric's subnet manager; this is the fabric's fault and not this node's."),
        judge=each(hardware_ports, _managed, "there is no InfiniBand port with a link"),
    ),
    Check(
        id="port.lid",
        group=Group.PORTS,
        title="Every active InfiniBand port knows its own and its subnet manager's LID",
        reads="/sys/class/infiniband/*/ports/*/{lid,sm_lid}",
        rule="Fails when either is 0.",
        costs="No path to other nodes can be asked for.",
        fix=Fix("Start or repair the fabric's subnet manager."),
        judge=each(infiniband_ports, _lid, "there is no active InfiniBand port"),
    ),
    Check(
        id="port.rate",
        group=Group.PORTS,
        title="Every port runs as fast as declared, and as its like",
        reads="/sys/class/infiniband/*/ports/*/rate",
        rule="Compared with the fabric's declared rate, else with the fastest port of the same fabric, else of the "
        "same kind of card. Lower fails; so does a single lane.",
        costs="The slowest rail sets the pace of every collective operation.",
        fix=Fix(
            "Change the cable; a single lane is a broken one. See whether the switch port is set to a lower speed."
        ),
        judge=each(active_ports, _rate, "there is no active port"),
    ),
    Check(
        id="port.link-layer",
        group=Group.PORTS,
        title="All ports of a fabric speak the same",
        reads="/sys/class/infiniband/*/ports/*/link_layer, the declared fabrics",
        rule="Fails for a fabric with both InfiniBand and Ethernet ports.",
        costs="NCCL refuses a list that mixes them.",
        fix=Fix("Declare them as two fabrics, or set the adapters alike with `mlxconfig` (LINK_TYPE) and reboot."),
        judge=_link_layer,
    ),
    Check(
        id="port.partition",
        group=Group.PORTS,
        title="Every active InfiniBand port is a full member of a partition",
        reads="/sys/class/infiniband/*/ports/*/pkeys",
        rule="Warns where all keys are of limited membership (bit 15 is not set).",
        costs="Two limited members cannot talk to each other, and no error shows it on the link.",
        fix=Fix("Have the subnet manager give full membership (partitions.conf)."),
        judge=each(infiniband_ports, _partition, "there is no active InfiniBand port"),
        worst=Severity.WARN,
    ),
    Check(
        id="port.firmware",
        group=Group.PORTS,
        title="Adapters of one kind have one firmware",
        reads="/sys/class/infiniband/*/{board_id,fw_ver}",
        rule="Warns where adapters of one board id differ.",
        costs="Faults that show on some rails only.",
        fix=Fix("Bring the older ones up to date (`mlxfwmanager`), with the node drained."),
        judge=_firmware,
        worst=Severity.WARN,
    ),
    *port_surroundings.CHECKS,
    *port_counters.CHECKS,
)
NOT_YET: Final[tuple[tuple[str, str, str], ...]] = ()
