"""What the child that asks NVML prints: a line of JSON for the driver, one for each card, one at the end."""

from typing import Final

import msgspec

from llmgw.core.hardware.findings import Problem
from llmgw.core.hardware.gpus import Driver, Gpu


class Begun(msgspec.Struct, frozen=True, tag="begun"):
    """The first line: NVML answers."""

    driver: Driver


class Told(msgspec.Struct, frozen=True, tag="card"):
    """A line for each card, printed as soon as it is read, so that one that hangs costs only itself and those after."""

    gpu: Gpu | None
    """None for a card that this user or container must not see."""
    problems: tuple[Problem, ...] = ()


class Done(msgspec.Struct, frozen=True, tag="done"):
    """The last line."""


class NoAnswer(msgspec.Struct, frozen=True, tag="error"):
    """NVML as a whole does not answer."""

    code: str
    """`mismatch`, `driver-not-loaded`, `library-not-found`, …"""
    words: str


Line = Begun | Told | Done | NoAnswer

SAYS: Final = {
    "no-module": "the Python package nvidia-ml-py is not installed",
    "library-not-found": "libnvidia-ml.so.1 is not on this machine",
    "driver-not-loaded": "the NVIDIA driver is not loaded",
    "mismatch": "the NVIDIA libraries are of another version than the kernel module that is loaded: reboot, or unload "
    "and load the module",
    "os": "the operating system refuses NVML its devices: look at /dev/nvidia* and this service's device cgroup",
    "not-allowed": "this user or container may not use NVML",
    "function-not-found": "libnvidia-ml.so.1 is too old to be asked",
    "exit": "NVML cannot be initialised: look at the kernel log (`dmesg | grep NVRM`)",
}
"""What the codes of `NoAnswer` mean."""
