"""An inventory as lines for a person."""

from collections.abc import Iterable, Iterator

from llmgw.core.hardware.fabrics import Attachment, Proposal
from llmgw.core.hardware.findings import Finding, Problem
from llmgw.core.hardware.gpus import Driver, Gpu, GpuFabric, Imex, MigInstance, NvSwitch, Process, Service
from llmgw.core.hardware.network import Port
from llmgw.core.units import gib, moment
from llmgw.core.wire import Inventory
from llmgw.core.world import Device


def lines(inventory: Inventory) -> Iterator[str]:
    """Say what the machine has, what is wrong with it and what is not known, in this order."""
    yield from _host(inventory)
    yield from (_device(device) for device in inventory.devices)
    yield from (f"engine   {name}: {words}" for name, words in inventory.engines.items())
    yield from _cards(inventory)
    yield from _links(inventory)
    yield from (_port(port) for port in inventory.ports)
    for fabric in inventory.fabrics:
        yield from _fabric(fabric)
    for proposal in inventory.proposals:
        yield from _proposal(proposal)
    for finding in inventory.findings:
        yield from _finding(finding)
    for problem in inventory.problems:
        yield from _problem(problem)


def _row(kind: str, *words: str | None) -> str:
    return f"{kind:<9}" + "  ".join(word for word in words if word)


def _host(inventory: Inventory) -> Iterator[str]:
    kernel = f"kernel {inventory.kernel}" if inventory.kernel else ""
    programs = f"Python {inventory.python}", f"llmgw {inventory.llmgw}"
    yield ", ".join(word for word in (inventory.os, kernel, inventory.architecture, *programs) if word)
    available = inventory.memory_available
    free = f", {gib(available)} available" if available is not None else ""
    yield f"CPUs     {inventory.cpu_count}"
    yield f"memory   {gib(inventory.memory_total)}{free}"
    if inventory.disk_free is not None and inventory.disk_total is not None:
        yield f"disk     {gib(inventory.disk_total)}, {gib(inventory.disk_free)} free"
    if inventory.driver:
        yield _driver(inventory.driver)


def _driver(driver: Driver) -> str:
    kind = {True: "open kernel module", False: "closed kernel module", None: None}[driver.is_open]
    other = driver.module_version if driver.module_version != driver.version else None
    return _row(
        "driver",
        f"NVIDIA {driver.version or 'of unknown version'}",
        other and f"kernel module {other}",
        kind,
        driver.cuda_version and f"CUDA up to {driver.cuda_version}",
        driver.source and f"told by {driver.source}",
    )


def _device(device: Device) -> str:
    ailment = device.unhealthy and f"not placeable: {device.unhealthy}"
    slots = f"{device.slots} slots" if device.slots != 1 else None
    number = f"GPU {device.label}" if device.label else None
    return _row("device", device.id, device.device_class, gib(device.memory), number, slots, ailment)


# --- cards --------------------------------------------------------------------------------------------------------


def _cards(inventory: Inventory) -> Iterator[str]:
    if inventory.gpus_stale_since is not None:
        since = moment(inventory.gpus_stale_since)
        yield _row("cards", f"not told since {since}; what is said here is what was told then")
    for gpu in inventory.gpus:
        yield _card(gpu)
        yield from (_instance(gpu, instance) for instance in gpu.instances)
        yield from (_process(process) for process in gpu.processes or ())


def _card(gpu: Gpu) -> str:
    if gpu.failed:
        return _row("card", _number(gpu.index), gpu.name, gpu.uuid, gpu.pci_address, f"failed: {gpu.failed}")
    return _row(
        "card", _number(gpu.index), gpu.name, gpu.uuid, gpu.pci_address, _memory(gpu), _readings(gpu), _health(gpu)
    )


def _number(index: int | None) -> str:
    return "?" if index is None else str(index)


def _memory(gpu: Gpu) -> str:
    if gpu.memory_is_unified:
        return "memory shared with the CPU"
    if gpu.memory_total_bytes is None:
        return "memory unknown"
    free = f", {gib(gpu.memory_free_bytes)} free" if gpu.memory_free_bytes is not None else ""
    return gib(gpu.memory_total_bytes) + free


def _readings(gpu: Gpu) -> str:
    told = (
        None if gpu.temperature_celsius is None else f"{gpu.temperature_celsius} °C",
        None if gpu.power_watts is None else f"{gpu.power_watts:.0f} W",
        None if gpu.utilization_percent is None else f"{gpu.utilization_percent} % busy",
    )
    return ", ".join(word for word in told if word)


def _health(gpu: Gpu) -> str:
    uncorrected = gpu.ecc.uncorrected_volatile
    rows = gpu.remapped_rows
    told = (
        {True: "ECC on", False: "ECC off", None: None}[gpu.ecc.enabled],
        f"{uncorrected} uncorrected errors" if uncorrected else None,
        "rows wait to be remapped" if rows and rows.pending else None,
        "remapping failed" if rows and rows.failed else None,
        f"needs {gpu.recovery_action}" if gpu.recovery_action not in {None, "none"} else None,
        _nvlink_fabric(gpu.fabric) if gpu.fabric and gpu.fabric.state else None,
        {True: "MIG on", False: None, None: None}[gpu.mig_enabled],
        gpu.virtualization if gpu.virtualization not in {None, "none"} else None,
    )
    return ", ".join(word for word in told if word)


def _instance(gpu: Gpu, instance: MigInstance) -> str:
    memory = None if instance.memory_total_bytes is None else gib(instance.memory_total_bytes)
    return _row("", f"{_number(gpu.index)}/mig{instance.slot}", instance.profile, instance.uuid, memory)


def _process(process: Process) -> str:
    memory = "memory unknown" if process.memory_bytes is None else gib(process.memory_bytes)
    return _row("", f"pid {process.pid}", process.name, memory, "ours" if process.ours else "not ours")


def _links(inventory: Inventory) -> Iterator[str]:
    topology = inventory.topology
    for domain in topology.nvlink_domains if topology else ():
        numbers = {gpu.uuid: _number(gpu.index) for gpu in inventory.gpus}
        yield _row("nvlink", "GPUs " + " ".join(numbers.get(uuid, uuid) for uuid in domain))
    if inventory.nvswitch:
        yield from _switches(inventory.nvswitch)
    if inventory.imex:
        yield _imex(inventory.imex)


def _switches(found: NvSwitch) -> Iterator[str]:
    if found.switches or found.is_needed:
        manager = f"fabric manager {_service(found.fabric_manager)}" if found.fabric_manager else None
        yield _row("nvswitch", f"{found.switches} on PCI", manager)


def _service(service: Service) -> str:
    return " ".join(word for word in (service.state or "in unknown state", service.version) if word)


def _imex(imex: Imex) -> str:
    return _row(
        "imex",
        f"service {_service(imex.service)}" if imex.service else None,
        imex.state and f"node {imex.state}",
        imex.domain_state and f"domain {imex.domain_state}",
        f"{len(imex.nodes)} members" if imex.nodes else None,
        f"{len(imex.channels)} channels",
    )


# --- network ------------------------------------------------------------------------------------------------------


def _port(port: Port) -> str:
    rate = None if port.rate_gbps is None else f"{port.rate_gbps:g} Gb/s"
    return _row(
        "port",
        port.name,
        port.link_layer.value if port.link_layer else "link layer unknown",
        port.state.value if port.state else "state unknown",
        rate and " ".join(word for word in (rate, port.speed) if word),
        port.hca_type,
        ", ".join(port.netdevs),
        f"subnet manager {port.subnet_manager.guid}" if port.subnet_manager else None,
        None if port.roce_gid_index is None else f"RoCE v2 by GID {port.roce_gid_index}",
    )


def _nvlink_fabric(fabric: GpuFabric) -> str:
    status = f" with {fabric.status}" if fabric.status not in {None, "success"} else ""
    return f"NVLink fabric {fabric.state}{status}"


def _fabric(fabric: Attachment) -> Iterator[str]:
    if fabric.unusable:
        yield _row("fabric", fabric.name, f"not usable: {fabric.unusable}")
    else:
        rate = None if fabric.rate_gbps is None else f"{fabric.rate_gbps:g} Gb/s"
        over = fabric.interface and f"meets over {fabric.interface} {fabric.address or ''}".strip()
        yield _row("fabric", fabric.name, f"{len(fabric.usable_ports)} of {len(fabric.ports)} ports", rate, over)
    for port in fabric.ports:
        yield _row("", port.name, "usable" if port.usable else f"not usable: {port.why}")


def _proposal(proposal: Proposal) -> Iterator[str]:
    yield _row("proposal", f"fabric {proposal.name}")
    for port in proposal.ports:
        yield _row("", port.name, "in:" if port.taken else "left out:", port.reason)
    yield from (f"         {line}" for line in proposal.declaration.splitlines())


# --- what is wrong or unknown -------------------------------------------------------------------------------------


def _finding(finding: Finding) -> Iterator[str]:
    yield _row("finding", finding.severity.value, finding.text)
    yield from _notes(("costs", finding.costs), ("cure", finding.cure), ("words", finding.literal))


def _problem(problem: Problem) -> Iterator[str]:
    yield _row("problem", problem.text)
    yield from _notes(("words", problem.literal))


def _notes(*notes: tuple[str, str]) -> Iterable[str]:
    return (f"           {name}: {text.splitlines()[0]}" for name, text in notes if text.strip())
