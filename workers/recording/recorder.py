"""The real machine with a notebook: each question is asked of it, and its answer is kept."""

import threading
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from llmgw.core.units import Seconds
from workers.ports import DeviceNode, Disk, FileText, Machine, ToolResult
from workers.recording.form import call_line

T = TypeVar("T")


@dataclass
class Notes:
    """What was asked, and answered; of what was asked twice the last answer stands."""

    calls: dict[str, ToolResult] = field(default_factory=dict)
    programs: dict[str, str] = field(default_factory=dict)
    modules: set[str] = field(default_factory=set)
    files: dict[str, FileText] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    nodes: dict[str, DeviceNode] = field(default_factory=dict)
    folders: dict[str, tuple[str, ...]] = field(default_factory=dict)
    disks: dict[str, Disk] = field(default_factory=dict)
    interfaces: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    cpu_count: int = 1


class RecordingMachine:
    """Answers as the machine that it wraps."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._lock = threading.Lock()
        self._notes = Notes()

    @property
    def notes(self) -> Notes:
        """What was noted until now; a source that hangs may go on asking while this is written down."""
        with self._lock:
            noted: dict[str, Any] = {
                name: copy(value) if isinstance(value, dict | set) else value
                for name, value in vars(self._notes).items()
            }
        return Notes(**noted)

    def now(self) -> Seconds:
        return self._machine.now()

    def monotonic(self) -> float:
        return self._machine.monotonic()

    def new_id(self) -> str:
        return self._machine.new_id()

    def boot_id(self) -> str:
        return self._machine.boot_id()

    def cpu_count(self) -> int:
        self._notes.cpu_count = self._machine.cpu_count()
        return self._notes.cpu_count

    def disk(self, path: Path) -> Disk | None:
        return self._keep(self._notes.disks, str(path), self._machine.disk(path))

    def environment(self) -> Mapping[str, str]:
        self._notes.environment = self._machine.environment()
        return self._notes.environment

    def which(self, program: str) -> str | None:
        return self._keep(self._notes.programs, program.rpartition("/")[2], self._machine.which(program))

    def has_module(self, name: str) -> bool:
        has = self._machine.has_module(name)
        with self._lock:
            if has:
                self._notes.modules.add(name)
        return has

    def output(self, argv: Sequence[str], timeout: float) -> ToolResult:
        result = self._machine.output(argv, timeout)
        with self._lock:
            self._notes.calls[call_line(argv)] = result
        return result

    def read(self, path: Path) -> FileText:
        found = self._machine.read(path)
        with self._lock:
            if not found.is_missing:
                self._notes.files[str(path)] = found
        return found

    def read_text(self, path: Path) -> str | None:
        return self.read(path).text

    def link(self, path: Path) -> str | None:
        return self._keep(self._notes.links, str(path), self._machine.link(path))

    def device_node(self, path: Path) -> DeviceNode | None:
        return self._keep(self._notes.nodes, str(path), self._machine.device_node(path))

    def addresses(self) -> Mapping[str, tuple[str, ...]]:
        self._notes.interfaces = self._machine.addresses()
        return self._notes.interfaces

    def names_in(self, folder: Path) -> tuple[str, ...]:
        return self._keep(self._notes.folders, str(folder), self._machine.names_in(folder) or None) or ()

    def checkpoint(self, point: str) -> None:
        self._machine.checkpoint(point)

    def _keep(self, notes: dict[str, T], name: str, answer: T | None) -> T | None:
        """Write down an answer; that there is nothing needs no line."""
        with self._lock:
            if answer is not None:
                notes[name] = answer
        return answer
