"""Checks of how the kernel lets cards and adapters reach each other: access control on bridges, and the IOMMU."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from llmgw.core.hardware.findings import Severity
from workers import tools
from workers.doctor.checks.adapters import hardware_ports
from workers.doctor.entry import Check, Fix, Group, Outcome, Patient, failed, not_here, passed, unknown, warned
from workers.doctor.reading.host import is_virtual
from workers.doctor.reading.pcie import DEVICES, Bridge, above, parse_bridges
from workers.doctor.reading.words import listed, unanswered

_COMMAND_LINE: Final = Path("/proc/cmdline")
_UNITS: Final = Path("/sys/class/iommu")
_GROUPS: Final = Path("/sys/kernel/iommu_groups")
_PASS_THROUGH: Final = re.compile(r"\biommu=(?:pt|off)\b|\b(?:intel|amd)_iommu=off\b|\biommu\.passthrough=1\b")


def _devices(patient: Patient) -> tuple[str, ...]:
    """Return the PCI addresses of cards and adapters."""
    cards = [gpu.pci_address for gpu in patient.inventory.gpus]
    adapters = [port.pci_address for port in hardware_ports(patient)]
    return tuple(dict.fromkeys(address for address in cards + adapters if address))


def _is_alone(patient: Patient) -> bool:
    """Tell whether no two devices here would talk to each other past the processor."""
    return not patient.inventory.gpus or len(patient.inventory.gpus) + len(hardware_ports(patient)) < 2


# --- access control ---------------------------------------------------------------------------------------------------


def _access_control(patient: Patient) -> Iterator[Outcome]:
    if _is_alone(patient):
        yield not_here("no card has another card or an adapter beside it")
        return
    if is_virtual(patient.machine):
        yield not_here("in a virtual machine the host decides this, and needs it on")
        return
    result = tools.ask(patient.machine, patient.settings, "lspci", "-D", "-vvv")
    if not result.out:
        yield unanswered("access control on the bridges", "lspci", result)
        return
    yield _judge_bridges(_above_devices(patient, parse_bridges(result.out)))


def _above_devices(patient: Patient, bridges: tuple[Bridge, ...]) -> tuple[Bridge, ...]:
    """Return the bridges that are above cards and adapters; all of them where sysfs does not tell."""
    wanted = {bridge for address in _devices(patient) for bridge in above(patient.machine, address)}
    return tuple(bridge for bridge in bridges if not wanted or bridge.address in wanted)


def _judge_bridges(bridges: tuple[Bridge, ...]) -> Outcome:
    redirecting = [bridge.address for bridge in bridges if bridge.redirects]
    if redirecting:
        text = f"bridges above cards or adapters send their traffic up to the processor (ACS): {listed(redirecting)}"
        each_one = " ".join(f"-s {address} ECAP_ACS+0x6.w=0000" for address in redirecting)
        return failed(text, bridges=redirecting).cured_by(settings=each_one)
    if any(bridge.redirects is None for bridge in bridges):
        return unknown("access control on the bridges is not shown to this user: lspci tells it to root alone")
    return passed("no bridge above cards or adapters sends their traffic up to the processor")


# --- IOMMU ------------------------------------------------------------------------------------------------------------


def _iommu(patient: Patient) -> Iterator[Outcome]:
    devices = _devices(patient)
    if not devices:
        yield not_here("there are neither cards nor adapters on PCI")
        return
    if not patient.machine.names_in(_UNITS):
        yield passed("no IOMMU is in use")
        return
    kinds = {address: kind for address in devices if (kind := _kind(patient, address))}
    translated = sorted(address for address, kind in kinds.items() if kind != "identity")
    line = patient.machine.read_text(_COMMAND_LINE)
    if translated:
        yield warned(f"the IOMMU translates the addresses of {listed(translated)}", devices=kinds)
    elif kinds:
        yield passed("the IOMMU passes cards and adapters through", devices=kinds)
    elif line is None:
        yield unknown("there is an IOMMU, and what it does is told neither by its groups nor by the command line")
    elif _PASS_THROUGH.search(line):
        yield passed("the kernel's command line has the IOMMU pass devices through")
    else:
        yield warned("there is an IOMMU, and the kernel's command line does not have it pass devices through")


def _kind(patient: Patient, address: str) -> str | None:
    """Return how the kernel has set a device's group: `identity`, `DMA`, `DMA-FQ`."""
    group = (patient.machine.link(DEVICES / address / "iommu_group") or "").rpartition("/")[2]
    told = patient.machine.read_text(_GROUPS / group / "type") if group else None
    return (told or "").strip() or None


CHECKS: Final[tuple[Check, ...]] = (
    Check(
        id="kernel.acs",
        group=Group.KERNEL,
        title="No bridge sends traffic between cards and adapters up to the processor",
        reads="lspci -D -vvv (ACSCtl), /sys/bus/pci/devices",
        rule="Fails for SrcValid+ on a bridge above a card or an adapter, on bare metal; unknown where lspci may "
        "not tell.",
        costs="Traffic between cards, and between card and adapter, is slow or hangs.",
        fix=Fix(
            "Switch it off in the firmware, or by this command in a unit at each start; it lasts until the next.",
            "setpci {settings}",
        ),
        judge=_access_control,
    ),
    Check(
        id="kernel.iommu",
        group=Group.KERNEL,
        title="The IOMMU is off or passes cards and adapters through",
        reads="/sys/class/iommu, /sys/kernel/iommu_groups/*/type, /proc/cmdline",
        rule="Passes without an IOMMU and for groups of type `identity`; warns where addresses are translated.",
        costs="Each transfer is translated: GPUDirect is slow.",
        fix=Fix("Add `iommu=pt` (ARM: `iommu.passthrough=1`) to the kernel's command line and reboot."),
        judge=_iommu,
        worst=Severity.WARN,
    ),
)
