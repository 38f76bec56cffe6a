"""Puts the inventory together: what placement may know of this machine, and what could not be found out."""

import platform
from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from typing import Final

import llmgw
from llmgw.core.hardware.findings import Problem
from llmgw.core.units import Bytes
from llmgw.core.wanted import CPU_CLASS
from llmgw.core.wire import Inventory
from llmgw.core.world import Device, DeviceKind
from workers.discovery import cgroups, gpus, meminfo, os_release
from workers.discovery.meminfo import Memory
from workers.ports import Disk, Machine
from workers.settings import NodeSettings

Program = tuple[str, ...]

_DEADLINE_S: Final = 5.0


class Collector:
    """Looks at the machine as often as it is asked; what an installed engine says of itself is asked once."""

    def __init__(self, machine: Machine, settings: NodeSettings, programs: Mapping[str, Program | None]) -> None:
        self._machine = machine
        self._settings = settings
        self._programs = programs

    @cached_property
    def _engines(self) -> dict[str, str]:
        return {name: self._words(program) for name, program in self._programs.items() if program}

    def collect(self) -> Inventory:
        """Look now."""
        machine, settings = self._machine, self._settings
        memory = _memory(machine)
        disk = machine.disk(settings.state)
        cards, problems = gpus.find(machine, settings)
        return Inventory(
            devices=(*_cpu(memory, settings), *cards),
            cpu_count=cgroups.cpus(machine),
            memory_total=memory.total or Bytes(0),
            memory_available=memory.available,
            disk_total=disk.total if disk else None,
            disk_free=disk.free if disk else None,
            engines=self._engines,
            os=os_release.parse(machine.read_text(os_release.FILE) or "") or platform.system(),
            python=platform.python_version(),
            llmgw=llmgw.__version__,
            problems=(
                *self._absences(),
                *(Problem(code="gpus.unknown", fact="gpus", text=text) for text in problems),
                *self._unreadable(memory, disk),
            ),
        )

    def _words(self, program: Program) -> str:
        if len(program) > 1:
            return f"xllamacpp {_installed('xllamacpp')}, run by {' '.join(program)}"
        said = self._machine.output((*program, "--version"), _DEADLINE_S)
        told = next((line.strip() for line in (said.out + said.err).splitlines() if "version" in line.lower()), "")
        return f"{program[0]}, {told[:100]}" if told else program[0]

    def _absences(self) -> Iterator[Problem]:
        named = self._settings.llama_server
        for name in (name for name, program in self._programs.items() if not program):
            is_named = named and name == "llamacpp"
            why = f"llama_server in the settings is {named}, no program" if is_named else "not installed"
            text = f"engine {name} is not offered: {why}"
            yield Problem(code="engine.missing", fact=f"engine {name}", text=text)

    def _unreadable(self, memory: Memory, disk: Disk | None) -> Iterator[Problem]:
        if memory.total is None:
            text = f"the CPU is not offered: {meminfo.FILE} does not tell the machine's memory"
            yield Problem(code="meminfo.unreadable", fact="memory", text=text)
        if disk is None:
            text = f"free disk unknown: {self._settings.state} cannot be looked at"
            yield Problem(code="disk.unreadable", fact="disk", text=text)


def _memory(machine: Machine) -> Memory:
    """Return the machine's memory, or the part of it that the worker is limited to."""
    memory = meminfo.parse(machine.read_text(meminfo.FILE) or "")
    limit = cgroups.memory_limit(machine)
    if limit is None or memory.total is None or limit >= memory.total:
        return memory
    return Memory(limit, None if memory.available is None else min(limit, memory.available))


def _cpu(memory: Memory, settings: NodeSettings) -> tuple[Device, ...]:
    if memory.total is None or settings.cpu_slots == 0:
        return ()
    left = Bytes(max(0, memory.total - settings.memory_reserve_bytes))
    return (Device(CPU_CLASS, DeviceKind.CPU, CPU_CLASS, left, settings.cpu_slots),)


def _installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "of unknown version"
