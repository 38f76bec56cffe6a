"""Makes a card of what nvidia-smi says of it, field by field: a bad field costs itself and no more."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final
from xml.etree.ElementTree import Element

from llmgw.core.hardware.findings import Problem
from llmgw.core.hardware.gpus import (
    Ecc,
    FabricState,
    Gpu,
    GpuFabric,
    RemappedRows,
    RetiredPages,
)
from workers.discovery.nvidia import words
from workers.discovery.nvidia.smi_parts import instances_of, processes_of
from workers.discovery.nvidia.smi_sheet import CORRECTED, FB, UNCORRECTED, Rows, Sheet
from workers.discovery.nvidia.smi_tree import text_at, texts
from workers.discovery.nvidia.words import Failed
from workers.discovery.pci import canonical

_POWER: Final = ("gpu_power_readings", "power_readings")
_CORE: Final = (
    "uuid",
    "name",
    "memory_total_bytes",
    "temperature_celsius",
    "utilization_percent",
    "power_watts",
    "clock_sm_mhz",
)
"""Of these, so many must have failed before a card as a whole is said to have."""
_CORE_FAILED: Final = 3


def _power(*names: str) -> tuple[str, ...]:
    return tuple(f"{block}/{name}" for name in names for block in _POWER)


_FIELDS: Final[Rows] = (
    ("uuid", words.card_uuid, ("uuid", "gpu_uuid")),
    ("name", str, ("product_name",)),
    ("minor_number", words.whole, ("minor_number",)),
    ("serial", str, ("serial", "serial_number")),
    ("vbios", str, ("vbios_version",)),
    ("memory_total_bytes", words.amount, (f"{FB}/total",)),
    # Without `reserved`, which stands beside it from 510 on; drivers before count their own share as used.
    ("memory_used_bytes", words.amount, (f"{FB}/used",)),
    ("memory_reserved_bytes", words.amount, (f"{FB}/reserved",)),
    ("memory_free_bytes", words.amount, (f"{FB}/free",)),
    ("temperature_celsius", words.celsius, ("temperature/gpu_temp", "temperature/gpu_current_temp")),
    (
        "temperature_slowdown_celsius",
        words.celsius,
        ("temperature/gpu_temp_slow_threshold", "temperature/gpu_slowdown_temp"),
    ),
    ("temperature_margin_celsius", words.celsius, ("temperature/gpu_temp_tlimit", "temperature/gpu_t_limit_temp")),
    (
        "power_watts",
        words.watts,
        _power("power_draw", "average_power_draw", "instant_power_draw", "instantaneous_power_draw"),
    ),
    ("power_limit_watts", words.watts, _power("current_power_limit", "enforced_power_limit", "power_limit")),
    ("power_limit_default_watts", words.watts, _power("default_power_limit")),
    ("clock_sm_mhz", words.megahertz, ("clocks/sm_clock", "clocks/sm")),
    ("clock_memory_mhz", words.megahertz, ("clocks/mem_clock", "clocks/memory")),
    ("utilization_percent", words.percent, ("utilization/gpu_util", "utilization/gpu")),
    ("performance_state", str, ("performance_state",)),
    ("persistence_mode", words.flag, ("persistence_mode",)),
    ("compute_mode", words.dashed, ("compute_mode",)),
    ("display_active", words.flag, ("display_active",)),
    ("addressing_mode", words.lower, ("addressing_mode",)),
    ("virtualization", words.dashed, ("gpu_virtualization_mode/virtualization_mode",)),
    (
        "vgpu_licence",
        words.licence,
        ("vgpu_software_licensed_product/license_status", "grid_licensed_product/license_status"),
    ),
    ("recovery_action", words.action, ("gpu_recovery_action",)),
    ("pcie_replays", words.whole, ("pci/replay_counter", "pci/replays_since_reset")),
    ("mig_enabled", words.flag, ("mig_mode/current_mig", "mig_mode/current")),
    ("mig_enabled_pending", words.flag, ("mig_mode/pending_mig", "mig_mode/pending")),
)
_LINK: Final = "pci/pci_gpu_link_info"
_TEXT_LINK: Final = "pci/gpu_link_info"
_PCIE: Final[Rows] = (
    ("pcie_generation", words.whole, (f"{_LINK}/pcie_gen/current_link_gen", f"{_TEXT_LINK}/pcie_generation/current")),
    ("pcie_generation_max", words.whole, (f"{_LINK}/pcie_gen/max_link_gen", f"{_TEXT_LINK}/pcie_generation/max")),
    ("pcie_width", words.whole, (f"{_LINK}/link_widths/current_link_width", f"{_TEXT_LINK}/link_width/current")),
    ("pcie_width_max", words.whole, (f"{_LINK}/link_widths/max_link_width", f"{_TEXT_LINK}/link_width/max")),
)
_REASONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "gpu_idle": "idle",
        "idle": "idle",
        "applications_clocks_setting": "applications-clocks",
        "sw_power_cap": "sw-power-cap",
        "hw_slowdown": "hw-slowdown",
        "sync_boost": "sync-boost",
        "sw_thermal_slowdown": "sw-thermal",
        "hw_thermal_slowdown": "hw-thermal",
        "hw_power_brake_slowdown": "hw-power-brake",
        "display_clocks_setting": "display-clocks",
        "display_clock_setting": "display-clocks",
    }
)


def read_card(element: Element, called: str) -> tuple[Gpu, tuple[Problem, ...]]:
    """Read one card; its number and its instances' names stand elsewhere."""
    sheet = Sheet(element, called)
    facts = sheet.all(_FIELDS) | sheet.all(_PCIE)
    gpu = Gpu(
        **{
            **facts,
            "uuid": facts["uuid"] or _uuid_elsewhere(element),
            "recovery_action": _action(sheet, facts["recovery_action"]),
        },
        pci_address=canonical(element.get("id") or "") or _told_address(element),
        throttle_reasons=_throttled(sheet),
        ecc=_ecc(sheet),
        remapped_rows=_remapped(sheet),
        retired_pages=_retired(sheet),
        fabric=_fabric(sheet),
        instances=tuple(instances_of(element, called, sheet.problems)),
        processes=processes_of(element),
        failed=_failed(element, sheet.failed),
    )
    # Of a card that can do nothing no single field is worth a line.
    return gpu, () if gpu.failed else tuple(dict.fromkeys(sheet.problems))


def _told_address(element: Element) -> str | None:
    told = (text_at(element, path) for path in ("pci/pci_bus_id", "pci/bus_id"))
    return next((address for text in told if (address := canonical(text or ""))), None)


def _uuid_elsewhere(element: Element) -> str | None:
    """Find the identity in a document of which a line got lost, so that it stands a level lower than it should."""
    told = ((each.text or "").strip() for each in element.iter("uuid"))
    return next((uuid for uuid in told if uuid.startswith("GPU-")), None)


def _action(sheet: Sheet, action: str | None) -> str | None:
    """Return what the card asks for; before R565 two flags said it."""
    if action not in {None, "none"}:
        return action
    base = "gpu_reset_status"
    reset = sheet.one("reset required", words.flag, f"{base}/reset_required")
    drain = sheet.one("drain and reset recommended", words.flag, f"{base}/drain_and_reset_recommended")
    return action or words.of_flags(reset=reset, drain=drain)


def _failed(element: Element, fields: Mapping[str, str]) -> str | None:
    """Return the driver's words that the card can do nothing; a single odd field is none."""
    lost = next((said for text in texts(element) if (said := words.says_lost(text))), None)
    core = [said for field, said in fields.items() if field in _CORE]
    return lost or (core[0] if len(core) >= _CORE_FAILED else None)


def _throttled(sheet: Sheet) -> tuple[str, ...] | None:
    """Return the reasons that are active; None where none is told to be active or not."""
    names = ("clocks_event_reasons", "clocks_throttle_reasons")
    block = next((found for name in names if (found := sheet.element.find(name)) is not None), None)
    said = {each.tag: words.read(each.text) for each in block.iter()} if block is not None else {}
    told = {tag: word.lower() for tag, word in said.items() if isinstance(word, str)}
    failed = next((word for word in said.values() if isinstance(word, Failed)), None)
    if failed is not None:
        sheet.note("throttle_reasons", failed)
    if not {"active", "not active"} & {*told.values()}:
        return None
    active = (tag.split("_reason_", 1)[-1] for tag, word in told.items() if word == "active")
    return tuple(sorted({_REASONS[name] for name in active if name in _REASONS}))


# --- errors -------------------------------------------------------------------------------------------------------


def _ecc(sheet: Sheet) -> Ecc:
    errors = "ecc_errors"
    return Ecc(
        enabled=sheet.one("ecc mode", words.flag, "ecc_mode/current_ecc", "ecc_mode/current"),
        enabled_pending=sheet.one("ecc mode pending", words.flag, "ecc_mode/pending_ecc", "ecc_mode/pending"),
        uncorrected_volatile=sheet.total("ecc errors", f"{errors}/volatile", UNCORRECTED, "double_bit"),
        corrected_volatile=sheet.total("ecc errors", f"{errors}/volatile", CORRECTED, "single_bit"),
        uncorrected_aggregate=sheet.total("ecc errors", f"{errors}/aggregate", UNCORRECTED, "double_bit"),
        corrected_aggregate=sheet.total("ecc errors", f"{errors}/aggregate", CORRECTED, "single_bit"),
        sram_threshold_exceeded=sheet.one("sram threshold", words.flag, f"{errors}/aggregate/sram_threshold_exceeded"),
        unrepairable_memory=sheet.one("unrepairable memory", words.flag, f"{errors}/unrepairable_memory"),
        channel_repair_pending=sheet.one("channel repair", words.flag, f"{errors}/channel_repair_pending"),
        tpc_repair_pending=sheet.one("tpc repair", words.flag, f"{errors}/tpc_repair_pending"),
    )


def _remapped(sheet: Sheet) -> RemappedRows | None:
    base = "remapped_rows"
    block = sheet.element.find(base)
    if block is None or len(block) == 0:
        sheet.one("remapped rows", Failed, base)  # a text in place of all: N/A, or that they could not be told
        return None
    told = RemappedRows(
        corrected=sheet.one("remapped rows", words.whole, f"{base}/remapped_row_corr", f"{base}/correctable_error"),
        uncorrected=sheet.one("remapped rows", words.whole, f"{base}/remapped_row_unc", f"{base}/uncorrectable_error"),
        pending=sheet.one("row remap pending", words.flag, f"{base}/remapped_row_pending", f"{base}/pending"),
        failed=sheet.one(
            "row remap failure", words.flag, f"{base}/remapped_row_failure", f"{base}/remapping_failure_occurred"
        ),
        banks_without_spares=sheet.one(
            "row remap histogram",
            words.whole,
            f"{base}/row_remapper_histogram/row_remapper_histogram_none",
            f"{base}/bank_remap_availability_histogram/none",
        ),
    )
    return None if told == RemappedRows() else told


def _retired(sheet: Sheet) -> RetiredPages | None:
    base = "retired_pages"
    told = RetiredPages(
        single_bit=sheet.one(
            "retired pages",
            words.whole,
            f"{base}/multiple_single_bit_retirement/retired_count",
            f"{base}/single_bit_ecc",
        ),
        double_bit=sheet.one(
            "retired pages", words.whole, f"{base}/double_bit_retirement/retired_count", f"{base}/double_bit_ecc"
        ),
        pending=sheet.one(
            "page retirement pending",
            words.flag,
            f"{base}/pending_retirement",
            f"{base}/pending_blacklist",
            f"{base}/pending_page_blacklist",
            f"{base}/pending_page_retirement",
        ),
    )
    return None if told == RetiredPages() else told


# --- NVLink fabric ------------------------------------------------------------------------------------------------

_STATES: Final = MappingProxyType(
    {
        "not supported": FabricState.NOT_SUPPORTED,
        "not started": FabricState.NOT_STARTED,
        "in progress": FabricState.IN_PROGRESS,
        "completed": FabricState.COMPLETED,
    }
)


def _fabric(sheet: Sheet) -> GpuFabric | None:
    """Read the `Fabric` block; its words are states, so `Not Supported` is one, and only N/A is nothing."""
    state = _said(sheet, "state")
    if state is None:
        return None
    return GpuFabric(
        state=_STATES.get(state),
        status=_said(sheet, "status"),
        cluster_uuid=_cluster(_said(sheet, "clusteruuid", "cluster_uuid")),
        clique_id=words.count(_said(sheet, "cliqueid", "clique_id")),
        health=_dashed(_said(sheet, "health/summary")),
        bandwidth=_if_supported(_said(sheet, "health/bandwidth")),
        route_recovery=_true(_said(sheet, "health/route_recovery_in_progress", "health/route_recovery")),
        route_unhealthy=_true(_said(sheet, "health/route_unhealthy")),
        access_timeout_recovery=_true(_said(sheet, "health/access_timeout_recovery")),
        incorrect_configuration=_if_supported(_said(sheet, "health/incorrect_configuration")),
    )


def _said(sheet: Sheet, *paths: str) -> str | None:
    told = next((text for path in paths if (text := text_at(sheet.element, f"fabric/{path}")) is not None), "")
    word = words.lower(told).strip("[]")
    if word in {"", "n/a"}:
        return None
    read = words.read(told)
    # A status is told by the words of errors, and is no failure to tell.
    if isinstance(read, Failed) and paths != ("status",):
        sheet.note("fabric", read)
        return None
    return word


def _cluster(uuid: str | None) -> str | None:
    return uuid if uuid and set(uuid) - set("0-") else None


def _if_supported(word: str | None) -> str | None:
    return None if word == "not supported" else word


def _dashed(word: str | None) -> str | None:
    told = _if_supported(word)
    return words.dashed(told) if told else None


def _true(word: str | None) -> bool | None:
    return {"true": True, "yes": True, "false": False, "no": False}.get(word or "")
