"""NVSwitches between the cards of this machine, and the fabric manager that has to set them up."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from llmgw.core.hardware.findings import Finding, Severity
from llmgw.core.hardware.gpus import Driver, FabricState, Gpu, NvSwitch, Service
from workers import tools
from workers.discovery import systemd
from workers.discovery.nvidia.pci_cards import DEVICES, NVIDIA
from workers.ports import Machine
from workers.settings import NodeSettings

UNIT: Final = "nvidia-fabricmanager.service"
_BRIDGE: Final = "0x0680"
_SWITCHES: Final = ("0x1af1", "0x1ac0", "0x1ac1", "0x22a3", "0x1f12")
"""PCI device ids of NVSwitches: of the V100, A100 and H100 generations."""
_RACK: Final = re.compile(r"\bGB[23]00\b")
_NVLINK5_BOARD: Final = re.compile(r"\bB[23]00\b")
_VERSION: Final = re.compile(r"(\d{3}\.\d+(?:\.\d+)?)")


def find(machine: Machine, settings: NodeSettings, gpus: Sequence[Gpu]) -> NvSwitch | None:
    """Return the switches and their manager; None on a machine that has neither."""
    switches = _switches(machine)
    needed = _is_needed(switches, gpus)
    manager = systemd.service(machine, settings, UNIT, _version(machine, settings)) if gpus else None
    is_there = manager is not None and manager.state not in {None, "not-found"}
    if not switches and not needed and not is_there:
        return None
    return NvSwitch(switches=switches, fabric_manager=manager, is_needed=needed)


def _switches(machine: Machine) -> int:
    """Count them on the bus; boards of the fifth generation of NVLink show none."""
    return sum(_is_switch(machine, name) for name in machine.names_in(DEVICES))


def _is_switch(machine: Machine, name: str) -> bool:
    folder = DEVICES / name
    if (machine.read_text(folder / "vendor") or "").strip().lower() != NVIDIA:
        return False
    device = (machine.read_text(folder / "device") or "").strip().lower()
    kind = (machine.read_text(folder / "class") or "").strip().lower()
    return kind.startswith(_BRIDGE) and (device in _SWITCHES or not device)


def _is_needed(switches: int, gpus: Sequence[Gpu]) -> bool | None:
    """In a rack the manager runs on the switch trays; on a board with switches it must run here."""
    names = " ".join(gpu.name or "" for gpu in gpus)
    if _RACK.search(names):
        return False
    if switches:
        return True
    if _NVLINK5_BOARD.search(names) and len(gpus) > 1:
        return True
    on_fabric = any(gpu.fabric and gpu.fabric.state is not FabricState.NOT_SUPPORTED for gpu in gpus)
    return None if on_fabric else False


def _version(machine: Machine, settings: NodeSettings) -> str | None:
    answer = tools.ask(machine, settings, "nv-fabricmanager", "--version")
    found = _VERSION.search(answer.out + answer.err) if answer.ok else None
    return found[1] if found else None


def findings(nvswitch: NvSwitch | None, driver: Driver | None, gpus: Sequence[Gpu]) -> Iterator[Finding]:
    """Say what is wrong with the manager where one is needed; a machine without switches may have it fail in peace."""
    manager = nvswitch.fabric_manager if nvswitch else None
    if nvswitch is None or manager is None or not nvswitch.is_needed:
        return
    if manager.state not in {"active", None} and not _are_registered(gpus):
        yield from _down(manager, gpus)
    elif manager.version and driver and driver.version and manager.version != driver.version:
        yield Finding(
            "nvswitch.fabric-manager-version",
            f"the fabric manager is {manager.version}, the driver {driver.version}: they must be the same",
            severity=Severity.FAIL,
            costs="the fabric manager ends when it is started next, and CUDA fails with error 802",
            cure="install the fabric manager of the driver's version",
        )


def _are_registered(gpus: Sequence[Gpu]) -> bool:
    """Tell whether all cards that tell have been registered, which only a manager that works does."""
    told = [gpu.fabric for gpu in gpus if gpu.fabric and not gpu.failed]
    return bool(told) and all(fabric.state is FabricState.COMPLETED and fabric.status == "success" for fabric in told)


def _down(manager: Service, gpus: Sequence[Gpu]) -> Iterator[Finding]:
    for gpu in gpus:
        yield Finding(
            "nvswitch.fabric-manager-down",
            f"{gpu.called}: the fabric manager is {manager.state}, and the cards' NVSwitches wait for it",
            severity=Severity.FAIL,
            about=gpu.uuid or "",
            costs="nvidia-smi looks well, and CUDA fails with error 802: system not yet initialized",
            cure="`systemctl enable --now nvidia-fabricmanager`; its log is /var/log/fabricmanager.log",
            excludes=True,
        )
