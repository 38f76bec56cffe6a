"""What is around the cards and is asked once a minute: the kernel's log, topology, NVSwitches, IMEX."""

from collections.abc import Iterator
from typing import NamedTuple

from llmgw.core.hardware.findings import Finding, Problem
from llmgw.core.hardware.gpus import Imex, NvSwitch, Topology
from workers.discovery.nvidia import imex, kernel_log, nvswitch, topology
from workers.discovery.nvidia.cards import Cards
from workers.discovery.nvidia.kernel_log import KernelEvent
from workers.ports import Machine
from workers.settings import NodeSettings


class Surroundings(NamedTuple):
    """What was told; on a machine without cards nothing is asked."""

    events: tuple[KernelEvent, ...] = ()
    topology: Topology | None = None
    nvswitch: NvSwitch | None = None
    imex: Imex | None = None
    problems: tuple[Problem, ...] = ()


def look(machine: Machine, settings: NodeSettings, cards: Cards) -> Surroundings:
    """Ask for all of it; each has a time limit of its own."""
    if not cards.gpus:
        return Surroundings()
    events, unread = kernel_log.read(machine, settings)
    joined, unjoined = topology.find(machine, settings, cards.gpus)
    shared, unshared = imex.find(machine, settings, cards.gpus)
    switches = nvswitch.find(machine, settings, cards.gpus)
    return Surroundings(events, joined, switches, shared, (*unread, *unjoined, *unshared))


def findings(around: Surroundings, cards: Cards, machine: Machine) -> Iterator[Finding]:
    """Say what is wrong around the cards."""
    yield from nvswitch.findings(around.nvswitch, cards.driver, cards.gpus)
    yield from imex.findings(around.imex, cards.gpus, machine)
