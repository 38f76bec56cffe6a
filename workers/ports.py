"""The outside world as the node's code sees it: one small Protocol, so that a made-up machine can stand in."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from llmgw.core.units import Bytes, Seconds

_WHY: Final = (("not found", "missing"), ("held up", "held-up"), ("no answer", "timeout"))


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What became of one call of an outside tool. A tool that is missing or hangs is an answer, not an exception."""

    code: int | None
    """Exit code, negative for a signal; None when it did not run to its end."""
    out: str = ""
    err: str = ""
    problem: str = ""
    """Why there is no exit code: `not found`, `not allowed: Permission denied`, `no answer within 5 s`."""

    @property
    def ok(self) -> bool:
        """Tell whether the tool ran and was content."""
        return self.code == 0

    @property
    def why(self) -> str:
        """Return the end of a problem's code for a tool that did not run to its end; empty for one that did."""
        told = (why for words, why in _WHY if self.problem.startswith(words))
        return next(told, "not-allowed") if self.problem else ""


class FileText(NamedTuple):
    """What a file holds, or why that cannot be known."""

    text: str | None
    """Wrong bytes replaced; None when it could not be read."""
    problem: str = ""
    """Why not, in the kernel's words: `No such file or directory`, `Invalid argument`."""

    @property
    def is_missing(self) -> bool:
        """Tell whether there is no such file, as against one that cannot be read."""
        return self.problem in {"No such file or directory", "Not a directory"}


class DeviceNode(NamedTuple):
    """A device file."""

    major: int
    minor: int
    readable: bool
    """By the user this process runs as."""
    writable: bool


class Disk(NamedTuple):
    """Space of the file system that holds a path."""

    total: Bytes
    free: Bytes


class Machine(Protocol):
    """This machine, or a recorded one. Paths below /sys and /proc are looked up where the settings put those trees."""

    def now(self) -> Seconds:
        """Return the moment, as seconds since 1970; may jump."""
        ...

    def monotonic(self) -> float:
        """Return seconds since some moment; never jumps."""
        ...

    def new_id(self) -> str:
        """Return 32 hexadecimal digits that nobody else has."""
        ...

    def boot_id(self) -> str:
        """Return the kernel's name for the time since the last boot."""
        ...

    def cpu_count(self) -> int:
        """Return how many CPUs this process may use."""
        ...

    def disk(self, path: Path) -> Disk | None:
        """Return the space where `path` is, or will be once its missing folders are made; None when unreadable."""
        ...

    def environment(self) -> Mapping[str, str]:
        """Return the environment that this process was started with."""
        ...

    def which(self, program: str) -> str | None:
        """Return the absolute path of a program given by path or by name; None when there is none to execute.

        A name is looked for in the folder of tools that the settings name, then on PATH.
        """
        ...

    def has_module(self, name: str) -> bool:
        """Tell whether this Python could import a top-level module; does not import it."""
        ...

    def output(self, argv: Sequence[str], timeout: float) -> ToolResult:
        """Run a tool with empty input for at most `timeout` seconds and return what it printed.

        A tool that could not be ended after its time, because the kernel holds it, is not started again before it is
        gone: the answer is then the problem `held up since …`.
        """
        ...

    def read(self, path: Path) -> FileText:
        """Return a file's text, or why it cannot be had."""
        ...

    def link(self, path: Path) -> str | None:
        """Return what a symbolic link names, unresolved; None when it is none or cannot be read."""
        ...

    def device_node(self, path: Path) -> DeviceNode | None:
        """Return what a device file stands for; None when there is none."""
        ...

    def addresses(self) -> Mapping[str, tuple[str, ...]]:
        """Return network interface → its IP addresses with prefix length: `10.0.0.5/24`, `fe80::1/64`."""
        ...

    def read_text(self, path: Path) -> str | None:
        """Return a file's text, wrong bytes replaced; None when it cannot be read."""
        ...

    def names_in(self, folder: Path) -> tuple[str, ...]:
        """Return the sorted names in a folder; empty when it cannot be read."""
        ...

    def checkpoint(self, point: str) -> None:
        """Mark a step that a test may have this process killed at; does nothing otherwise."""
        ...
