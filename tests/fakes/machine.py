"""A machine that holds what a test says, and nothing else."""

import errno
import itertools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from llmgw.core.units import GIB, Bytes, Seconds
from workers.ports import DeviceNode, Disk, FileText, ToolResult

A_DISK: Final = Disk(Bytes(100 * GIB), Bytes(50 * GIB))


@dataclass
class FakeMachine:
    """What it answers is its fields; `calls` keeps the tools that were run."""

    at: float = 1_000_000.0
    boot: str = "boot-1"
    cpus: int = 8
    disk_space: Disk | None = A_DISK
    environ: Mapping[str, str] = field(default_factory=dict)
    programs: Mapping[str, str] = field(default_factory=dict)
    """Name or path → absolute path."""
    modules: frozenset[str] = frozenset()
    tools: Mapping[str, ToolResult] = field(default_factory=dict)
    """The command line, joined with blanks, or its first word → what the tool answers."""
    files: Mapping[str, str | OSError] = field(default_factory=dict)
    """Path → what it holds, or the error of reading it."""
    links: Mapping[str, str] = field(default_factory=dict)
    nodes: Mapping[str, DeviceNode] = field(default_factory=dict)
    interfaces: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    calls: list[tuple[str, ...]] = field(default_factory=list)
    checkpoints: list[str] = field(default_factory=list)
    _ids: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))

    def now(self) -> Seconds:
        return Seconds(self.at)

    def monotonic(self) -> float:
        return self.at

    def new_id(self) -> str:
        return f"{next(self._ids):032x}"

    def boot_id(self) -> str:
        return self.boot

    def cpu_count(self) -> int:
        return self.cpus

    def disk(self, path: Path) -> Disk | None:
        return self.disk_space

    def environment(self) -> Mapping[str, str]:
        return self.environ

    def which(self, program: str) -> str | None:
        return self.programs.get(program)

    def has_module(self, name: str) -> bool:
        return name in self.modules

    def output(self, argv: Sequence[str], timeout: float) -> ToolResult:
        self.calls.append(tuple(argv))
        by_line = self.tools.get(" ".join(argv))
        return by_line or self.tools.get(argv[0], ToolResult(None, problem="not found"))

    def read(self, path: Path) -> FileText:
        held = self.files.get(str(path))
        if isinstance(held, OSError):
            return FileText(None, os.strerror(held.errno or errno.EIO))
        return FileText(None, os.strerror(errno.ENOENT)) if held is None else FileText(held)

    def read_text(self, path: Path) -> str | None:
        return self.read(path).text

    def link(self, path: Path) -> str | None:
        return self.links.get(str(path))

    def device_node(self, path: Path) -> DeviceNode | None:
        return self.nodes.get(str(path))

    def addresses(self) -> Mapping[str, tuple[str, ...]]:
        return self.interfaces

    def names_in(self, folder: Path) -> tuple[str, ...]:
        below = f"{folder}/"
        paths = (*self.files, *self.links, *self.nodes)
        return tuple(sorted({path[len(below) :].split("/")[0] for path in paths if path.startswith(below)}))

    def checkpoint(self, point: str) -> None:
        self.checkpoints.append(point)
