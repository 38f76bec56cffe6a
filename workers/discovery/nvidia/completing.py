"""Adds to what either way of asking has told of the cards: identity, class, capability, place, whose a process is."""

import re
from collections.abc import Iterable
from typing import Final

import msgspec

from llmgw.core.hardware.gpus import FabricState, Gpu, GpuFabric, MigInstance, Process
from llmgw.core.units import Bytes
from workers.discovery.nvidia import classes, smi
from workers.discovery.nvidia.of_kernel import from_kernel, kernel_order
from workers.discovery.nvidia.topology import numa_of
from workers.ports import Machine
from workers.settings import NodeSettings

_RESTART: Final = re.compile("requires restart", re.IGNORECASE)


def completed(machine: Machine, settings: NodeSettings, gpus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    """Return the cards as they are published, whoever told of them."""
    told = _licensed(machine, settings, _identified(machine, gpus))
    return tuple(_classified(_shared_out(_placed(machine, _worded(gpu)))) for gpu in told)


def _identified(machine: Machine, gpus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    """Give cards that are lost to NVML the identity that the kernel module wrote down, where it can be no other's."""
    dumb = [gpu for gpu in gpus if gpu.failed and gpu.uuid is None and gpu.pci_address is None]
    known = {gpu.pci_address for gpu in gpus}
    spare = [address for address in kernel_order(machine) if address not in known]
    if not dumb or len(dumb) != len(spare):
        return gpus
    named = {id(gpu): from_kernel(machine, address) for gpu, address in zip(dumb, spare, strict=True)}
    return tuple(_with_identity(gpu, named.get(id(gpu))) for gpu in gpus)


def _with_identity(gpu: Gpu, known: Gpu | None) -> Gpu:
    if known is None:
        return gpu
    return msgspec.structs.replace(
        gpu, uuid=known.uuid, name=known.name, pci_address=known.pci_address, minor_number=known.minor_number
    )


def _licensed(machine: Machine, settings: NodeSettings, gpus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    """Ask nvidia-smi for the licence of virtual cards: NVML does not tell the two kinds of unlicensed apart."""
    dumb = any(gpu.virtualization == "vgpu" and gpu.vgpu_licence is None for gpu in gpus)
    if not dumb or machine.which(settings.nvidia_smi) is None:
        return gpus
    told = {gpu.uuid: gpu.vgpu_licence for gpu in smi.ask(machine, settings).gpus}
    return tuple(msgspec.structs.replace(gpu, vgpu_licence=gpu.vgpu_licence or told.get(gpu.uuid)) for gpu in gpus)


def _worded(gpu: Gpu) -> Gpu:
    """Say a failure in one spelling: what NVML calls a restart is the reset of nvidia-smi."""
    failed = gpu.failed and _RESTART.sub("requires reset", gpu.failed)
    return msgspec.structs.replace(gpu, failed=failed, fabric=gpu.fabric and _settled(gpu.fabric))


def _settled(fabric: GpuFabric) -> GpuFabric:
    """Leave out what counts only once a card has joined its fabric, and what some drivers print before, as 0."""
    if fabric.state is FabricState.COMPLETED:
        return fabric
    return msgspec.structs.replace(fabric, status=None, clique_id=None)


def _placed(machine: Machine, gpu: Gpu) -> Gpu:
    """Say which NUMA node it is near, as the kernel has it."""
    return msgspec.structs.replace(gpu, numa_node=numa_of(machine, gpu.pci_address))


def _classified(gpu: Gpu) -> Gpu:
    memory = None if gpu.memory_total_bytes is None else Bytes(gpu.memory_total_bytes)
    capability = gpu.compute_capability or classes.capability(gpu.name)
    size = memory or (classes.usual_memory(gpu.name) if gpu.name and gpu.mig_enabled else None)
    return msgspec.structs.replace(
        gpu,
        device_class=classes.gpu_class(gpu.name, size) if gpu.name else None,
        memory_is_unified=memory is None and classes.is_unified(gpu.name, capability),
        compute_capability=capability,
    )


# --- processes of instances ---------------------------------------------------------------------------------------


def _shared_out(gpu: Gpu) -> Gpu:
    """Tell of each process on an instance at the card, as nvidia-smi does, and at the instance, as NVML does."""
    if not gpu.instances:
        return gpu
    of_parts = [process for part in gpu.instances for process in _own(part)]
    known = {(process.pid, process.gpu_instance_id, process.compute_instance_id) for process in gpu.processes or ()}
    new = [each for each in of_parts if (each.pid, each.gpu_instance_id, each.compute_instance_id) not in known]
    told = gpu.processes is not None or any(part.processes is not None for part in gpu.instances)
    everyone = (*(gpu.processes or ()), *new) if told else None
    parts = tuple(msgspec.structs.replace(part, processes=_of(part, everyone)) for part in gpu.instances)
    return msgspec.structs.replace(gpu, processes=everyone, instances=parts)


def _own(part: MigInstance) -> Iterable[Process]:
    """Return what an instance was told of itself, with its numbers."""
    for process in part.processes or ():
        yield msgspec.structs.replace(
            process, gpu_instance_id=part.gpu_instance_id, compute_instance_id=part.compute_instance_id
        )


def _of(part: MigInstance, everyone: tuple[Process, ...] | None) -> tuple[Process, ...] | None:
    if everyone is None:
        return None
    return tuple(
        process
        for process in everyone
        if process.gpu_instance_id == part.gpu_instance_id
        and process.compute_instance_id in {None, part.compute_instance_id}
    )
