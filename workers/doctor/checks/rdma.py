"""Checks of RDMA's modules, and of GPUDirect: may an adapter read a card's memory by itself."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from llmgw.core.hardware.findings import Severity
from llmgw.core.hardware.network import LinkLayer
from workers.discovery.kernel_words import KernelWords
from workers.doctor.checks.adapters import hardware_ports
from workers.doctor.entry import Check, Fix, Group, Outcome, Patient, failed, not_here, passed, unknown, warned
from workers.doctor.reading.host import parse_kernel
from workers.doctor.reading.kernel_log import kernel_words
from workers.doctor.reading.words import listed

_MODULES: Final = Path("/sys/module")
_PEERS: Final = Path("/sys/kernel/mm/memory_peers")
_PEER_MODULES: Final = ("nvidia_peermem", "nv_peer_mem")
_COPIER: Final = Path("/dev/gdrdrv")
_OSRELEASE: Final = Path("/proc/sys/kernel/osrelease")
_DMA_BUF_SINCE: Final = (5, 12)
_WITHOUT: Final = ("GeForce", "TITAN")
"""Products whose memory no adapter may read, whatever is loaded."""
_NEEDED: Final[Mapping[str, tuple[Path, LinkLayer | None]]] = MappingProxyType(
    {
        "ib_uverbs": (Path("/sys/class/infiniband_verbs"), None),
        "ib_umad": (Path("/sys/class/infiniband_mad"), LinkLayer.INFINIBAND),
    }
)
"""Module → where its devices are, and for which adapters alone it is needed."""
_NOTHING: Final = "there are not both cards and adapters here"


def _applies(patient: Patient) -> bool:
    return bool(patient.inventory.gpus) and bool(hardware_ports(patient))


def _peermem(patient: Patient) -> Iterator[Outcome]:
    if not _applies(patient):
        yield not_here(_NOTHING)
    elif all(gpu.name and any(word in gpu.name for word in _WITHOUT) for gpu in patient.inventory.gpus):
        yield not_here(f"{patient.inventory.gpus[0].name} has no GPUDirect RDMA")
    elif module := _loaded(patient):
        yield passed(f"{module} lets adapters read the cards' memory")
    else:
        yield _dma_buf(patient)


def _loaded(patient: Patient) -> str | None:
    """Return the module by which adapters reach the cards; None when there is none."""
    names = patient.machine.names_in(_MODULES)
    module = next((name for name in _PEER_MODULES if name in names), None)
    registered = [name for name in patient.machine.names_in(_PEERS) if name.startswith("nv_mem")]
    return module or (f"memory peer {registered[0]}" if registered else None)


def _dma_buf(patient: Patient) -> Outcome:
    release = patient.inventory.kernel or (patient.machine.read_text(_OSRELEASE) or "").strip()
    kernel, driver = parse_kernel(release), patient.inventory.driver
    if driver is None or driver.is_open is None or kernel is None:
        return unknown("nvidia_peermem is not loaded, and whether DMA-BUF takes its place could not be found out")
    if driver.is_open and kernel >= _DMA_BUF_SINCE:
        return passed(f"DMA-BUF lets adapters read the cards' memory: open driver, kernel {release}")
    why = f"kernel {release} is too old for DMA-BUF" if driver.is_open else "the closed driver has no DMA-BUF"
    return failed(f"adapters cannot read the cards' memory: nvidia_peermem is not loaded, and {why}")


# --- modules ----------------------------------------------------------------------------------------------------------


def _modules(patient: Patient) -> Iterator[Outcome]:
    names = [name for name, (devices, _) in _NEEDED.items() if not _is_loaded(patient, name, devices)]
    speaks = {port.link_layer for port in hardware_ports(patient)}
    missing = [name for name in names if _NEEDED[name][1] is None or _NEEDED[name][1] in speaks]
    if not speaks:
        yield not_here("there is no InfiniBand or RoCE adapter")
    elif missing and not patient.machine.names_in(_MODULES):
        yield unknown(f"whether {listed(missing)} is loaded: {_MODULES} could not be read")
    elif "ib_uverbs" in missing:
        yield failed(f"not loaded: {listed(missing)}; programs cannot open the adapters", missing=missing)
    elif missing:
        yield warned(f"not loaded: {listed(missing)}; the fabric cannot be asked for its manager", missing=missing)
    else:
        yield passed("the modules by which programs open adapters are loaded")


def _is_loaded(patient: Patient, module: str, devices: Path) -> bool:
    """Tell whether a module is there; one that is part of the kernel is seen by its devices alone."""
    return module in patient.machine.names_in(_MODULES) or bool(patient.machine.names_in(devices))


# --- what the kernel says of the module -------------------------------------------------------------------------------


def _load(patient: Patient) -> Iterator[Outcome]:
    words = kernel_words(patient)
    if not _applies(patient):
        yield not_here(_NOTHING)
    elif words.unknown_because:
        yield unknown(f"what the kernel says of nvidia_peermem is not known: {words.unknown_because}")
    else:
        yield _judge_words(words)


def _judge_words(words: KernelWords) -> Outcome:
    refused = words.last(r"nvidia[-_]peermem.*(Unknown symbol|disagrees about version|Invalid argument)")
    if refused:
        return failed(
            "nvidia_peermem could not be loaded: the adapter's modules were not there, or others", literal=refused
        )
    confused = words.last(r"nvidia[-_]peermem.*ERROR")
    if confused:
        return warned("nvidia_peermem has met errors when memory was given back", literal=confused)
    return passed("the kernel says nothing wrong of nvidia_peermem")


def _copier(patient: Patient) -> Iterator[Outcome]:
    if not _applies(patient):
        yield not_here(_NOTHING)
    elif patient.machine.device_node(_COPIER):
        yield passed(f"{_COPIER} is there")
    else:
        yield warned(f"{_COPIER} is missing; small messages take a little longer, all else is as fast")


CHECKS: Final[tuple[Check, ...]] = (
    Check(
        id="rdma.modules",
        group=Group.RDMA,
        title="The modules by which programs open adapters are loaded",
        reads="/sys/module, /sys/class/infiniband_verbs, /sys/class/infiniband_mad",
        rule="Fails without ib_uverbs, warns without ib_umad on a node with InfiniBand; unknown without /sys/module.",
        costs="Without ib_uverbs there is no RDMA; without ib_umad it stays unknown which subnet manager a port obeys.",
        fix=Fix(
            "Load them now, and at each start by lines of their names in /etc/modules-load.d.",
            "modprobe -a ib_uverbs ib_umad",
            undo="modprobe -r ib_umad",
            safe=True,
        ),
        judge=_modules,
    ),
    Check(
        id="rdma.peermem",
        group=Group.RDMA,
        title="Adapters may read the cards' memory by themselves",
        reads="/sys/module/nvidia_peermem, /sys/kernel/mm/memory_peers, the driver's kind and the kernel's version",
        rule="Passes with nvidia_peermem, or with the open driver on a kernel from 5.12 on, which has DMA-BUF; fails "
        "with neither.",
        costs="Traffic between nodes goes through main memory, at half the speed: NCCL's log has `NET/IB` without "
        "`GDRDMA`.",
        fix=Fix(
            "Load it now, and at each start by a line `nvidia-peermem` in /etc/modules-load.d.",
            "modprobe nvidia-peermem",
            undo="modprobe -r nvidia-peermem",
            safe=True,
        ),
        judge=_peermem,
    ),
    Check(
        id="rdma.peermem-load",
        group=Group.RDMA,
        title="nvidia_peermem was loaded without errors",
        reads="the kernel's log",
        rule="Fails where it could not be loaded, warns for errors that it tells of itself.",
        costs="As `rdma.peermem`.",
        fix=Fix(
            "Load the adapter's modules first, then nvidia-peermem; after an update of either, build the driver anew."
        ),
        judge=_load,
    ),
    Check(
        id="rdma.gdrcopy",
        group=Group.RDMA,
        title="The CPU may write into the cards' memory directly",
        reads=str(_COPIER),
        rule="Warns where it is missing.",
        costs="Small messages take a little longer.",
        fix=Fix("Install gdrcopy's kernel module; nothing depends on it."),
        judge=_copier,
        worst=Severity.WARN,
    ),
)
NOT_YET: Final[tuple[tuple[str, str, str], ...]] = ()
