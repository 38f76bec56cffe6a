"""How a recorded machine lies in a folder; docs/how-to/send-a-recording.md tells how to make one by hand.

`machine.json` holds what is neither file nor tool, `tools/` what each call of a tool answered, and all other folders
are those of that machine: `sys/class/…` is its `/sys/class/…`.
"""

import re
import zlib
from collections.abc import Mapping, Sequence
from os.path import normpath
from pathlib import Path
from typing import Final

import msgspec

from workers.tools import name_of

VERSION: Final = 1
FACTS: Final = "machine.json"
SETTINGS: Final = "node.toml"
"""The settings that the look depended on; a replay takes them unless it is told others."""
LINES: Final = "files.tsv"
"""Many small files in one, for folders made by hand: in each line a path, a tab, and a line of that file."""
TOOLS: Final = "tools"
CALLS: Final = "calls.json"
"""In `tools/`: what is to be said of calls besides their output; one that is not there ended with 0."""
ERRORS: Final = ".err"
"""Ends the name of the file with what a call printed on its second output."""

_LONGEST: Final = 100
_ODD: Final = re.compile(r"[^A-Za-z0-9.,=:+-]+")


class Room(msgspec.Struct, frozen=True):
    """Space of a file system."""

    total_bytes: int
    free_bytes: int


class Node(msgspec.Struct, frozen=True):
    """A device file."""

    major: int
    minor: int
    readable: bool = True
    writable: bool = True


class Call(msgspec.Struct, frozen=True, omit_defaults=True):
    """One call of a tool; its output is in the file of the same name."""

    line: str = ""
    """The command line, with the tool by its bare name; empty where the file's name says it."""
    code: int | None = 0
    """None when it did not run to its end."""
    problem: str = ""
    """Why not: `no answer within 20 s`."""


class Facts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What `machine.json` holds; in one made by hand only the version is needed."""

    version: int
    at: float = 0.0
    """When it was looked at, Unix seconds."""
    boot_id: str = ""
    cpu_count: int = 1
    programs: Mapping[str, str] = {}
    """Name → where it is. A tool that has a file in `tools/` needs none."""
    modules: tuple[str, ...] = ()
    """Python packages that are installed, of those that were asked for."""
    environment: Mapping[str, str] = {}
    disks: Mapping[str, Room] = {}
    interfaces: Mapping[str, tuple[str, ...]] = {}
    """Network interface → its addresses: `10.0.0.5/24`."""
    links: Mapping[str, str] = {}
    """Path of a symbolic link → what it names."""
    nodes: Mapping[str, Node] = {}
    """Path of a device file → what it stands for."""
    unreadable: Mapping[str, str] = {}
    """Path of a file that is there and cannot be read → the kernel's words: `Invalid argument`."""
    folders: Mapping[str, tuple[str, ...]] = {}
    """Path of a folder → the names in it, where the files here do not tell."""
    replaced: Mapping[str, int] = {}
    """Kind of identity → how many different ones were replaced by made-up ones."""


def call_line(argv: Sequence[str]) -> str:
    """Return the command line as it is written down: the tool by its bare name, a module of ours without arguments."""
    is_module = len(argv) > 2 and argv[1] == "-m"
    return name_of(argv) if is_module else " ".join((name_of(argv), *argv[1:]))


def call_name(line: str) -> str:
    """Return the name of the file with a call's output: `sminfo_-C_mlx5_0_-P_1`."""
    name = _ODD.sub("_", line)
    return name if len(name) <= _LONGEST else f"{name[:_LONGEST]}-{zlib.crc32(line.encode()):08x}"


def files_in(text: str) -> Mapping[str, str]:
    """Read `files.tsv`; a path in several lines is a file of several lines."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        path, tab, said = line.partition("\t")
        if tab:
            found[path] = f"{found.get(path, '')}{said}\n"
    return found


def place(folder: Path, path: str) -> Path:
    """Return where a file of the recorded machine lies."""
    return folder / normpath(f"/{path}").lstrip("/")
