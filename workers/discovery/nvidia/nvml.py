"""Asks NVML for the cards, in a child process with a deadline, since a broken driver may hang or crash whoever asks."""

import sys
from typing import Final

import msgspec

from llmgw.core.hardware.findings import Problem, cut
from llmgw.core.hardware.gpus import Driver, Gpu
from workers import tools
from workers.discovery.nvidia.cards import Cards
from workers.discovery.pci import canonical
from workers.ports import Machine, ToolResult
from workers.settings import NodeSettings

PROGRAM: Final = (sys.executable, "-m", "workers.discovery.nvidia.nvml_child")


class Begun(msgspec.Struct, frozen=True, tag="begun"):
    """The first line that the child prints: NVML answers."""

    driver: Driver


class Told(msgspec.Struct, frozen=True, tag="card"):
    """A line for each card, printed as soon as it is read, so that one that hangs costs only itself and those after."""

    gpu: Gpu
    problems: tuple[Problem, ...] = ()


class Done(msgspec.Struct, frozen=True, tag="done"):
    """The last line."""


class NoAnswer(msgspec.Struct, frozen=True, tag="error"):
    """NVML as a whole does not answer."""

    code: str
    """`mismatch`, `driver-not-loaded`, `library-not-found`, …"""
    words: str


Line = Begun | Told | Done | NoAnswer

_SAYS: Final = {
    "no-module": "the Python package nvidia-ml-py is not installed",
    "library-not-found": "libnvidia-ml.so.1 is not on this machine",
    "driver-not-loaded": "the NVIDIA driver is not loaded",
    "mismatch": "the NVIDIA libraries are of another version than the kernel module that is loaded: reboot, or unload "
    "and load the module",
    "not-allowed": "this user or container may not use NVML",
    "function-not-found": "libnvidia-ml.so.1 is too old to be asked",
    "exit": "NVML cannot be initialised: look at the kernel log (`dmesg | grep NVRM`)",
}


def ask(machine: Machine, settings: NodeSettings) -> Cards | Problem:
    """Return the cards, or why NVML does not tell of any."""
    library = () if settings.nvml == "auto" else (settings.nvml,)
    return parse(machine.output((*PROGRAM, *library), tools.limit("nvml", settings)))


def parse(answer: ToolResult) -> Cards | Problem:
    """Read what the child printed, as far as it came."""
    lines = _lines(answer.out)
    error = next((line for line in lines if isinstance(line, NoAnswer)), None)
    if error is not None:
        return _problem(error.code, _SAYS.get(error.code, _SAYS["exit"]), error.words)
    begun = next((line for line in lines if isinstance(line, Begun)), None)
    if begun is None:
        return _silence(answer)
    told = [line for line in lines if isinstance(line, Told)]
    cards = Cards(begun.driver, tuple(line.gpu for line in told), tuple(bad for line in told for bad in line.problems))
    is_whole = any(isinstance(line, Done) for line in lines)
    return cards if is_whole else _broken_off(cards, answer)


def _lines(text: str) -> list[Line]:
    found: list[Line] = []
    for line in text.splitlines():
        try:
            found.append(msgspec.json.decode(line, type=Line))
        except (msgspec.DecodeError, msgspec.ValidationError):
            continue  # a library may print what it likes; what is cut off is told by the missing last line
    return found


def _silence(answer: ToolResult) -> Problem:
    said = answer.err or answer.out
    if answer.problem.startswith("held up"):
        return _problem("held-up", f"NVML is {answer.problem}: the driver hangs; a reboot may be needed", said)
    if answer.problem.startswith("no answer"):
        return _problem("timeout", f"NVML gave {answer.problem}: the driver hangs", said)
    if answer.problem:
        return _problem("not-allowed", f"NVML cannot be asked: {answer.problem}", said)
    if answer.code is not None and answer.code < 0:
        return _problem("crashed", f"NVML crashed whoever asked it (signal {-answer.code})", said)
    return _problem("garbage", f"what asked NVML ended with {answer.code} and printed nothing that can be read", said)


def _broken_off(cards: Cards, answer: ToolResult) -> Cards:
    """Keep the cards that were told of, and name those that were not as such of which nothing is known."""
    why = _silence(answer)
    attached = (cards.driver.attached if cards.driver else None) or 0
    known = {gpu.index for gpu in cards.gpus}
    dumb = tuple(Gpu(index=n, failed="NVML does not answer for it") for n in range(attached) if n not in known)
    gpus = tuple(sorted((*cards.gpus, *dumb), key=lambda gpu: gpu.index or 0))
    return Cards(cards.driver, gpus, (*cards.problems, why))


def _problem(code: str, text: str, said: str) -> Problem:
    return Problem(code=f"nvml.{code}", fact="gpus", text=text, literal=cut(said))


def address(spelt: str | bytes | None) -> str | None:
    """Return a PCI address as NVML spells it, as the kernel does."""
    text = spelt.decode("ascii", "replace") if isinstance(spelt, bytes) else spelt
    return canonical(text) if text else None
