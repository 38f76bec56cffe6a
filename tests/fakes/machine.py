"""A machine that holds what a test says, and nothing else."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from llmgw.core.units import GIB, Bytes, Seconds
from workers.ports import Disk, ToolResult

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
    files: Mapping[str, str] = field(default_factory=dict)
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

    def read_text(self, path: Path) -> str | None:
        return self.files.get(str(path))

    def names_in(self, folder: Path) -> tuple[str, ...]:
        below = f"{folder}/"
        return tuple(sorted({name[len(below) :].split("/")[0] for name in self.files if name.startswith(below)}))

    def checkpoint(self, point: str) -> None:
        self.checkpoints.append(point)
