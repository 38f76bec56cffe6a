"""Who is best: the nodes of one device class, kept in order while devices are handed out."""

from bisect import bisect_left, insort
from collections.abc import Iterator

from llmgw.core.units import NodeName
from llmgw.core.world import DeviceKind


class Ranking:
    """The nodes of one class on rungs, names sorted on each.

    GPUs are packed: a rung is the number of devices still free, and the lowest that is enough is the tightest fit. CPUs
    are spread: a rung is the number of shards at work, and the lowest is the least loaded.
    """

    def __init__(self, kind: DeviceKind) -> None:
        self.kind = kind
        self._rungs: dict[int, list[NodeName]] = {}
        self._where: dict[NodeName, int] = {}

    def put(self, name: NodeName, rung: int) -> None:
        """Move a node to a rung."""
        before = self._where.get(name)
        if before == rung:
            return
        if before is not None:
            names = self._rungs[before]
            del names[bisect_left(names, name)]
        insort(self._rungs.setdefault(rung, []), name)
        self._where[name] = rung

    def best_first(self, devices: int) -> Iterator[NodeName]:
        """Yield the nodes worth a look for `devices` devices: best rung first, then by name."""
        lowest = 0 if self.kind is DeviceKind.CPU else devices
        for rung in sorted(rung for rung in self._rungs if rung >= lowest):
            yield from self._rungs[rung]
