"""Reads a card's errors of memory: counts, rows that were remapped, pages that were retired, repairs that are owed."""

from ctypes import byref
from typing import Any

from llmgw.core.hardware.gpus import Ecc, RemappedRows, RetiredPages
from workers.discovery.nvidia.nvml_asking import Asker, flag

# Numbers of nvml.h: kinds of errors, since when they are counted, where they are, and why a page is retired.
_CORRECTED, _UNCORRECTED = 0, 1
_VOLATILE, _AGGREGATE = 0, 1
_DRAM, _SRAM = 2, 7
_SINGLE_BIT, _DOUBLE_BIT = 0, 1


def ecc_of(asker: Asker, card: Any) -> Ecc:
    """Return error correction and its counts."""
    mode = asker.ask("ecc mode", "nvmlDeviceGetEccMode", card)
    repair = asker.ask("repair status", "nvmlDeviceGetRepairStatus", card)
    return Ecc(
        enabled=flag(mode[0]) if mode else None,
        enabled_pending=flag(mode[1]) if mode else None,
        uncorrected_volatile=uncorrected(asker, card),
        corrected_volatile=_errors(asker, card, _CORRECTED, _VOLATILE),
        uncorrected_aggregate=_errors(asker, card, _UNCORRECTED, _AGGREGATE),
        corrected_aggregate=_errors(asker, card, _CORRECTED, _AGGREGATE),
        sram_threshold_exceeded=_sram_threshold(asker, card),
        unrepairable_memory=flag(
            asker.ask("unrepairable memory", "nvmlDeviceGetUnrepairableMemoryFlag_v1", card),
        ),
        channel_repair_pending=flag(repair[0]) if repair else None,
        tpc_repair_pending=flag(repair[1]) if repair else None,
    )


def uncorrected(asker: Asker, card: Any) -> int | None:
    """Return how many errors of a card or instance could not be corrected since the driver was loaded."""
    return _errors(asker, card, _UNCORRECTED, _VOLATILE)


def _errors(asker: Asker, card: Any, kind: int, since: int) -> int | None:
    """Ask for the total, else add up the places that count; where none does it is not known, which is not 0."""
    total: int | None = asker.ask("ecc errors", "nvmlDeviceGetTotalEccErrors", card, kind, since)
    if total is not None:
        return total
    ask = ("ecc errors", "nvmlDeviceGetMemoryErrorCounter", card, kind, since)
    counts = [count for place in (_DRAM, _SRAM) if (count := asker.ask(*ask, place)) is not None]
    return sum(counts) if counts else None


def _sram_threshold(asker: Asker, card: Any) -> bool | None:
    kind = getattr(asker.nvml, "c_nvmlEccSramErrorStatus_v1_t", None)
    status = kind() if kind else None
    if status is None or asker.ask("sram errors", "nvmlDeviceGetSramEccErrorStatus", card, byref(status)) is None:
        return None
    return bool(status.bThresholdExceeded)


def remapped_of(asker: Asker, card: Any) -> RemappedRows | None:
    """Return the rows that were replaced; None before Ampere, and in MIG mode on some drivers."""
    rows = asker.ask("remapped rows", "nvmlDeviceGetRemappedRows", card)
    if rows is None:
        return None
    banks = asker.ask("row remap histogram", "nvmlDeviceGetRowRemapperHistogram", card)
    return RemappedRows(
        corrected=rows[0],
        uncorrected=rows[1],
        pending=flag(rows[2]),
        failed=flag(rows[3]),
        banks_without_spares=banks.none if banks else None,
    )


def retired_of(asker: Asker, card: Any) -> RetiredPages | None:
    """Return the pages that were taken out of use; None from Ampere on."""
    single = asker.ask("retired pages", "nvmlDeviceGetRetiredPages", card, _SINGLE_BIT)
    double = asker.ask("retired pages", "nvmlDeviceGetRetiredPages", card, _DOUBLE_BIT)
    pending = asker.ask("page retirement pending", "nvmlDeviceGetRetiredPagesPendingStatus", card)
    if single is None and double is None and pending is None:
        return None
    return RetiredPages(
        single_bit=None if single is None else len(single),
        double_bit=None if double is None else len(double),
        pending=flag(pending),
    )
