"""A machine out of a folder: answers what was recorded, and to everything else that it is not there."""

import itertools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from llmgw.core.units import Bytes, Seconds
from workers.ports import DeviceNode, Disk, FileText, ToolResult
from workers.recording import form
from workers.recording.form import Call, Facts

NOT_RECORDED: Final = ToolResult(None, problem="not found")
"""What a tool answers that the recorded machine has not, or was not asked."""
T = TypeVar("T")

_MISSING: Final = FileText(None, "No such file or directory")


class NotReplayable(Exception):
    """The folder is no recording that this version can read, in a sentence for the operator."""


def open_folder(folder: Path) -> "ReplayedMachine":
    """Return the machine that is recorded there; raises `NotReplayable`."""
    facts = _decoded(folder / form.FACTS, Facts)
    if facts.version != form.VERSION:
        raise NotReplayable(f"{folder} is a recording of version {facts.version}, this llmgw reads {form.VERSION}")
    calls = folder / form.TOOLS / form.CALLS
    return ReplayedMachine(
        folder,
        facts,
        _decoded(calls, dict[str, Call]) if calls.exists() else {},
        _listed(folder / form.LINES),
    )


def _listed(file: Path) -> Mapping[str, str]:
    """Read the small files that lie in one; a folder need not have it."""
    try:
        return form.files_in(file.read_text("utf-8", errors="replace"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise NotReplayable(f"{file} cannot be read: {error.strerror}") from error


def _decoded(file: Path, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(file.read_bytes(), type=kind)
    except OSError as error:
        raise NotReplayable(f"{file} cannot be read: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        raise NotReplayable(f"{file} is not what a recording holds: {error}") from error


class ReplayedMachine:
    """Touches nothing of the machine that this process runs on but the folder."""

    def __init__(self, folder: Path, facts: Facts, calls: Mapping[str, Call], files: Mapping[str, str]) -> None:
        """Take the folder and what of it is read at once: `files` are those that do not lie there one by one."""
        self._files = files
        self._folder = folder.resolve()
        self._facts = facts
        self._calls = calls
        self._ids = itertools.count(1)

    def now(self) -> Seconds:
        return Seconds(self._facts.at)

    def monotonic(self) -> float:
        return self._facts.at

    def new_id(self) -> str:
        return f"{next(self._ids):032x}"

    def boot_id(self) -> str:
        return self._facts.boot_id

    def cpu_count(self) -> int:
        return self._facts.cpu_count

    def disk(self, path: Path) -> Disk | None:
        """Return the space at the nearest folder above that was looked at, else of the one disk that is known."""
        disks = self._facts.disks
        near = (str(folder) for folder in (path, *path.parents))
        found = next((disks[folder] for folder in near if folder in disks), None)
        room = found or (next(iter(disks.values())) if len(disks) == 1 else None)
        return Disk(Bytes(room.total_bytes), Bytes(room.free_bytes)) if room else None

    def environment(self) -> Mapping[str, str]:
        return self._facts.environment

    def which(self, program: str) -> str | None:
        name = program.rpartition("/")[2]
        return self._facts.programs.get(name) or (f"/usr/bin/{name}" if self._has_answer_of(name) else None)

    def has_module(self, name: str) -> bool:
        return name in self._facts.modules

    def output(self, argv: Sequence[str], timeout: float) -> ToolResult:  # noqa: ARG002 – part of the port
        line = form.call_line(argv)
        named = next((name for name, call in self._calls.items() if call.line == line), form.call_name(line))
        out = self._text(self._folder / form.TOOLS / named)
        call = self._calls.get(named)
        if call is None and out.text is None:
            return NOT_RECORDED
        err = self._text(self._folder / form.TOOLS / f"{named}{form.ERRORS}").text
        call = call or Call()
        return ToolResult(call.code, out.text or "", err or "", call.problem)

    def read(self, path: Path) -> FileText:
        told = self._facts.unreadable.get(str(path))
        if told is None and str(path) in self._files:
            return FileText(self._files[str(path)])
        return FileText(None, told) if told else self._text(form.place(self._folder, str(path)))

    def read_text(self, path: Path) -> str | None:
        return self.read(path).text

    def link(self, path: Path) -> str | None:
        return self._facts.links.get(str(path))

    def device_node(self, path: Path) -> DeviceNode | None:
        node = self._facts.nodes.get(str(path))
        return DeviceNode(node.major, node.minor, node.readable, node.writable) if node else None

    def addresses(self) -> Mapping[str, tuple[str, ...]]:
        return self._facts.interfaces

    def names_in(self, folder: Path) -> tuple[str, ...]:
        told = self._facts.folders.get(str(folder))
        return told if told is not None else tuple(sorted({*self._names_here(folder), *self._names_told(folder)}))

    def checkpoint(self, point: str) -> None:
        """Do nothing: a recorded machine is not killed."""

    def _has_answer_of(self, tool: str) -> bool:
        files = (f"{name}_" for name in self._names_here(Path("/") / form.TOOLS))
        return any(name.startswith(f"{form.call_name(tool)}_") for name in files) or any(
            call.line.split(" ")[0] == tool for call in self._calls.values()
        )

    def _names_here(self, folder: Path) -> tuple[str, ...]:
        there = form.place(self._folder, str(folder))
        try:
            return tuple(entry.name for entry in there.iterdir()) if self._is_inside(there) else ()
        except OSError:
            return ()

    def _names_told(self, folder: Path) -> set[str]:
        below = f"{str(folder).rstrip('/')}/"
        paths = (*self._files, *self._facts.links, *self._facts.nodes, *self._facts.unreadable)
        return {path[len(below) :].split("/")[0] for path in paths if path.startswith(below)}

    def _text(self, file: Path) -> FileText:
        if not self._is_inside(file):
            return _MISSING
        try:
            return FileText(file.read_text("utf-8", errors="replace"))
        except OSError as error:
            return FileText(None, os.strerror(error.errno) if error.errno else str(error))

    def _is_inside(self, file: Path) -> bool:
        """Tell whether it is in the folder, wherever links and dots lead."""
        return file.resolve().is_relative_to(self._folder)
