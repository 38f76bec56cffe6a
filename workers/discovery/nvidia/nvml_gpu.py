"""Makes a card of what NVML says of it, in the words that nvidia-smi would have used."""

from typing import Any, Final

from llmgw.core.hardware.gpus import Gpu
from workers.discovery.nvidia import words
from workers.discovery.nvidia.nvml_asking import Asker, address, field_of, flag, word
from workers.discovery.nvidia.nvml_errors import ecc_of, remapped_of, retired_of
from workers.discovery.nvidia.nvml_fabric import fabric_of
from workers.discovery.nvidia.nvml_links import links_of
from workers.discovery.nvidia.nvml_parts import instances_of, memory_of, processes_of

# Numbers of nvml.h: a clock's and a threshold's kind, and NVML_FI_DEV_GET_GPU_RECOVERY_ACTION.
_SM_CLOCK, _MEMORY_CLOCK = 1, 2
_SLOWDOWN: Final = 1
_RECOVERY_ACTION: Final = 230
_RESET_FLAGS: Final = (226, 227)
"""NVML_FI_DEV_RESET_STATUS and NVML_FI_DEV_DRAIN_AND_RESET_STATUS."""
_UNKNOWN_PSTATE: Final = 32
_CORE_SENSOR: Final = 0
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
_ADDRESSING: Final = ("none", "hmm", "ats")
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


def read_card(asker: Asker, card: Any, index: int) -> Gpu:
    """Ask for everything; whatever is not there or fails costs itself."""
    pci = asker.ask("pci address", "nvmlDeviceGetPciInfo", card)
    mig = asker.ask("mig_enabled", "nvmlDeviceGetMigMode", card)
    is_cut = bool(mig and mig[0])
    told = _identity(asker, card) | _manners(asker, card) | _readings(asker, card) | _speed(asker, card)
    told |= memory_of(asker, card) | _pcie(asker, card)
    facts: dict[str, Any] = {
        "instances": tuple(instances_of(asker, card)) if is_cut else (),
        "ecc": ecc_of(asker, card),
        "remapped_rows": remapped_of(asker, card),
        "retired_pages": retired_of(asker, card),
        "fabric": fabric_of(asker, card),
        "nvlinks": None if is_cut else links_of(asker, card),
        "processes": processes_of(asker, card),
    }
    return Gpu(
        index=index,
        pci_address=address(pci.busId) if pci else None,
        mig_enabled=flag(mig[0]) if mig else None,
        mig_enabled_pending=flag(mig[1]) if mig else None,
        inforom_ok=_inforom(asker, card),
        **told,
        **facts,
        failed=asker.failed,  # the last, when all has been asked
    )


def _identity(asker: Asker, card: Any) -> dict[str, Any]:
    ask = asker.ask
    capability = ask("compute_capability", "nvmlDeviceGetCudaComputeCapability", card)
    return {
        "uuid": ask("uuid", "nvmlDeviceGetUUID", card),
        "name": ask("name", "nvmlDeviceGetName", card),
        "serial": ask("serial", "nvmlDeviceGetSerial", card),
        "vbios": ask("vbios", "nvmlDeviceGetVbiosVersion", card),
        "minor_number": ask("minor_number", "nvmlDeviceGetMinorNumber", card),
        "compute_capability": f"{capability[0]}.{capability[1]}" if capability else None,
    }


def _manners(asker: Asker, card: Any) -> dict[str, Any]:
    ask = asker.ask
    return {
        "persistence_mode": flag(ask("persistence_mode", "nvmlDeviceGetPersistenceMode", card)),
        "display_active": flag(ask("display_active", "nvmlDeviceGetDisplayActive", card)),
        "compute_mode": word(_COMPUTE_MODES, ask("compute_mode", "nvmlDeviceGetComputeMode", card)),
        "virtualization": word(_VIRTUALIZATION, ask("virtualization", "nvmlDeviceGetVirtualizationMode", card)),
        "addressing_mode": word(_ADDRESSING, ask("addressing_mode", "nvmlDeviceGetAddressingMode", card)),
        "recovery_action": _action(asker, card),
    }


def _action(asker: Asker, card: Any) -> str | None:
    """Return what the card asks for; before R565 two flags said it."""
    told = field_of(asker, card, "recovery_action", _RECOVERY_ACTION)
    if told is not None:
        return word(_ACTIONS, told)
    quiet = Asker(asker.nvml, asker.called)  # newer drivers have them no more, which is no loss
    reset, drain = (flag(field_of(quiet, card, "recovery_action", number)) for number in _RESET_FLAGS)
    return words.of_flags(reset=reset, drain=drain)


def _inforom(asker: Asker, card: Any) -> bool | None:
    """Have the infoROM checked, as nvidia-smi does when it starts; False where it, or anything else, says corrupted."""
    quiet = Asker(asker.nvml, asker.called)  # that it cannot be checked is no loss
    quiet.ask("inforom", "nvmlDeviceValidateInforom", card)
    return False if asker.is_inforom_corrupted or quiet.is_inforom_corrupted else None


def _readings(asker: Asker, card: Any) -> dict[str, Any]:
    ask = asker.ask
    thermometers = ("nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature")
    return {
        "temperature_celsius": asker.first("temperature", thermometers, card, _CORE_SENSOR),
        "temperature_slowdown_celsius": ask(
            "temperature_slowdown", "nvmlDeviceGetTemperatureThreshold", card, _SLOWDOWN
        ),
        "temperature_margin_celsius": ask("temperature_margin", "nvmlDeviceGetMarginTemperature", card),
        "power_watts": _watts(ask("power", "nvmlDeviceGetPowerUsage", card)),
        "power_limit_watts": _watts(ask("power_limit", "nvmlDeviceGetPowerManagementLimit", card)),
        "power_limit_default_watts": _watts(
            ask("power_limit_default", "nvmlDeviceGetPowerManagementDefaultLimit", card)
        ),
    }


def _speed(asker: Asker, card: Any) -> dict[str, Any]:
    ask = asker.ask
    use = ask("utilization", "nvmlDeviceGetUtilizationRates", card)
    state = ask("performance_state", "nvmlDeviceGetPerformanceState", card)
    asked = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
    reasons = asker.first("throttle_reasons", asked, card)
    return {
        "clock_sm_mhz": ask("clock_sm", "nvmlDeviceGetClockInfo", card, _SM_CLOCK),
        "clock_memory_mhz": ask("clock_memory", "nvmlDeviceGetClockInfo", card, _MEMORY_CLOCK),
        "utilization_percent": use.gpu if use else None,
        "performance_state": None if state is None or state >= _UNKNOWN_PSTATE else f"P{state}",
        "throttle_reasons": None if reasons is None else tuple(sorted(each for bit, each in _REASONS if reasons & bit)),
    }


def _pcie(asker: Asker, card: Any) -> dict[str, Any]:
    ask = asker.ask
    return {
        "pcie_generation": ask("pcie_generation", "nvmlDeviceGetCurrPcieLinkGeneration", card),
        "pcie_generation_max": ask("pcie_generation_max", "nvmlDeviceGetMaxPcieLinkGeneration", card),
        "pcie_width": ask("pcie_width", "nvmlDeviceGetCurrPcieLinkWidth", card),
        "pcie_width_max": ask("pcie_width_max", "nvmlDeviceGetMaxPcieLinkWidth", card),
        "pcie_replays": ask("pcie_replays", "nvmlDeviceGetPcieReplayCounter", card),
    }


def _watts(milliwatts: int | None) -> float | None:
    return None if milliwatts is None else round(milliwatts / 1000, 2)
