"""Tells news in an inventory from mere fluctuation."""

from typing import Final

import msgspec

from llmgw.core.units import GIB, Bytes
from llmgw.core.wire import Inventory

_SHARE: Final = 0.05


def matters(before: Inventory, after: Inventory) -> bool:
    """Tell whether the control plane should hear of it: free memory and disk only by a twentieth and a GiB."""
    if _fixed(before) != _fixed(after):
        return True
    return _moved(before.memory_available, after.memory_available, after.memory_total) or _moved(
        before.disk_free, after.disk_free, after.disk_total
    )


def _fixed(inventory: Inventory) -> Inventory:
    return msgspec.structs.replace(inventory, memory_available=None, disk_free=None)


def _moved(before: Bytes | None, after: Bytes | None, total: Bytes | None) -> bool:
    if before is None or after is None:
        return before != after
    return abs(after - before) > max(GIB, _SHARE * (total or 0))
