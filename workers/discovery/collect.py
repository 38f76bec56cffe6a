"""Asks all sources at once and puts the inventory together, with what could not be found out in time."""

import math
import platform
from collections.abc import Mapping
from typing import Any, Final

import llmgw
from llmgw.core.hardware.findings import Problem
from llmgw.core.units import Bytes
from llmgw.core.wanted import CPU_CLASS
from llmgw.core.wire import Inventory
from llmgw.core.world import Device, DeviceKind
from workers.discovery import gpus, host, installed
from workers.discovery.host import Host
from workers.discovery.installed import Engines, Program
from workers.discovery.meminfo import Memory
from workers.discovery.sources import Inquiry, Source
from workers.ports import Machine
from workers.settings import NodeSettings

PATIENCE_S: Final = 10.0
"""A look waits so long for its sources; what one that is later has told before holds on."""
ONCE: Final = math.inf

_NO_HOST: Final = Host(1, Memory(None, None), None)


class Collector:
    """Looks at the machine as often as it is asked."""

    def __init__(
        self,
        machine: Machine,
        settings: NodeSettings,
        programs: Mapping[str, Program | None],
        *,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._machine = machine
        self._settings = settings
        self._patience_s = patience_s
        self._host = Inquiry(Source("host", lambda: host.look(machine, settings)), machine)
        self._engines = Inquiry(Source("engines", lambda: installed.look(machine, settings, programs), ONCE), machine)
        self._gpus = Inquiry(Source("gpus", lambda: gpus.find(machine, settings)), machine)
        self._all: tuple[Inquiry[Any], ...] = (self._host, self._engines, self._gpus)

    def collect(self) -> Inventory:
        """Look now."""
        self._ask()
        around = self._host.wait(0).value or _NO_HOST
        engines = self._engines.wait(0).value or Engines({})
        cards, problems = self._gpus.wait(0).value or ((), ())
        late = tuple(late for inquiry in self._all if (late := inquiry.wait(0).problem))
        return Inventory(
            devices=(*_cpu(around.memory, self._settings), *cards),
            cpu_count=around.cpu_count,
            memory_total=around.memory.total or Bytes(0),
            memory_available=around.memory.available,
            disk_total=around.disk.total if around.disk else None,
            disk_free=around.disk.free if around.disk else None,
            engines=engines.words,
            os=around.os,
            kernel=around.kernel,
            architecture=around.architecture,
            python=platform.python_version(),
            llmgw=llmgw.__version__,
            problems=(
                *engines.problems,
                *(Problem(code="gpus.unknown", fact="gpus", text=text) for text in problems),
                *around.problems,
                *late,
            ),
        )

    def _ask(self) -> None:
        """Ask all at once, and return when all have answered or the patience is over."""
        for inquiry in self._all:
            inquiry.begin()
        deadline = self._machine.monotonic() + self._patience_s
        for inquiry in self._all:
            inquiry.wait(deadline - self._machine.monotonic())


def _cpu(memory: Memory, settings: NodeSettings) -> tuple[Device, ...]:
    if memory.total is None or settings.cpu_slots == 0:
        return ()
    left = Bytes(max(0, memory.total - settings.memory_reserve_bytes))
    return (Device(CPU_CLASS, DeviceKind.CPU, CPU_CLASS, left, settings.cpu_slots),)
