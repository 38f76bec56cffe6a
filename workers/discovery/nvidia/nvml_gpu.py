"""Makes a card of what NVML says of it, in the words that nvidia-smi would have used."""

from collections.abc import Iterator
from types import MappingProxyType
from typing import Any, Final

from llmgw.core.hardware.gpus import (
    Ecc,
    Gpu,
    MigInstance,
    NvLink,
    Process,
    RemappedRows,
    RetiredPages,
)
from workers.discovery.nvidia.nvml import address
from workers.discovery.nvidia.nvml_asking import Asker
from workers.discovery.nvidia.nvml_fabric import fabric_of

_UNCORRECTED, _CORRECTED = 1, 0
_VOLATILE, _AGGREGATE = 0, 1
_SM_CLOCK, _MEMORY_CLOCK = 1, 2
_SLOWDOWN: Final = 1
_SINGLE_BIT, _DOUBLE_BIT = 0, 1
_RECOVERY_ACTION: Final = 230
_LINKS: Final = 91
"""NVML_FI_DEV_NVLINK_LINK_COUNT."""
_MOST_LINKS: Final = 36
_UNKNOWN_PSTATE: Final = 32
_REASONS: Final = (
    (0x001, "idle"),
    (0x002, "applications-clocks"),
    (0x004, "sw-power-cap"),
    (0x008, "hw-slowdown"),
    (0x010, "sync-boost"),
    (0x020, "sw-thermal"),
    (0x040, "hw-thermal"),
    (0x080, "hw-power-brake"),
    (0x100, "display-clocks"),
)
_COMPUTE_MODES: Final = ("default", "exclusive-thread", "prohibited", "exclusive-process")
_VIRTUALIZATION: Final = ("none", "pass-through", "vgpu", "host-vgpu", "host-vsga")
_ACTIONS: Final = (
    "none",
    "gpu-reset",
    "node-reboot",
    "drain-p2p",
    "drain-and-reset",
    "recover-imex-domain",
    "bus-reset",
    "system-reboot",
)
_REMOTE: Final = MappingProxyType({0: "gpu", 1: "ibmnpu", 2: "switch"})


def read_card(asker: Asker, card: Any, index: int) -> Gpu:
    """Ask for everything; whatever is not there or fails costs itself."""
    ask = asker.ask
    pci = ask("pci address", "nvmlDeviceGetPciInfo", card)
    mig = ask("mig mode", "nvmlDeviceGetMigMode", card)
    told = _identity(asker, card) | _memory(asker, card) | _readings(asker, card) | _pcie(asker, card)
    return Gpu(
        index=index,
        pci_address=address(pci.busId) if pci else None,
        **told,
        mig_enabled=bool(mig[0]) if mig else None,
        mig_enabled_pending=bool(mig[1]) if mig else None,
        instances=tuple(_instances(asker, card)) if mig and mig[0] else (),
        ecc=_ecc(asker, card),
        remapped_rows=_remapped(asker, card),
        retired_pages=_retired(asker, card),
        fabric=fabric_of(asker, card),
        nvlinks=_links(asker, card),
        processes=_processes(asker, card),
        failed=asker.failed,
        inforom_ok=False if asker.is_inforom_corrupted else None,
    )


def _identity(asker: Asker, card: Any) -> dict[str, Any]:
    ask = asker.ask
    mode = ask("virtualization", "nvmlDeviceGetVirtualizationMode", card)
    compute = ask("compute mode", "nvmlDeviceGetComputeMode", card)
    capability = ask("compute capability", "nvmlDeviceGetCudaComputeCapability", card)
    return {
        "uuid": ask("uuid", "nvmlDeviceGetUUID", card),
        "name": ask("name", "nvmlDeviceGetName", card),
        "serial": ask("serial", "nvmlDeviceGetSerial", card),
        "vbios": ask("vbios", "nvmlDeviceGetVbiosVersion", card),
        "minor_number": ask("minor number", "nvmlDeviceGetMinorNumber", card),
        "compute_capability": f"{capability[0]}.{capability[1]}" if capability else None,
        "persistence_mode": _flag(ask("persistence mode", "nvmlDeviceGetPersistenceMode", card)),
        "display_active": _flag(ask("display active", "nvmlDeviceGetDisplayActive", card)),
        "compute_mode": _word(_COMPUTE_MODES, compute),
        "virtualization": _word(_VIRTUALIZATION, mode),
        "recovery_action": _word(_ACTIONS, _field(asker, card, "recovery action", _RECOVERY_ACTION)),
        "numa_node": ask("numa node", "nvmlDeviceGetNumaNodeId", card),
    }


def _memory(asker: Asker, card: Any) -> dict[str, Any]:
    """Ask for memory with the driver's own share apart, as `used` of nvidia-smi has it; older libraries cannot."""
    told = asker.ask("memory_total", "nvmlDeviceGetMemoryInfo", card, getattr(asker.nvml, "nvmlMemory_v2", None))
    told = told or asker.ask("memory_total", "nvmlDeviceGetMemoryInfo", card)
    if told is None or not told.total:
        return {}
    return {
        "memory_total_bytes": told.total,
        "memory_used_bytes": told.used,
        "memory_free_bytes": told.free,
        "memory_reserved_bytes": getattr(told, "reserved", None),
    }


def _readings(asker: Asker, card: Any) -> dict[str, Any]:
    ask = asker.ask
    power = ask("power", "nvmlDeviceGetPowerUsage", card)
    limit = ask("power limit", "nvmlDeviceGetPowerManagementLimit", card)
    default = ask("power limit default", "nvmlDeviceGetPowerManagementDefaultLimit", card)
    use = ask("utilization", "nvmlDeviceGetUtilizationRates", card)
    state = ask("performance state", "nvmlDeviceGetPerformanceState", card)
    reasons = ask("throttle reasons", "nvmlDeviceGetCurrentClocksEventReasons", card)
    if reasons is None:
        reasons = ask("throttle reasons", "nvmlDeviceGetCurrentClocksThrottleReasons", card)
    return {
        "temperature_celsius": ask("temperature", "nvmlDeviceGetTemperature", card, 0),
        "temperature_slowdown_celsius": ask(
            "slowdown temperature", "nvmlDeviceGetTemperatureThreshold", card, _SLOWDOWN
        ),
        "temperature_margin_celsius": ask("temperature margin", "nvmlDeviceGetMarginTemperature", card),
        "power_watts": _watts(power),
        "power_limit_watts": _watts(limit),
        "power_limit_default_watts": _watts(default),
        "clock_sm_mhz": ask("sm clock", "nvmlDeviceGetClockInfo", card, _SM_CLOCK),
        "clock_memory_mhz": ask("memory clock", "nvmlDeviceGetClockInfo", card, _MEMORY_CLOCK),
        "utilization_percent": use.gpu if use else None,
        "performance_state": None if state is None or state >= _UNKNOWN_PSTATE else f"P{state}",
        "throttle_reasons": None if reasons is None else tuple(sorted(word for bit, word in _REASONS if reasons & bit)),
    }


def _pcie(asker: Asker, card: Any) -> dict[str, Any]:
    ask = asker.ask
    return {
        "pcie_generation": ask("pcie generation", "nvmlDeviceGetCurrPcieLinkGeneration", card),
        "pcie_generation_max": ask("pcie generation", "nvmlDeviceGetMaxPcieLinkGeneration", card),
        "pcie_width": ask("pcie width", "nvmlDeviceGetCurrPcieLinkWidth", card),
        "pcie_width_max": ask("pcie width", "nvmlDeviceGetMaxPcieLinkWidth", card),
        "pcie_replays": ask("pcie replays", "nvmlDeviceGetPcieReplayCounter", card),
    }


def _watts(milliwatts: int | None) -> float | None:
    return None if milliwatts is None else round(milliwatts / 1000, 2)


def _flag(value: int | None) -> bool | None:
    return None if value is None else bool(value)


def _word(words: tuple[str, ...], number: int | None) -> str | None:
    return words[number] if number is not None and 0 <= number < len(words) else None


def _field(asker: Asker, card: Any, fact: str, number: int) -> int | None:
    """Ask for a field value; each answer has a return code of its own."""
    told = asker.ask(fact, "nvmlDeviceGetFieldValues", card, [number])
    return int(told[0].value.uiVal) if told and told[0].nvmlReturn == 0 else None


# --- errors -------------------------------------------------------------------------------------------------------


def _ecc(asker: Asker, card: Any) -> Ecc:
    ask = asker.ask
    mode = ask("ecc mode", "nvmlDeviceGetEccMode", card)
    repair = ask("repair status", "nvmlDeviceGetRepairStatus", card)
    return Ecc(
        enabled=bool(mode[0]) if mode else None,
        enabled_pending=bool(mode[1]) if mode else None,
        uncorrected_volatile=_errors(asker, card, _UNCORRECTED, _VOLATILE),
        corrected_volatile=_errors(asker, card, _CORRECTED, _VOLATILE),
        uncorrected_aggregate=_errors(asker, card, _UNCORRECTED, _AGGREGATE),
        corrected_aggregate=_errors(asker, card, _CORRECTED, _AGGREGATE),
        sram_threshold_exceeded=_sram_threshold(asker, card),
        unrepairable_memory=_flag(ask("unrepairable memory", "nvmlDeviceGetUnrepairableMemoryFlag_v1", card)),
        channel_repair_pending=bool(repair[0]) if repair else None,
        tpc_repair_pending=bool(repair[1]) if repair else None,
    )


def _errors(asker: Asker, card: Any, kind: int, since: int) -> int | None:
    told: int | None = asker.ask("ecc errors", "nvmlDeviceGetTotalEccErrors", card, kind, since)
    return told


def _sram_threshold(asker: Asker, card: Any) -> bool | None:
    kind = getattr(asker.nvml, "c_nvmlEccSramErrorStatus_v1_t", None)
    status = kind() if kind else None
    if status is None or asker.ask("sram errors", "nvmlDeviceGetSramEccErrorStatus", card, status) is None:
        return None
    return bool(status.bThresholdExceeded)


def _remapped(asker: Asker, card: Any) -> RemappedRows | None:
    rows = asker.ask("remapped rows", "nvmlDeviceGetRemappedRows", card)
    if rows is None:
        return None
    banks = asker.ask("row remap histogram", "nvmlDeviceGetRowRemapperHistogram", card)
    return RemappedRows(
        corrected=rows[0],
        uncorrected=rows[1],
        pending=bool(rows[2]),
        failed=bool(rows[3]),
        banks_without_spares=banks.none if banks else None,
    )


def _retired(asker: Asker, card: Any) -> RetiredPages | None:
    single = asker.ask("retired pages", "nvmlDeviceGetRetiredPages", card, _SINGLE_BIT)
    double = asker.ask("retired pages", "nvmlDeviceGetRetiredPages", card, _DOUBLE_BIT)
    pending = asker.ask("page retirement pending", "nvmlDeviceGetRetiredPagesPendingStatus", card)
    if single is None and double is None and pending is None:
        return None
    return RetiredPages(
        single_bit=None if single is None else len(single),
        double_bit=None if double is None else len(double),
        pending=_flag(pending),
    )


# --- instances, processes, links ----------------------------------------------------------------------------------


def _instances(asker: Asker, card: Any) -> Iterator[MigInstance]:
    """Ask every place on the card: holes occur."""
    places = asker.ask("mig instances", "nvmlDeviceGetMaxMigDeviceCount", card) or 0
    for slot in range(places):
        part = asker.ask(f"mig instance {slot}", "nvmlDeviceGetMigDeviceHandleByIndex", card, slot)
        if part is not None:
            yield _instance(asker, part, slot)


def _instance(asker: Asker, part: Any, slot: int) -> MigInstance:
    ask, called = asker.ask, f"mig instance {slot}"
    name = ask(called, "nvmlDeviceGetName", part) or ""
    attributes = ask(called, "nvmlDeviceGetAttributes_v2", part)
    return MigInstance(
        slot=slot,
        uuid=ask(called, "nvmlDeviceGetUUID", part),
        profile=name.rpartition(" MIG ")[2].replace(" ", "") if " MIG " in name else _profile(attributes),
        gpu_instance_id=ask(called, "nvmlDeviceGetGpuInstanceId", part),
        compute_instance_id=ask(called, "nvmlDeviceGetComputeInstanceId", part),
        multiprocessors=attributes.multiprocessorCount if attributes else None,
        ecc_uncorrected_volatile=_errors(asker, part, _UNCORRECTED, _VOLATILE),
        processes=_processes(asker, part),
        **{name: value for name, value in _memory(asker, part).items() if name != "memory_reserved_bytes"},
    )


def _profile(attributes: Any) -> str | None:
    """Name a profile by its slices and memory, where the library does not name it."""
    if attributes is None or not attributes.gpuInstanceSliceCount:
        return None
    gib = -(-attributes.memorySizeMB // 1024)
    return f"{attributes.gpuInstanceSliceCount}g.{gib}gb"


def _processes(asker: Asker, card: Any) -> tuple[Process, ...] | None:
    compute = _running(asker, card, "Compute")
    graphics = _running(asker, card, "Graphics")
    if compute is None and graphics is None:
        return None
    kinds: dict[int, str] = {}
    for kind, told in (("compute", compute), ("graphics", graphics)):
        for process in told or ():
            kinds[process.pid] = kind if process.pid not in kinds else "both"
    held = {process.pid: process for process in (*(graphics or ()), *(compute or ()))}
    return tuple(_process(asker, held[pid], kind) for pid, kind in kinds.items())


def _running(asker: Asker, card: Any, kind: str) -> Any:
    """Ask in the present form, else in that of libraries before R510."""
    told = asker.ask("processes", f"nvmlDeviceGet{kind}RunningProcesses", card)
    return told if told is not None else asker.ask("processes", f"nvmlDeviceGet{kind}RunningProcesses_v2", card)


def _process(asker: Asker, process: Any, kind: str) -> Process:
    quiet = Asker(asker.nvml, asker.called)  # a process that has just ended has no name, and that is no fault
    return Process(
        pid=process.pid,
        name=quiet.ask("process name", "nvmlSystemGetProcessName", process.pid),
        memory_bytes=process.usedGpuMemory,
        kind=kind,
        gpu_instance_id=_instance_id(process, "gpuInstanceId"),
        compute_instance_id=_instance_id(process, "computeInstanceId"),
    )


def _instance_id(process: Any, name: str) -> int | None:
    number = getattr(process, name, None)
    return None if number is None or number == 0xFFFFFFFF else int(number)


def _links(asker: Asker, card: Any) -> tuple[NvLink, ...] | None:
    count = _field(asker, card, "nvlinks", _LINKS)
    found = [link for number in range(min(count or 0, _MOST_LINKS)) if (link := _link(asker, card, number))]
    return tuple(found) or None


def _link(asker: Asker, card: Any, number: int) -> NvLink | None:
    called = f"nvlink {number}"
    quiet = Asker(asker.nvml, asker.called)  # a link beyond those that are there is an invalid argument
    state = quiet.ask(called, "nvmlDeviceGetNvLinkState", card, number)
    if state is None:
        return None
    remote = quiet.ask(called, "nvmlDeviceGetNvLinkRemoteDeviceType", card, number) if state else None
    pci = quiet.ask(called, "nvmlDeviceGetNvLinkRemotePciInfo", card, number) if state else None
    counts = {
        word: quiet.ask(called, "nvmlDeviceGetNvLinkErrorCounter", card, number, which) for which, word in _COUNTERS
    }
    errors = {word: int(count) for word, count in counts.items() if count is not None}
    return NvLink(
        number=number,
        active=bool(state),
        remote=_REMOTE.get(remote) if remote is not None else None,
        remote_pci_address=address(pci.busId) if pci else None,
        errors=errors or None,
    )


_COUNTERS: Final = ((0, "replay"), (1, "recovery"), (2, "crc"))
"""NVML_NVLINK_ERROR_DL_REPLAY, _RECOVERY, _CRC_FLIT."""
