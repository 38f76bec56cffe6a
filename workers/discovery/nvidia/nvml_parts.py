"""Reads what a card and its instances have alike, memory and processes, and the instances themselves."""

from collections.abc import Iterator
from typing import Any, Final

from llmgw.core.hardware.gpus import MigInstance, Process
from llmgw.core.units import MIB
from workers.discovery.nvidia.nvml_asking import Asker
from workers.discovery.nvidia.nvml_errors import uncorrected

_MOST_INSTANCES: Final = 7
"""Of any card until now."""
_NO_INSTANCE: Final = 0xFFFFFFFF


def memory_of(asker: Asker, card: Any) -> dict[str, int | None]:
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


# --- instances ----------------------------------------------------------------------------------------------------


def instances_of(asker: Asker, card: Any) -> Iterator[MigInstance]:
    """Ask every place on the card: holes occur."""
    places = asker.ask("mig instances", "nvmlDeviceGetMaxMigDeviceCount", card)
    for slot in range(_MOST_INSTANCES if places is None else places):
        part = asker.ask(f"mig{slot}", "nvmlDeviceGetMigDeviceHandleByIndex", card, slot)
        if part is not None:
            yield _instance(asker, part, slot)


def _instance(asker: Asker, part: Any, slot: int) -> MigInstance:
    own = Asker(asker.nvml, f"{asker.called}/mig{slot}")
    name = own.ask("name", "nvmlDeviceGetName", part) or ""
    attributes = own.ask("attributes", "nvmlDeviceGetAttributes_v2", part)
    memory = memory_of(own, part) or {"memory_total_bytes": attributes.memorySizeMB * MIB if attributes else None}
    memory.pop("memory_reserved_bytes", None)
    told = MigInstance(
        slot=slot,
        uuid=own.ask("uuid", "nvmlDeviceGetUUID", part),
        profile=name.rpartition(" MIG ")[2].replace(" ", "") if " MIG " in name else _profile(attributes),
        gpu_instance_id=own.ask("gpu instance", "nvmlDeviceGetGpuInstanceId", part),
        compute_instance_id=own.ask("compute instance", "nvmlDeviceGetComputeInstanceId", part),
        multiprocessors=attributes.multiprocessorCount if attributes else None,
        ecc_uncorrected_volatile=uncorrected(own, part),
        processes=processes_of(own, part),
        **memory,
    )
    asker.problems += own.problems
    asker.lost = asker.lost or own.lost
    return told


def _profile(attributes: Any) -> str | None:
    """Name a profile by its slices and memory, where the library does not name it."""
    if attributes is None or not attributes.gpuInstanceSliceCount:
        return None
    whole, own = attributes.gpuInstanceSliceCount, attributes.computeInstanceSliceCount
    part = f"{own}c." if 0 < own < whole else ""
    return f"{part}{whole}g.{-(-attributes.memorySizeMB // 1024)}gb"


# --- processes ----------------------------------------------------------------------------------------------------


def processes_of(asker: Asker, card: Any) -> tuple[Process, ...] | None:
    """Return who holds memory; None where the driver does not tell."""
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
    """Ask in the present form, else in that of libraries before R510; older ones are not understood."""
    names = (f"nvmlDeviceGet{kind}RunningProcesses_v3", f"nvmlDeviceGet{kind}RunningProcesses_v2")
    return asker.first("processes", names, card)


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
    return None if number is None or number == _NO_INSTANCE else int(number)
