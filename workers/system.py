"""The real machine: clock, files, tools, and the one switch by which a test kills this process at a chosen step."""

import importlib.util
import ipaddress
import os
import shutil
import signal
import socket
import stat
import time
import uuid
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import psutil

from llmgw.core.units import Bytes, Seconds
from workers.children import Children
from workers.ports import DeviceNode, Disk, FileText, ToolResult
from workers.settings import NodeSettings

DIE_AT: Final = "LLMGW_TEST_DIE_AT"
"""Names the checkpoint at which this process kills itself, as a power cut would; for tests of recovery."""
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_SYSTEM_PROGRAMS: Final = "/usr/local/sbin:/usr/sbin:/sbin"
"""Where diagnostic tools are, and where the PATH of a user who is not root often does not lead."""


class RealMachine:
    """The machine this process runs on."""

    def __init__(
        self,
        environment: Mapping[str, str] = os.environ,
        *,
        sysfs: Path = Path("/sys"),
        proc: Path = Path("/proc"),
        tools: Path | None = None,
    ) -> None:
        """Take where the kernel's trees are, and a folder of tools that comes before PATH."""
        self._environment = MappingProxyType(dict(environment))
        self._roots = {Path("/sys"): sysfs.absolute(), Path("/proc"): proc.absolute()}
        self._tools = tools
        self._children = Children(self._environment)
        self._die_at = self._environment.get(DIE_AT, "")

    @classmethod
    def of(cls, settings: NodeSettings, environment: Mapping[str, str] = os.environ) -> "RealMachine":
        """Return this machine, as the settings say where to look."""
        return cls(environment, sysfs=settings.sysfs, proc=settings.proc, tools=settings.tools)

    def now(self) -> Seconds:
        return Seconds(time.time())

    def monotonic(self) -> float:
        return time.monotonic()

    def new_id(self) -> str:
        return uuid.uuid4().hex

    @cached_property
    def _boot_id(self) -> str:
        return _BOOT_ID.read_text("ascii").strip()

    def boot_id(self) -> str:
        return self._boot_id

    def cpu_count(self) -> int:
        return len(os.sched_getaffinity(0))

    def disk(self, path: Path) -> Disk | None:
        there = next((folder for folder in (path, *path.parents) if folder.exists()), path)
        try:
            usage = shutil.disk_usage(there)
        except OSError:
            return None
        return Disk(Bytes(usage.total), Bytes(usage.free))

    def environment(self) -> Mapping[str, str]:
        return self._environment

    def which(self, program: str) -> str | None:
        path = [self._environment.get("PATH", os.defpath), _SYSTEM_PROGRAMS]
        if self._tools is not None:
            path.insert(0, str(self._tools))
        found = shutil.which(program, path=os.pathsep.join(path))
        return str(Path(found).absolute()) if found else None

    def has_module(self, name: str) -> bool:
        return importlib.util.find_spec(name) is not None

    def output(self, argv: Sequence[str], timeout: float) -> ToolResult:
        return self._children.run(argv, timeout, self.now())

    def close(self) -> None:
        """End the tools that run now, before this process ends and nobody is left to do it."""
        self._children.end_all()

    def read(self, path: Path) -> FileText:
        try:
            return FileText(self._place(path).read_text("utf-8", errors="replace"))
        except OSError as error:
            return FileText(None, os.strerror(error.errno) if error.errno else str(error))

    def read_text(self, path: Path) -> str | None:
        return self.read(path).text

    def link(self, path: Path) -> str | None:
        try:
            return str(self._place(path).readlink())
        except OSError:
            return None

    def device_node(self, path: Path) -> DeviceNode | None:
        try:
            found = path.stat()
        except OSError:
            return None
        if not stat.S_ISCHR(found.st_mode):
            return None
        may = (os.access(path, os.R_OK), os.access(path, os.W_OK))
        return DeviceNode(os.major(found.st_rdev), os.minor(found.st_rdev), *may)

    def addresses(self) -> Mapping[str, tuple[str, ...]]:
        found = psutil.net_if_addrs()
        return {name: tuple(said for each in found[name] if (said := _address(each))) for name in sorted(found)}

    def names_in(self, folder: Path) -> tuple[str, ...]:
        try:
            return tuple(sorted(entry.name for entry in self._place(folder).iterdir()))
        except OSError:
            return ()

    def _place(self, path: Path) -> Path:
        """Return where a path of the kernel's trees really is."""
        for tree, root in self._roots.items():
            if path.is_relative_to(tree):
                return root / path.relative_to(tree)
        return path

    def checkpoint(self, point: str) -> None:
        if point == self._die_at:
            os.kill(os.getpid(), signal.SIGKILL)


def _address(told: Any) -> str | None:
    """Return `10.0.0.5/24` for an IP address, None for a hardware address."""
    if told.family not in {socket.AF_INET, socket.AF_INET6} or not told.netmask:
        return None
    # ipaddress reads no netmask of IPv6; either kind is a run of ones.
    bits = int(ipaddress.ip_address(told.netmask)).bit_count()
    return f"{told.address.partition('%')[0]}/{bits}"
