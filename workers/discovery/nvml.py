"""Asks NVML in a process of its own, since a broken driver may hang or crash whoever calls it: prints JSON.

python -m workers.discovery.nvml [path of libnvidia-ml]
"""

import ctypes
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from workers.discovery.cards import Card

PROGRAM: Final = (sys.executable, "-m", "workers.discovery.nvml")


def parse(text: str) -> tuple[Card, ...] | None:
    """Read what this module prints as a program; None when it is something else."""
    try:
        return msgspec.json.decode(text, type=tuple[Card, ...])
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None


def main(arguments: Sequence[str]) -> int:
    """Print the cards."""
    import pynvml  # noqa: PLC0415 – loaded in the child alone

    try:
        if arguments:
            pynvml.nvmlLib = ctypes.CDLL(arguments[0])
        pynvml.nvmlInit()
        cards = [_card(pynvml, index) for index in range(pynvml.nvmlDeviceGetCount())]
    except (pynvml.NVMLError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(msgspec.json.encode(cards).decode())
    return 0


def _card(nvml: Any, index: int) -> Card:
    handle, error = _ask(nvml, nvml.nvmlDeviceGetHandleByIndex, index)
    if handle is None:
        return Card(None, None, None, dead=error)
    uuid, _ = _ask(nvml, nvml.nvmlDeviceGetUUID, handle)
    name, _ = _ask(nvml, nvml.nvmlDeviceGetName, handle)
    memory, error = _ask(nvml, nvml.nvmlDeviceGetMemoryInfo, handle)
    modes, _ = _ask(nvml, nvml.nvmlDeviceGetMigMode, handle)
    total = memory.total if memory else None
    return Card(uuid, name, total, dead=error, is_cut=bool(modes and modes[0] == nvml.NVML_DEVICE_MIG_ENABLE))


def _ask(nvml: Any, question: Callable[[Any], Any], about: Any) -> tuple[Any, str | None]:
    """Return the answer, or None and the driver's words if it says that the card can do nothing."""
    dead = (nvml.NVML_ERROR_GPU_IS_LOST, nvml.NVML_ERROR_RESET_REQUIRED, nvml.NVML_ERROR_UNKNOWN)
    try:
        return question(about), None
    except nvml.NVMLError as error:
        return None, str(error) if error.value in dead else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
