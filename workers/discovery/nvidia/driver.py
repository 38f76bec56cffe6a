"""Reads what the NVIDIA kernel module says of itself in /proc/driver/nvidia/version."""

import re
from typing import Final

import msgspec

from llmgw.core.hardware.gpus import Driver
from workers.discovery.nvidia.smi_failure import MODULE
from workers.ports import Machine

_VERSION: Final = re.compile(r"NVRM version:.*?(?:Kernel Module|NVIDIA UNIX).*?\s(\d+\.\d[\d.]*)")


def module_of(machine: Machine, driver: Driver) -> Driver:
    """Return the driver with its module's version and kind, where the kernel tells."""
    version, is_open = parse(machine.read_text(MODULE) or "")
    return msgspec.structs.replace(driver, module_version=version, is_open=is_open)


def parse(text: str) -> tuple[str | None, bool | None]:
    """Read the version of the module that is loaded, and whether it is the open one."""
    found = _VERSION.search(text)
    return (found[1], "Open Kernel Module" in text) if found else (None, None)
