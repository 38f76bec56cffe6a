"""The machine around the cards and adapters: its CPUs, memory, disk, system and kernel."""

import platform
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from llmgw.core.hardware.findings import Problem
from llmgw.core.units import Bytes
from workers import tools
from workers.discovery import cgroups, meminfo, os_release
from workers.discovery.meminfo import Memory
from workers.ports import Disk, Machine
from workers.settings import NodeSettings

KERNEL: Final = Path("/proc/sys/kernel/osrelease")
ARCHITECTURE: Final = Path("/proc/sys/kernel/arch")
"""Only there from Linux 6.1 on."""


@dataclass(frozen=True, slots=True)
class Host:
    """What is asked of the kernel alone."""

    cpu_count: int
    memory: Memory
    disk: Disk | None
    os: str = ""
    kernel: str = ""
    architecture: str = ""
    problems: tuple[Problem, ...] = ()


def look(machine: Machine, settings: NodeSettings) -> Host:
    """Look now."""
    memory, disk = _memory(machine), machine.disk(settings.state)
    return Host(
        cpu_count=cgroups.cpus(machine),
        memory=memory,
        disk=disk,
        os=os_release.parse(machine.read_text(os_release.FILE) or "") or platform.system(),
        kernel=(machine.read_text(KERNEL) or "").strip(),
        architecture=_architecture(machine, settings),
        problems=tuple(_problems(memory, disk, settings)),
    )


def _architecture(machine: Machine, settings: NodeSettings) -> str:
    told = machine.read_text(ARCHITECTURE)
    return told.strip() if told else tools.ask(machine, settings, "uname", "-m").out.strip()


def _memory(machine: Machine) -> Memory:
    """Return the machine's memory, or the part of it that the worker is limited to."""
    memory = meminfo.parse(machine.read_text(meminfo.FILE) or "")
    limit = cgroups.memory_limit(machine)
    if limit is None or memory.total is None or limit >= memory.total:
        return memory
    return Memory(limit, None if memory.available is None else Bytes(min(limit, memory.available)))


def _problems(memory: Memory, disk: Disk | None, settings: NodeSettings) -> Iterator[Problem]:
    if memory.total is None:
        text = f"the CPU is not offered: {meminfo.FILE} does not tell the machine's memory"
        yield Problem(code="meminfo.unreadable", fact="memory", text=text)
    if disk is None:
        text = f"free disk unknown: {settings.state} cannot be looked at"
        yield Problem(code="disk.unreadable", fact="disk", text=text)
