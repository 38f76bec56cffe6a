"""The catalogue of checks, by what they look at, and those that are known and not made yet."""

from typing import Final

from workers.doctor.checks import (
    cards,
    cards_at_work,
    disk,
    driver,
    fabrics,
    kernel,
    limits,
    network,
    ports,
    rdma,
    roce,
    software,
    time,
)
from workers.doctor.entry import Check

_MODULES: Final = (
    driver,
    cards,
    cards_at_work,
    ports,
    fabrics,
    roce,
    rdma,
    kernel,
    limits,
    network,
    disk,
    time,
    software,
)
CATALOGUE: Final[tuple[Check, ...]] = tuple(check for module in _MODULES for check in module.CHECKS)
NOT_YET: Final[tuple[tuple[str, str, str], ...]] = tuple(entry for module in _MODULES for entry in module.NOT_YET)
"""Id, what it would say, and why it does not."""
