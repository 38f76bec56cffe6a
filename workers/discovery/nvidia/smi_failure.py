"""What it means when nvidia-smi answers with none of its forms: why, what to do, and whether there are no cards."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from llmgw.core.hardware.findings import Problem, cut
from llmgw.core.hardware.gpus import Driver
from workers.discovery.nvidia.cards import Cards
from workers.discovery.nvidia.pci_cards import cards_on_pci
from workers.ports import Machine, ToolResult

MODULE: Final = Path("/proc/driver/nvidia/version")
_SOURCE: Final = "nvidia-smi"


class Failure(NamedTuple):
    """Why there is no answer."""

    problem: Problem
    cards: Cards
    """What is known then."""
    is_final: bool
    """True where no other way of asking can answer either."""


class _Line(NamedTuple):
    pattern: re.Pattern[str]
    code: str
    text: str
    says_none: Callable[[Machine], bool]
    """Whether there really are no cards, as against not knowing."""


def _never(_: Machine) -> bool:
    return False


def _no_module(machine: Machine) -> bool:
    return machine.read(MODULE).is_missing


def _no_cards(machine: Machine) -> bool:
    return not machine.names_in(Path("/proc/driver/nvidia/gpus")) and not cards_on_pci(machine)


_LINES: Final = (
    _Line(
        re.compile(r"Driver/library version mismatch", re.IGNORECASE),
        "mismatch",
        "the NVIDIA libraries are of another version than the kernel module that is loaded{versions}: reboot, or "
        "unload and load the module",
        _never,
    ),
    _Line(
        re.compile(r"couldn't communicate with the NVIDIA driver|driver (?:is )?not loaded", re.IGNORECASE),
        "no-driver",
        "the NVIDIA driver is not loaded: install it, or build its module for this kernel (`dkms status`)",
        _no_module,
    ),
    _Line(
        re.compile(r"Failed to initialize NVML: (?:Unknown Error|Insufficient Permissions)", re.IGNORECASE),
        "lost-cgroup",
        "NVML cannot be initialised: this container has lost its device cgroup, as after a `systemctl daemon-reload`, "
        "or /dev/nvidia* are missing: start it again",
        _never,
    ),
    _Line(
        re.compile(r"No devices were found", re.IGNORECASE),
        "no-devices",
        "the NVIDIA driver has no card that it can use: look at the kernel log (`dmesg | grep NVRM`) if there is one",
        _no_cards,
    ),
    _Line(
        re.compile(r"Failed to initialize NVML", re.IGNORECASE),
        "nvml",
        "NVML cannot be initialised: look at the kernel log (`dmesg | grep NVRM`)",
        _never,
    ),
)
_NO_ANSWER: Final = {
    "not found": ("missing", "nvidia-smi is not there: install the driver's utilities, or name it in `nvidia_smi`"),
}


def failure_of(answer: ToolResult, machine: Machine) -> Failure:
    """Say why an answer has no cards."""
    said = f"{answer.out}\n{answer.err}"
    line = next((line for line in _LINES if line.pattern.search(said)), None)
    if line is not None:
        text = line.text.format(versions=_versions(said, machine)) if "{versions}" in line.text else line.text
        problem = _problem(line.code, text, said)
        none = line.says_none(machine)
        return Failure(
            problem, Cards(None if none else Driver(source=_SOURCE), (), (problem,), is_known=none), is_final=True
        )
    return _odd(answer, said)


def _odd(answer: ToolResult, said: str) -> Failure:
    if answer.problem:
        code, text = _NO_ANSWER.get(answer.problem, _held(answer.problem))
        problem = _problem(code, text, said)
        return Failure(problem, Cards(None, (), (problem,), is_known=False), is_final=True)
    kind = "garbage" if answer.ok else "exit"
    text = f"nvidia-smi -q -x ended with {answer.code} and no answer that can be read; other ways of asking are tried"
    problem = _problem(kind, text, said)
    return Failure(problem, Cards(Driver(source=_SOURCE), (), (problem,), is_known=False), is_final=False)


def _held(problem: str) -> tuple[str, str]:
    if problem.startswith("held up"):
        return "held-up", f"nvidia-smi is {problem}: the driver hangs; look at the kernel log, a reboot may be needed"
    if problem.startswith("no answer"):
        return "timeout", f"nvidia-smi gave {problem}: the driver hangs; look at the kernel log for Xid 119 and 120"
    return "not-allowed", f"nvidia-smi cannot be run: {problem}"


def _problem(code: str, text: str, said: str) -> Problem:
    return Problem(code=f"{_SOURCE}.{code}", fact="gpus", text=text, literal=cut(said))


def _versions(said: str, machine: Machine) -> str:
    library = re.search(r"NVML library version:\s*(\S+)", said)
    module = re.search(r"(?:Kernel Module|NVRM version:.*?)\s+(\d+\.\d[\d.]*)", machine.read_text(MODULE) or "")
    told = [f"library {library[1]}"] if library else []
    told += [f"module {module[1]}"] if module else []
    return f" ({', '.join(told)})" if told else ""
