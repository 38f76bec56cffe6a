"""Sees whether a fabric is built in rails: port N of every host on a switch of its own, and which ports are crossed."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from llmgw.core.hardware.graph import GraphHost, HostPort

_MOST: Final = 0.8
"""So large a part of the ports must be where most of their number are, for rails to be meant."""


class Crossed(NamedTuple):
    """A port that is on another rail's switch."""

    host: str
    port: HostPort
    usual: int
    """The rail that its switch serves."""


def natural(name: str) -> tuple[object, ...]:
    """Sort `mlx5_2` before `mlx5_10`."""
    return tuple((0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d{1,9})", name))


def look(hosts: Iterable[GraphHost]) -> tuple[bool, tuple[Crossed, ...]]:
    """Tell whether hosts that are alike are cabled in rails, and name the ports that are not where the others are.

    Only hosts with ports of the same names are compared: where one port has no link, those after it have moved up.
    """
    alike: dict[tuple[str, ...], list[GraphHost]] = defaultdict(list)
    for host in hosts:
        alike[tuple(port.name for port in host.ports)].append(host)
    told = [_group(group) for names, group in alike.items() if len(names) > 1 and len(group) > 1]
    found = [crossed for crossed in told if crossed is not None]
    return bool(found), tuple(each for crossed in found for each in crossed)


def _group(hosts: Sequence[GraphHost]) -> tuple[Crossed, ...] | None:
    """Return the crossed ports of hosts that are alike; None where they are not cabled in rails."""
    served: dict[str, Counter[int]] = defaultdict(Counter)
    for port in (port for host in hosts for port in host.ports if port.leaf):
        served[str(port.leaf)][port.rail] += 1
    usual = {leaf: counts.most_common(1)[0] for leaf, counts in served.items()}
    at_home = sum(count for _, count in usual.values())
    everything = sum(counts.total() for counts in served.values())
    is_railed = len({rail for rail, _ in usual.values()}) > 1 and at_home >= _MOST * everything
    return tuple(_crossed(hosts, {leaf: rail for leaf, (rail, _) in usual.items()})) if is_railed else None


def _crossed(hosts: Sequence[GraphHost], usual: dict[str, int]) -> Iterator[Crossed]:
    for host in hosts:
        for port in host.ports:
            if port.leaf and usual[port.leaf] != port.rail:
                yield Crossed(host.name, port, usual[port.leaf])
