"""Reads a card's NVLinks."""

from types import MappingProxyType
from typing import Any, Final

from llmgw.core.hardware.gpus import NvLink
from workers.discovery.nvidia.nvml_asking import Asker, address, field_of

_COUNT: Final = 91
"""NVML_FI_DEV_NVLINK_LINK_COUNT."""
_MOST: Final = 36
"""NVML_NVLINK_MAX_LINKS."""
_REMOTE: Final = MappingProxyType({0: "gpu", 2: "switch"})
_COUNTERS: Final = ((0, "replay"), (1, "recovery"), (2, "crc"))
"""NVML_NVLINK_ERROR_DL_REPLAY, _RECOVERY, _CRC_FLIT."""


def links_of(asker: Asker, card: Any) -> tuple[NvLink, ...] | None:
    """Return the links by number; None for a card that has none, or whose driver does not tell."""
    count = field_of(asker, card, "nvlinks", _COUNT) or 0
    found = (_link(Asker(asker.nvml, asker.called), card, number) for number in range(min(count, _MOST)))
    return tuple(link for link in found if link) or None


def _link(quiet: Asker, card: Any, number: int) -> NvLink | None:
    """Ask for one link; nobody hears of its problems: of one that is not there all is an invalid argument."""
    called = f"nvlink {number}"
    state = quiet.ask(called, "nvmlDeviceGetNvLinkState", card, number)
    if state is None:
        return None
    remote = quiet.ask(called, "nvmlDeviceGetNvLinkRemoteDeviceType", card, number) if state else None
    pci = quiet.ask(called, "nvmlDeviceGetNvLinkRemotePciInfo", card, number) if state else None
    return NvLink(
        number=number,
        active=bool(state),
        remote=_REMOTE.get(remote) if remote is not None else None,
        remote_pci_address=address(pci.busId) if pci else None,
        errors=_errors(quiet, card, number) or None,
    )


def _errors(quiet: Asker, card: Any, number: int) -> dict[str, int]:
    ask = ("nvlink errors", "nvmlDeviceGetNvLinkErrorCounter", card, number)
    told = {name: quiet.ask(*ask, which) for which, name in _COUNTERS}
    return {name: int(count) for name, count in told.items() if count is not None}
