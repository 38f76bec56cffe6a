"""Reads a card's registration with its NVLink fabric, in the newest form that the library knows."""

from ctypes import byref
from typing import Any, Final

from llmgw.core.hardware.gpus import FabricState, GpuFabric
from workers.discovery.nvidia.nvml_asking import Asker

_STATES: Final = (FabricState.NOT_SUPPORTED, FabricState.NOT_STARTED, FabricState.IN_PROGRESS, FabricState.COMPLETED)
_HEALTH: Final = (None, "healthy", "unhealthy", "limited-capacity")
_CONFIGURATION: Final = (
    None,
    "none",
    "incorrect sysguid",
    "incorrect chassis sn",
    "no partition",
    "insufficient nvlinks",
    "incompatible gpu firmware",
    "invalid location",
    "gpu state invalid",
)
# healthMask of nvmlGpuFabricInfo: where each part begins; two bits (0 not supported, 1 true, 2 false), the last four.
_DEGRADED, _RECOVERY, _UNHEALTHY, _TIMEOUT, _CONFIGURED = 0, 2, 4, 6, 8
_ZEROS: Final = "00000000-0000-0000-0000-000000000000"


def fabric_of(asker: Asker, card: Any) -> GpuFabric | None:
    """Return the registration; None for a card or a library that knows of none."""
    told = _told(asker, card)
    if told is None or not 0 <= told.state < len(_STATES):
        return None
    state = _STATES[told.state]
    health = _health(getattr(told, "healthMask", 0) or 0)
    return GpuFabric(
        state=state,
        status=_status(asker, told.status) if state is FabricState.COMPLETED else None,
        cluster_uuid=_cluster(bytes(told.clusterUuid)),
        clique_id=int(told.cliqueId) if state is FabricState.COMPLETED else None,
        health=_word(_HEALTH, getattr(told, "healthSummary", 0) or 0),
        **health,
    )


def _told(asker: Asker, card: Any) -> Any:
    for name in ("c_nvmlGpuFabricInfo_v3_t", "c_nvmlGpuFabricInfo_v2_t"):
        kind = getattr(asker.nvml, name, None)
        info = kind() if kind else None
        if info is not None and asker.ask("fabric", "nvmlDeviceGetGpuFabricInfoV", card, byref(info)) is not None:
            return info
    kind = getattr(asker.nvml, "c_nvmlGpuFabricInfo_t", None)
    info = kind() if kind else None
    if info is None or asker.ask("fabric", "nvmlDeviceGetGpuFabricInfo", card, byref(info)) is None:
        return None
    return info


def _health(mask: int) -> dict[str, Any]:
    degraded = _true(mask >> _DEGRADED)
    return {
        "bandwidth": None if degraded is None else ("degraded" if degraded else "full"),
        "route_recovery": _true(mask >> _RECOVERY),
        "route_unhealthy": _true(mask >> _UNHEALTHY),
        "access_timeout_recovery": _true(mask >> _TIMEOUT),
        "incorrect_configuration": _word(_CONFIGURATION, (mask >> _CONFIGURED) & 0xF),
    }


def _true(bits: int) -> bool | None:
    return {1: True, 2: False}.get(bits & 0x3)


def _word(words: tuple[str | None, ...], number: int) -> str | None:
    return words[number] if number < len(words) else None


def _status(asker: Asker, code: int) -> str:
    return "success" if code == 0 else str(asker.nvml.NVMLError(code)).lower()


def _cluster(raw: bytes) -> str | None:
    text = raw.hex()
    uuid = "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
    return None if uuid == _ZEROS else uuid
