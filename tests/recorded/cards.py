"""Made-up NVIDIA cards, and what nvidia-smi prints of them: XML, the list, single columns, NVLinks, the matrix."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from xml.sax.saxutils import escape

NOT_APPLICABLE = "N/A"
CSV = "--format=csv,noheader,nounits"
REASONS = (
    "gpu_idle",
    "applications_clocks_setting",
    "sw_power_cap",
    "hw_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
    "sync_boost",
    "sw_thermal_slowdown",
    "display_clocks_setting",
)


def made_up_uuid(name: str) -> str:
    """A UUID that looks like one, always the same for the same name."""
    digits = hashlib.sha256(name.encode()).hexdigest()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:32]}"


@dataclass(frozen=True)
class Instance:
    """One MIG instance."""

    slot: int
    profile: str
    mib: int
    gpu_instance: int
    uuid: str
    multiprocessors: int = 14


@dataclass(frozen=True)
class Card:
    """One card; `tags` says of single elements of the XML what they hold instead."""

    index: int
    name: str
    mib: int
    bus: str
    """As the kernel spells it: `0000:1b:00.0`."""
    uuid: str
    serial: str = NOT_APPLICABLE
    capability: str = "9.0"
    used_mib: int = 1
    reserved_mib: int = 400
    watts: float = 70.0
    limit_watts: float = 700.0
    ecc: bool | None = True
    mig: bool | None = False
    instances: tuple[Instance, ...] = ()
    fabric: Mapping[str, str] | None = None
    """Tag → text of the element `fabric`; None for a card without."""
    nvlinks: int = 0
    numa: int = 0
    tags: Mapping[str, str] = field(default_factory=dict)
    processes: tuple[tuple[int, str, int], ...] = ()
    """(pid, name, MiB)"""

    @property
    def long_bus(self) -> str:
        """As nvidia-smi spells it."""
        return f"0000{self.bus}".upper()


# --- XML ----------------------------------------------------------------------------------------------------------


def xml(
    cards: Sequence[Card], driver: str, cuda: str, dtd: str = "nvsmi_device_v12.dtd", attached: int | None = None
) -> str:
    """What `nvidia-smi -q -x` prints; of one card alone, with how many there are."""
    inside = "".join(
        f'\t<gpu id="{card.long_bus}">\n{_elements(_card(card), 2)}\t</gpu>\n' for card in sorted(cards, key=_by_bus)
    )
    head = {"timestamp": "Tue Dec  1 08:00:00 2026", "driver_version": driver, "cuda_version": cuda}
    head["attached_gpus"] = str(attached or len(cards))
    return (
        f'<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "{dtd}">\n<nvidia_smi_log>\n'
        f"{_elements(head, 1)}{inside}</nvidia_smi_log>\n"
    )


def _by_bus(card: Card) -> str:
    return card.bus


def _elements(tree: Mapping[str, Any], depth: int) -> str:
    return "".join(_element(tag, value, depth) for tag, value in tree.items())


def _element(tag: str, value: Any, depth: int) -> str:
    tabs = "\t" * depth
    if isinstance(value, Mapping):
        return f"{tabs}<{tag}>\n{_elements(value, depth + 1)}{tabs}</{tag}>\n"
    if isinstance(value, list):
        return "".join(_element(tag, each, depth) for each in value)
    return f"{tabs}<{tag}>{escape(str(value))}</{tag}>\n"


def _mode(state: bool | None) -> str:  # noqa: FBT001 – a value to be spelt, not a choice
    return {True: "Enabled", False: "Disabled", None: NOT_APPLICABLE}[state]


def _memory(total: int, reserved: int, used: int) -> dict[str, str]:
    return {
        "total": f"{total} MiB",
        "reserved": f"{reserved} MiB",
        "used": f"{used} MiB",
        "free": f"{total - reserved - used} MiB",
    }


def _card(card: Card) -> dict[str, Any]:
    tree: dict[str, Any] = {
        "product_name": card.name,
        "product_brand": "NVIDIA",
        "persistence_mode": "Enabled",
        "addressing_mode": "None",
        "mig_mode": {"current_mig": _mode(card.mig), "pending_mig": _mode(card.mig)},
        "mig_devices": {"mig_device": [_instance(each) for each in card.instances]} if card.instances else "None",
        "serial": card.serial,
        "uuid": card.uuid,
        "minor_number": str(card.index),
        "vbios_version": "96.00.61.00.01",
        "gpu_virtualization_mode": {"virtualization_mode": "None"},
        "gpu_recovery_action": "None",
        "pci": _pci(card),
        "performance_state": "P0",
        "clocks_event_reasons": {f"clocks_event_reason_{name}": _active(name) for name in REASONS},
        "fb_memory_usage": _memory(card.mib, card.reserved_mib, card.used_mib),
        "bar1_memory_usage": {"total": "131072 MiB", "used": "1 MiB", "free": "131071 MiB"},
        "compute_mode": "Default",
        "utilization": {"gpu_util": NOT_APPLICABLE if card.mig else "0 %", "memory_util": "0 %"},
        "ecc_mode": {"current_ecc": _mode(card.ecc), "pending_ecc": _mode(card.ecc)},
        "ecc_errors": _ecc_errors(card),
        "retired_pages": {"pending_retirement": NOT_APPLICABLE},
        "remapped_rows": _remapped_rows() if card.ecc and not card.mig else NOT_APPLICABLE,
        "temperature": {
            "gpu_temp": "31 C",
            "gpu_temp_tlimit": NOT_APPLICABLE,
            "gpu_temp_max_threshold": "92 C",
            "gpu_temp_slow_threshold": "89 C",
        },
        "gpu_power_readings": {
            "power_state": "P0",
            "power_draw": f"{card.watts:.2f} W",
            "current_power_limit": f"{card.limit_watts:.2f} W",
            "default_power_limit": f"{card.limit_watts:.2f} W",
        },
        "clocks": {
            "graphics_clock": "345 MHz",
            "sm_clock": "345 MHz",
            "mem_clock": "2619 MHz",
            "video_clock": "765 MHz",
        },
        "max_clocks": {"graphics_clock": "1980 MHz", "sm_clock": "1980 MHz", "mem_clock": "2619 MHz"},
        "fabric": dict(card.fabric) if card.fabric else {"state": NOT_APPLICABLE, "status": NOT_APPLICABLE},
        "processes": {"process_info": [_process(*each) for each in card.processes]} if card.processes else "\n\t\t",
    }
    for path, text in card.tags.items():
        _put(tree, path.split("/"), text)
    return tree


def _put(tree: dict[str, Any], path: list[str], text: str) -> None:
    for tag in path[:-1]:
        below = tree.get(tag)
        tree[tag] = below if isinstance(below, dict) else {}
        tree = tree[tag]
    tree[path[-1]] = text


def _active(reason: str) -> str:
    return "Active" if reason == "gpu_idle" else "Not Active"


def _pci(card: Card) -> dict[str, Any]:
    return {
        "pci_bus": card.bus[5:7].upper(),
        "pci_device": "00",
        "pci_domain": card.bus[:4].upper(),
        "pci_bus_id": card.long_bus,
        "pci_gpu_link_info": {
            "pcie_gen": {"max_link_gen": "5", "current_link_gen": "5"},
            "link_widths": {"max_link_width": "16x", "current_link_width": "16x"},
        },
        "replay_counter": "0",
    }


def _ecc_errors(card: Card) -> dict[str, Any]:
    """In MIG mode the counters since the driver was loaded are told for the instances alone."""
    names = ("sram_correctable", "sram_uncorrectable", "dram_correctable", "dram_uncorrectable")
    aggregate = "0" if card.ecc else NOT_APPLICABLE
    volatile = NOT_APPLICABLE if card.mig else aggregate
    return {"volatile": dict.fromkeys(names, volatile), "aggregate": dict.fromkeys(names, aggregate)}


def _remapped_rows() -> dict[str, Any]:
    histogram = {
        "max": "2560 bank(s)",
        "high": "0 bank(s)",
        "partial": "0 bank(s)",
        "low": "0 bank(s)",
        "none": "0 bank(s)",
    }
    return {
        "remapped_row_corr": "0",
        "remapped_row_unc": "0",
        "remapped_row_pending": "No",
        "remapped_row_failure": "No",
        "row_remapper_histogram": {f"row_remapper_histogram_{name}": text for name, text in histogram.items()},
    }


def _instance(part: Instance) -> dict[str, Any]:
    return {
        "index": str(part.slot),
        "gpu_instance_id": str(part.gpu_instance),
        "compute_instance_id": "0",
        "device_attributes": {"shared": {"multiprocessor_count": str(part.multiprocessors)}},
        "ecc_error_count": {"volatile_count": {"sram_uncorrectable": "0"}},
        "fb_memory_usage": _memory(part.mib, 0, 12),
    }


def _process(pid: int, name: str, mib: int) -> dict[str, str]:
    return {
        "gpu_instance_id": NOT_APPLICABLE,
        "compute_instance_id": NOT_APPLICABLE,
        "pid": str(pid),
        "type": "C",
        "process_name": name,
        "used_memory": f"{mib} MiB",
    }


# --- the other answers --------------------------------------------------------------------------------------------


def listing(cards: Iterable[Card]) -> str:
    """What `nvidia-smi -L` prints."""
    lines = []
    for card in cards:
        lines.append(f"GPU {card.index}: {card.name} (UUID: {card.uuid})")
        lines += [f"  MIG {part.profile:<12}Device {part.slot:>2}: (UUID: {part.uuid})" for part in card.instances]
    return "\n".join(lines) + "\n"


def column(cards: Iterable[Card], attribute: str) -> str:
    """What `nvidia-smi --query-gpu=uuid,…` prints."""
    return "".join(f"{card.uuid}, {getattr(card, attribute)}\n" for card in cards)


def links(cards: Iterable[Card], speed: str = "26.562 GB/s") -> str:
    """What `nvidia-smi nvlink --status` prints."""
    return "".join(
        f"GPU {card.index}: {card.name} (UUID: {card.uuid})\n"
        + "".join(f"\t Link {number}: {speed}\n" for number in range(card.nvlinks))
        for card in cards
        if card.nvlinks
    )


def link_errors(cards: Iterable[Card]) -> str:
    """What `nvidia-smi nvlink -e` prints."""
    kinds = ("Replay", "Recovery", "CRC")
    return "".join(
        f"GPU {card.index}: {card.name} (UUID: {card.uuid})\n"
        + "".join(f"\t Link {number}: {kind} Errors: 0\n" for number in range(card.nvlinks) for kind in kinds)
        for card in cards
        if card.nvlinks
    )


def matrix(cards: Sequence[Card], adapters: Sequence[tuple[str, str, int]], link: str) -> str:
    """What `nvidia-smi topo -m` prints; adapters are (name, address, NUMA node); a card is near its own by PIX."""
    names = [*(f"GPU{card.index}" for card in cards), *(f"NIC{number}" for number, _ in enumerate(adapters))]
    numas = [*(card.numa for card in cards), *(numa for _, _, numa in adapters)]
    rows = ["\t" + "\t".join([*names, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"])]
    for row, name in enumerate(names):
        cells = [_cell(row, other, len(cards), numas, link) for other in range(len(names))]
        near = (
            [f"{48 * numas[row]}-{48 * numas[row] + 47}", str(numas[row]), NOT_APPLICABLE] if row < len(cards) else []
        )
        rows.append("\t".join([name, *cells, *near]))
    legend = "".join(f"  NIC{number}: {name}\n" for number, (name, _, _) in enumerate(adapters))
    return "\n".join(rows) + f"\n\nLegend:\n\n  X    = Self\n\nNIC Legend:\n\n{legend}"


def _cell(row: int, other: int, cards: int, numas: Sequence[int], link: str) -> str:
    if row == other:
        return " X "
    if row < cards and other < cards:
        return link
    is_pair = min(row, other) < cards and abs(row - other) == cards
    return "PIX" if is_pair else "NODE" if numas[row] == numas[other] else "SYS"
