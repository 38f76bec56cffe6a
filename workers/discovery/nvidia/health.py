"""Says what is wrong with the cards: each finding with its cost, its cure, and whether it keeps work away."""

from collections.abc import Iterable, Iterator, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from llmgw.core.hardware.findings import Finding, Severity, cut
from llmgw.core.hardware.gpus import FabricState, Gpu, GpuFabric
from workers.discovery.nvidia import kernel_log
from workers.discovery.nvidia.foreign_memory import held_by_others
from workers.discovery.nvidia.kernel_log import KernelEvent, Kind, XidClass


class Entry(NamedTuple):
    """What a code stands for, as the reference has it."""

    title: str
    costs: str
    cure: str
    """`{index}` is what `nvidia-smi -i` takes for the card, `{minor}` the number of its device file."""


_NVLINK_ERROR: Final = 74
_RESET: Final = "end what runs on it, then `nvidia-smi -r -i {index}`; reboot where that is refused"
CODES: Final = MappingProxyType(
    {
        "device.unhealthy.lost": Entry(
            "The card is off the bus, or does not answer",
            "engines on it die; nothing can start on it",
            "power-cycle the machine; if it comes again, reseat or replace the card",
        ),
        "device.unhealthy.reset": Entry("The card must be reset", "CUDA finds no such device", _RESET),
        "device.unhealthy.recovery": Entry(
            "The driver asks for a recovery of the card", "what is started on it fails", "do what it names; " + _RESET
        ),
        "device.unhealthy.ecc": Entry(
            "Memory errors that could not be corrected, since the driver was loaded",
            "engines crash, or answer with garbage",
            _RESET,
        ),
        "device.unhealthy.remap": Entry(
            "A bad row of memory is to be replaced, or could not be",
            "bad memory stays in use",
            _RESET + "; replace a card whose remapping has failed",
        ),
        "device.unhealthy.retired-pages": Entry(
            "Bad pages of memory are to be taken out of use", "bad memory stays in use", "reboot, or reload the driver"
        ),
        "device.unhealthy.repair": Entry("A repair of the card is pending", "it works at less than its best", _RESET),
        "device.unhealthy.worn": Entry(
            "The card has more memory errors than its maker allows", "it will fail again", "replace it under warranty"
        ),
        "device.unhealthy.xid": Entry(
            "The driver has logged an error of the card (Xid)", "engines on it crash or hang", _RESET
        ),
        "device.unhealthy.fabric": Entry(
            "The card is not well on its NVLink fabric",
            "CUDA fails with error 802, or the cards cannot reach each other",
            "with NVSwitches in this machine `systemctl restart nvidia-fabricmanager`, in a rack see to its trays; "
            "then reset the card",
        ),
        "device.unhealthy.vgpu-unlicensed": Entry(
            "The virtual card has no licence",
            "it is throttled hard, without an error anywhere",
            "see to the licence server and nvidia-gridd: `nvidia-smi -q | grep -A2 'Software Licensed'`",
        ),
        "device.compute-mode": Entry(
            "The card lets no second process in, or none at all",
            "engines of several processes cannot start on it",
            "`nvidia-smi -i {index} -c DEFAULT`",
        ),
        "device.foreign-memory": Entry(
            "Memory of the card is held by a process that is not llmgw's",
            "engines refuse to start for want of memory, or die of it later",
            "end it, or cordon the node: `fuser -v /dev/nvidia{minor}`",
        ),
        "device.throttled": Entry(
            "The card is slowed down by its hardware", "it runs at a fraction of its speed", "see to cooling and power"
        ),
        "device.pcie-width": Entry(
            "The card has fewer PCIe lanes than it could have", "loading, and traffic to adapters, is slow", "reseat it"
        ),
        "device.nvlink-down": Entry(
            "NVLinks of the card are down", "NCCL is slow between cards, or refuses", _RESET + "; reseat it"
        ),
        "device.inforom": Entry(
            "The card's infoROM is corrupted", "its settings and error counts may be wrong", "replace it at leisure"
        ),
        "nvswitch.sxid": Entry(
            "An NVSwitch has logged a fatal error",
            "the cards cannot reach each other",
            "restart the fabric manager, or reboot",
        ),
    }
)


def findings(gpus: Sequence[Gpu], events: Sequence[KernelEvent]) -> tuple[Finding, ...]:
    """Return all that is wrong, the most serious first; `Process.ours` must be set."""
    recent = kernel_log.since_the_driver(tuple(events))
    found = [finding for gpu in gpus for finding in _of_card(gpu, recent)]
    return tuple(sorted((*found, *_of_switches(recent)), key=lambda finding: finding.severity.rank))


def _of_card(gpu: Gpu, events: Sequence[KernelEvent]) -> Iterator[Finding]:
    if gpu.failed:
        yield _failed(gpu)
        yield from _xids(gpu, events)
        return
    for check in (_memory_errors, _recovery, _fabric, _licence, _manners, _speed):
        yield from check(gpu)
    yield from _xids(gpu, events)
    for about, severity, text in held_by_others(gpu):
        yield _finding("device.foreign-memory", gpu, text, severity, excludes=severity is Severity.FAIL, about=about)


def _finding(
    code: str,
    gpu: Gpu,
    text: str,
    severity: Severity = Severity.FAIL,
    *,
    excludes: bool = True,
    literal: str = "",
    about: str = "",
    entry: Entry | None = None,
) -> Finding:
    entry = entry or CODES[code]
    minor = "*" if gpu.minor_number is None else str(gpu.minor_number)
    return Finding(
        code,
        f"{gpu.called}: {text}",
        severity=severity,
        about=about or gpu.uuid or gpu.pci_address or "",
        costs=entry.costs,
        cure=entry.cure.replace("{index}", gpu.for_smi).replace("{minor}", minor),
        literal=cut(literal),
        excludes=excludes,
    )


def _failed(gpu: Gpu) -> Finding:
    words = gpu.failed or ""
    code = "device.unhealthy.reset" if "requires re" in words.lower() else "device.unhealthy.lost"
    return _finding(code, gpu, f"the driver says: {words}", literal=words)


# --- memory -------------------------------------------------------------------------------------------------------


def _memory_errors(gpu: Gpu) -> Iterator[Finding]:
    ecc, rows, pages = gpu.ecc, gpu.remapped_rows, gpu.retired_pages
    if ecc.uncorrected_volatile:
        # Where rows are remapped and nothing is owed, the errors are of rows that are no longer in use.
        handled = rows is not None and rows.pending is False and rows.failed is False and gpu.recovery_action == "none"
        text = f"{ecc.uncorrected_volatile} uncorrected memory errors since the driver was loaded"
        yield _finding("device.unhealthy.ecc", gpu, text, *_soft(handled), excludes=not handled)
    if rows and (rows.pending or rows.failed):
        text = "remapping a row of memory has failed" if rows.failed else "row remap pending until its next reset"
        yield _finding("device.unhealthy.remap", gpu, text)
    elif rows and rows.banks_without_spares:
        text = f"{rows.banks_without_spares} banks of memory have no spare rows left"
        yield _finding("device.unhealthy.worn", gpu, text, Severity.WARN, excludes=False)
    if pages and pages.pending:
        yield _finding("device.unhealthy.retired-pages", gpu, "page retirement pending until the driver is loaded anew")
    if ecc.sram_threshold_exceeded or ecc.unrepairable_memory:
        what = (
            "has memory that cannot be repaired" if ecc.unrepairable_memory else "has passed the limit of SRAM errors"
        )
        yield _finding("device.unhealthy.worn", gpu, what)
    if ecc.channel_repair_pending or ecc.tpc_repair_pending:
        yield _finding(
            "device.unhealthy.repair", gpu, "a repair waits for its next reset", Severity.WARN, excludes=False
        )
    if gpu.inforom_ok is False:
        yield _finding("device.inforom", gpu, "its infoROM is corrupted", Severity.WARN, excludes=False)


def _soft(soft: object) -> tuple[Severity]:
    return (Severity.WARN if soft else Severity.FAIL,)


def _recovery(gpu: Gpu) -> Iterator[Finding]:
    action = gpu.recovery_action
    if action in {None, "none"}:
        return
    yield _finding("device.unhealthy.recovery", gpu, f"the driver asks for {action}")


def _xids(gpu: Gpu, events: Sequence[KernelEvent]) -> Iterator[Finding]:
    """Tell of each Xid once, by its last fatal line, else its last.

    One that asks for a reset is over where the driver asks for none.
    """
    mine = [event for event in events if event.pci_address == gpu.pci_address and gpu.pci_address]
    xids = [event for event in mine if event.kind is Kind.XID and event.number is not None]
    last = {event.number: event for event in sorted(xids, key=lambda event: event.is_fatal)}
    for number, event in sorted(last.items()):
        kind = kernel_log.xid_class(number or 0, is_fatal=event.is_fatal)
        if kind is XidClass.APPLICATION:
            continue
        over = kind is XidClass.WARN or (gpu.recovery_action == "none" and not gpu.failed)
        means = kernel_log.MEANS.get(number or 0, "see NVIDIA's catalogue of Xid errors")
        yield _finding(
            "device.unhealthy.xid",
            gpu,
            f"Xid {number}, {means}",
            *_soft(over),
            excludes=not over,
            literal=event.literal,
            entry=_of_xid(number, kind),
        )
    lost = next((event for event in mine if event.kind is Kind.LOST), None)
    if lost and 79 not in last and gpu.failed:
        yield _finding(
            "device.unhealthy.xid",
            gpu,
            "has fallen off the bus",
            literal=lost.literal,
            entry=_of_xid(79, XidClass.NODE),
        )


def _of_xid(number: int | None, kind: XidClass) -> Entry:
    """Return what an Xid costs and what to do, where a reset is not all, or not it."""
    entry = CODES["device.unhealthy.xid"]
    if kind is XidClass.WARN:
        cure = "look it up in NVIDIA's catalogue of Xid errors; where it comes again, drain the node, reset the card"
        return entry._replace(costs="nothing yet; it may be the first sign of more", cure=cure)
    if number == _NVLINK_ERROR:
        return entry._replace(cure=f"drain the node and see to its NVLinks (`nvidia-smi nvlink -e`); {_RESET}")
    return entry._replace(cure=CODES["device.unhealthy.lost"].cure) if kind is XidClass.NODE else entry


def _of_switches(events: Iterable[KernelEvent]) -> Iterator[Finding]:
    fatal = {event.pci_address: event for event in events if event.kind is Kind.SXID and event.is_fatal}
    for address, event in fatal.items():
        entry = CODES["nvswitch.sxid"]
        yield Finding(
            "nvswitch.sxid",
            f"NVSwitch {address}: fatal SXid {event.number}",
            severity=Severity.FAIL,
            about=address or "",
            costs=entry.costs,
            cure=entry.cure,
            literal=event.literal,
        )


# --- fabric, licence, manners -------------------------------------------------------------------------------------


def _fabric(gpu: Gpu) -> Iterator[Finding]:
    """Read the state for what it means: completed without success is broken, not supported is normal."""
    fabric = gpu.fabric
    if fabric is None:
        return
    told = _fabric_state(fabric, gpu.name or "") or _fabric_health(fabric)
    if told:
        text, severity, excludes = told
        literal = f"state {fabric.state}, status {fabric.status}, health {fabric.health}"
        yield _finding("device.unhealthy.fabric", gpu, text, severity, excludes=excludes, literal=literal)


def _fabric_state(fabric: GpuFabric, name: str) -> tuple[str, Severity, bool] | None:
    match fabric.state:
        case FabricState.COMPLETED if fabric.status not in {"success", None}:
            return f"registered with its NVLink fabric, with the error: {fabric.status}", Severity.FAIL, True
        case FabricState.IN_PROGRESS:
            return "is still being registered with its NVLink fabric", Severity.WARN, True
        case FabricState.NOT_STARTED:
            return "was not registered with its NVLink fabric: the fabric manager has not begun", Severity.FAIL, True
        case FabricState.NOT_SUPPORTED if "GB200" in name or "GB300" in name:
            return "says that it knows no NVLink fabric, which one of its kind must", Severity.WARN, False
    return None


def _fabric_health(fabric: GpuFabric) -> tuple[str, Severity, bool] | None:
    if fabric.health == "unhealthy" or fabric.route_unhealthy:
        return "its NVLink fabric is unhealthy", Severity.FAIL, True
    if fabric.incorrect_configuration not in {None, "none", "not supported"}:
        return f"its NVLink fabric is set up wrongly: {fabric.incorrect_configuration}", Severity.FAIL, True
    if fabric.health == "limited-capacity" or fabric.bandwidth == "degraded":
        return "its NVLink fabric has less than its bandwidth", Severity.WARN, False
    if fabric.route_recovery or fabric.access_timeout_recovery:
        return "its NVLink fabric is recovering", Severity.WARN, False
    return None


_GRACE: Final = CODES["device.unhealthy.vgpu-unlicensed"]._replace(
    costs="nothing yet; it is throttled once its time of grace is over"
)


def _licence(gpu: Gpu) -> Iterator[Finding]:
    licence = gpu.vgpu_licence or ""
    if licence.startswith("unlicensed"):
        bad = "unrestricted" not in licence
        yield _finding(
            "device.unhealthy.vgpu-unlicensed",
            gpu,
            f"its licence: {licence}",
            *_soft(not bad),
            excludes=bad,
            entry=None if bad else _GRACE,
            literal=licence,
        )


def _manners(gpu: Gpu) -> Iterator[Finding]:
    if gpu.compute_mode in {"prohibited", "exclusive-process", "exclusive-thread"}:
        bad = gpu.compute_mode == "prohibited"
        yield _finding("device.compute-mode", gpu, f"compute mode {gpu.compute_mode}", *_soft(not bad), excludes=bad)


_FAULTS: Final = frozenset({"hw-slowdown", "hw-thermal", "hw-power-brake"})


def _speed(gpu: Gpu) -> Iterator[Finding]:
    slowed = sorted(_FAULTS & set(gpu.throttle_reasons or ()))
    if slowed:
        yield _finding("device.throttled", gpu, f"slowed down: {', '.join(slowed)}", Severity.WARN, excludes=False)
    if (
        gpu.pcie_width
        and gpu.pcie_width_max
        and gpu.pcie_width < gpu.pcie_width_max
        and gpu.virtualization in {None, "none"}
    ):
        text = f"has {gpu.pcie_width} of {gpu.pcie_width_max} PCIe lanes"
        yield _finding("device.pcie-width", gpu, text, Severity.WARN, excludes=False)
    links = gpu.nvlinks or ()
    down = [str(link.number) for link in links if link.active is False]
    if down and len(down) < len(links):
        text = f"{len(down)} of {len(links)} NVLinks are down: {', '.join(down)}"
        yield _finding("device.nvlink-down", gpu, text, Severity.WARN, excludes=False)
