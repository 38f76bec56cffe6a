"""Asks all sources at once and puts the inventory together, with what could not be found out in time."""

import math
import platform
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Final, NamedTuple

import llmgw
from llmgw.core.hardware.findings import Finding, Problem
from llmgw.core.units import Bytes, Seconds
from llmgw.core.wanted import CPU_CLASS
from llmgw.core.wire import Inventory
from llmgw.core.world import Device, DeviceKind
from workers.discovery import devices, host, installed, network, ours, packages
from workers.discovery.host import Host
from workers.discovery.infiniband import glance
from workers.discovery.infiniband.rising import Rising
from workers.discovery.installed import Engines, Program
from workers.discovery.meminfo import Memory
from workers.discovery.network import Network
from workers.discovery.nvidia import find, health, surroundings
from workers.discovery.nvidia.cards import Cards
from workers.discovery.nvidia.surroundings import Surroundings
from workers.discovery.remembered import LastCards
from workers.discovery.sources import Answer, Inquiry, Source
from workers.ports import Machine
from workers.settings import NodeSettings

PATIENCE_S: Final = 10.0
"""A look waits so long for its sources; what one that is later has told before holds on."""
ONCE: Final = math.inf
_SLOW_S: Final = 50.0
"""What takes long, or loads others, is asked once a minute; a look comes once a minute."""

_GLANCE_S: Final = 1.0

PortStates = tuple[tuple[str, str | None], ...]

_NO_HOST: Final = Host(1, Memory(None, None), None)


class _Seen(NamedTuple):
    """The cards as they are to be told of."""

    cards: Cards
    stale_since: Seconds | None
    """Since when they are not told of any more."""


class Collector:
    """Looks at the machine as often as it is asked."""

    def __init__(
        self,
        machine: Machine,
        settings: NodeSettings,
        programs: Mapping[str, Program | None],
        *,
        patience_s: float = PATIENCE_S,
        engines: Callable[[], AbstractSet[int]] = frozenset,
        last: LastCards | None = None,
        installer: packages.Installer | None = None,
    ) -> None:
        """Take `engines`, which tells the pids of ours that run, where the last cards are kept, and who may install."""
        self._machine = machine
        self._settings = settings
        self._patience_s = patience_s
        self._ours = engines
        self._last = last or LastCards()
        self._installer = installer
        self._rising = Rising()
        self._host = Inquiry(Source("host", lambda: host.look(machine, settings)), machine)
        self._engines = Inquiry(Source("engines", lambda: installed.look(machine, settings, programs), ONCE), machine)
        self._gpus = Inquiry(Source("gpus", lambda: find.find(machine, settings)), machine)
        self._around = Inquiry(Source("topology", self._look_around, _SLOW_S), machine)
        self._network = Inquiry(Source("ports", self._look_at_network), machine)
        self._all: tuple[Inquiry[Any], ...] = (self._host, self._engines, self._gpus, self._around, self._network)
        self._glance = Inquiry(Source("port states", lambda: glance.states(machine)), machine)
        self._port_states: PortStates | None = None

    def ports_changed(self) -> bool:
        """Tell whether a port's state is another than at the last look; takes no longer than a glance may."""
        self._glance.begin()
        answer = self._glance.wait(_GLANCE_S)
        return answer.problem is None and answer.value != self._port_states

    def collect(self) -> Inventory:
        """Look now."""
        self._glance.begin()
        self._port_states = self._glance.wait(_GLANCE_S).value
        self._ask()
        here = self._host.wait(0).value or _NO_HOST
        engines = self._engines.wait(0).value or Engines({})
        around = self._around.wait(0).value or Surroundings()
        net = self._network.wait(0).value or Network()
        seen = self._seen(self._gpus.wait(0))
        findings = self._findings(seen, around, net)
        late = tuple(late for inquiry in self._all if (late := inquiry.wait(0).problem))
        return Inventory(
            devices=(*self._cpu(here.memory, seen.cards), *self._cards(seen, findings, here.memory, around)),
            cpu_count=here.cpu_count,
            memory_total=here.memory.total or Bytes(0),
            memory_available=here.memory.available,
            disk_total=here.disk.total if here.disk else None,
            disk_free=here.disk.free if here.disk else None,
            engines=engines.words,
            os=here.os,
            kernel=here.kernel,
            architecture=here.architecture,
            python=platform.python_version(),
            llmgw=llmgw.__version__,
            driver=seen.cards.driver,
            gpus=seen.cards.gpus,
            gpus_stale_since=seen.stale_since,
            topology=around.topology,
            nvswitch=around.nvswitch,
            imex=around.imex,
            ports=net.ports,
            fabrics=net.attachments,
            proposals=net.proposals,
            findings=findings,
            problems=(
                *engines.problems,
                *seen.cards.problems,
                *around.problems,
                *net.problems,
                *self._lacking(seen.cards, net),
                *here.problems,
                *late,
                *_unoffered_cpu(here.memory, seen.cards),
            ),
        )

    def _ask(self) -> None:
        """Ask all at once, and return when all have answered or the patience is over."""
        for inquiry in self._all:
            inquiry.begin()
        deadline = self._machine.monotonic() + self._patience_s
        for inquiry in self._all:
            inquiry.wait(deadline - self._machine.monotonic())

    def _look_around(self) -> Surroundings:
        cards = self._gpus.wait(self._patience_s).value
        return surroundings.look(self._machine, self._settings, cards or Cards())

    def _look_at_network(self) -> Network:
        cards = self._gpus.wait(self._patience_s / 2).value
        begun = self._machine.monotonic()
        net = network.look(self._machine, self._settings, cards.gpus if cards else ())
        return net._replace(ports=self._rising.told(net.ports, begun))

    def _seen(self, answer: Answer[Cards]) -> _Seen:
        """Return the cards as told now, or the last whole listing, marked stale, where the driver does not tell."""
        now = answer.value or Cards(is_known=False)
        if now.is_known and answer.problem is None and answer.at is not None:
            self._last.keep(now, answer.at)
            gpus = ours.mark(now.gpus, self._ours(), self._machine)
            return _Seen(Cards(now.driver, gpus, now.problems), None)
        known = self._last.known
        if known is None or not known.gpus:
            return _Seen(now, None)
        return _Seen(Cards(now.driver or known.driver, known.gpus, now.problems, is_known=False), known.at)

    def _lacking(self, cards: Cards, net: Network) -> tuple[Problem, ...]:
        """Say which diagnostic packages are missing, and have them installed where that is allowed."""
        lacking = packages.missing(self._machine, net.ports, has_cards=bool(cards.gpus))
        tried = self._installer.attend(lacking) if self._installer and self._settings.install_packages else ()
        return (*packages.problems(lacking, self._settings), *tried)

    def _findings(self, seen: _Seen, around: Surroundings, net: Network) -> tuple[Finding, ...]:
        of_cards = () if seen.stale_since else health.findings(seen.cards.gpus, around.events)
        found = (*of_cards, *surroundings.findings(around, seen.cards, self._machine), *net.findings)
        return tuple(sorted(found, key=lambda finding: finding.severity.rank))

    def _cards(
        self, seen: _Seen, findings: tuple[Finding, ...], memory: Memory, around: Surroundings
    ) -> tuple[Device, ...]:
        return devices.offered(
            seen.cards,
            findings=findings,
            host_memory=memory.total,
            reserve=self._settings.memory_reserve_bytes,
            stale_since=seen.stale_since,
            nvlinked=around.topology.nvlink_domains if around.topology else (),
        )

    def _cpu(self, memory: Memory, cards: Cards) -> tuple[Device, ...]:
        """Offer the CPU, but where a card uses the same memory: that must not be counted twice."""
        if memory.total is None or self._settings.cpu_slots == 0 or devices.uses_host_memory(cards):
            return ()
        left = Bytes(max(0, memory.total - self._settings.memory_reserve_bytes))
        return (Device(CPU_CLASS, DeviceKind.CPU, CPU_CLASS, left, self._settings.cpu_slots),)


def _unoffered_cpu(memory: Memory, cards: Cards) -> Iterator[Problem]:
    if memory.total is not None and devices.uses_host_memory(cards):
        text = "the CPU is not offered: the card uses the machine's memory, which is offered with it"
        yield Problem(code="cpu.unified-memory", fact="cpu", text=text)
