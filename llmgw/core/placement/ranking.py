"""Who is best: the nodes of one device class, kept in order while devices are handed out."""

from bisect import bisect_left, insort
from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from llmgw.core.units import NodeName
from llmgw.core.world import DeviceKind

_NOBODY: Final[Mapping[NodeName, int]] = MappingProxyType({})


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

    def best_first(
        self, devices: int, first: Collection[NodeName] = (), last: Mapping[NodeName, int] = _NOBODY
    ) -> Iterator[NodeName]:
        """Yield the nodes worth a look for `devices` devices: best rung first, then by name.

        On a rung, those that are among `first` come before the others, and those with a count in `last` after them, the
        lower counts first.
        """
        lowest = 0 if self.kind is DeviceKind.CPU else devices
        late = {name for name, count in last.items() if count}
        for rung in sorted(rung for rung in self._rungs if rung >= lowest):
            names = self._rungs[rung]
            early = {name for name in first if name not in late and self._where.get(name) == rung}
            yield from sorted(early)
            yield from (name for name in names if name not in late and name not in early)
            yield from sorted((name for name in late if self._where.get(name) == rung), key=lambda n: (last[n], n))
