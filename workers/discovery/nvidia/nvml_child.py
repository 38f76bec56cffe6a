"""What the child does: it loads NVML, asks card after card, and tells each at once."""

import ctypes
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Final

import msgspec

from llmgw.core.hardware.gpus import Driver, Gpu
from workers.discovery.nvidia.nvml_asking import Asker
from workers.discovery.nvidia.nvml_gpu import read_card
from workers.discovery.nvidia.nvml_lines import Begun, Done, Line, NoAnswer, Told

_CODES: Final = {
    4: "not-allowed",
    9: "driver-not-loaded",
    12: "library-not-found",
    13: "function-not-found",
    17: "os",
    18: "mismatch",
}
"""Numbers of nvmlReturn_t that speak of the machine as a whole."""


def main(arguments: Sequence[str]) -> int:
    """Print all that NVML tells."""
    try:
        import pynvml  # noqa: PLC0415 – loaded in the child alone
    except ImportError as error:
        return _fail("no-module", str(error))
    try:
        _begin(pynvml, arguments)
        driver = _driver(pynvml)
    except pynvml.NVMLError as error:
        return _fail(_CODES.get(int(error.value), "exit"), str(error))
    except OSError as error:
        return _fail("library-not-found", str(error))
    except AttributeError as error:
        return _fail("function-not-found", str(error))
    _say(Begun(driver))
    for index in range(driver.attached or 0):
        _say(_card(pynvml, index))
    _say(Done())
    # No nvmlShutdown: the process ends here, and a broken driver may never come back from one more call.
    return 0


def _begin(nvml: ModuleType, arguments: Sequence[str]) -> None:
    if arguments:
        setattr(nvml, "nvmlLib", ctypes.CDLL(arguments[0]))  # noqa: B010 – the package has no other way in
    try:
        nvml.nvmlInit()
    except nvml.NVMLError_FunctionNotFound:  # a library from before R396
        if code := nvml.nvmlLib.nvmlInit_v2():
            raise nvml.NVMLError(code) from None


def _driver(nvml: ModuleType) -> Driver:
    asker = Asker(nvml, "driver")
    cuda = asker.ask("cuda version", "nvmlSystemGetCudaDriverVersion_v2")
    return Driver(
        version=asker.ask("version", "nvmlSystemGetDriverVersion"),
        cuda_version=f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else None,
        source="nvml",
        attached=nvml.nvmlDeviceGetCount(),
    )


def _card(nvml: ModuleType, index: int) -> Told:
    """Read one card; one that is lost is there all the same, under its own number."""
    asker = Asker(nvml, f"gpu {index}")
    card = asker.ask("handle", "nvmlDeviceGetHandleByIndex", index)
    if card is None and asker.is_refused:
        return Told(None, tuple(asker.problems))  # the card may be well; it is not for us
    if card is None:
        said = asker.lost or (asker.problems[0].literal if asker.problems else "it has no handle")
        return Told(Gpu(index=index, failed=said))
    gpu = read_card(asker, card, index)
    # Of a card that can do nothing no single field is worth a line.
    return Told(gpu, () if gpu.failed else tuple(dict.fromkeys(asker.problems)))


def _fail(code: str, words: str) -> int:
    _say(NoAnswer(code, words))
    return 1


def _say(line: Line) -> None:
    sys.stdout.write(msgspec.json.encode(line).decode() + "\n")
    sys.stdout.flush()  # at once: what is told before a hang is not lost
