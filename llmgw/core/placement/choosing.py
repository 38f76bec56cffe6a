"""Which of a node's free devices a shard gets: cards that NVLink joins stay together."""

from collections.abc import Iterator, Sequence

from llmgw.core.world import Device


def choose(free: Sequence[Device], many: int) -> tuple[Device, ...]:
    """Take `many` of the free devices of one class: of the smallest NVLink group that has enough.

    Where none has, the largest groups are crossed first, so that as few as may be are. Cards without NVLink are one
    group: any of them is as far from any other.
    """
    groups = sorted(_groups(free).values(), key=len)
    whole = next((group for group in groups if len(group) >= many), None)
    if whole is not None:
        return tuple(whole[:many])
    largest_first = [device for group in reversed(groups) for device in group]
    return tuple(sorted(largest_first[:many], key=free.index))


def fits_whole(free: Sequence[Device], many: int) -> bool:
    """Tell whether one NVLink group has enough."""
    return any(len(group) >= many for group in _groups(free).values())


def largest_group(devices: Sequence[Device]) -> int:
    """Return how many devices the largest NVLink group has."""
    return max((len(group) for group in _groups(devices).values()), default=0)


def _groups(devices: Sequence[Device]) -> dict[str, list[Device]]:
    found: dict[str, list[Device]] = {}
    for device in devices:
        found.setdefault(device.nvlink, []).append(device)
    return found


def by_class(devices: Sequence[Device]) -> Iterator[tuple[str, list[Device]]]:
    """Sort devices by their class."""
    found: dict[str, list[Device]] = {}
    for device in devices:
        found.setdefault(device.device_class, []).append(device)
    yield from found.items()
