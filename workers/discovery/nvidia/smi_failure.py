"""What it means when nvidia-smi answers with none of its forms: why, what to do, and whether there are no cards."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from llmgw.core.hardware.findings import Problem, cut
from llmgw.core.hardware.gpus import Driver
from workers.discovery.nvidia.cards import Cards
from workers.discovery.nvidia.of_kernel import kernel_order
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
    return not kernel_order(machine) and not cards_on_pci(machine)


_KNOWN: Final = (
    _Line(
        re.compile(r"version mismatch", re.IGNORECASE),
        "mismatch",
        "the NVIDIA libraries are of another version than the kernel module that is loaded{versions}: reboot, or "
        "unload and load the module",
        _never,
    ),
    _Line(
        re.compile(
            r"(?:couldn.?t|could not) communicate with the (?:NVIDIA )?driver|driver (?:is )?not loaded", re.IGNORECASE
        ),
        "no-driver",
        "the NVIDIA driver is not loaded: install it, or build its module for this kernel (`dkms status`)",
        _no_module,
    ),
    _Line(
        re.compile(r"(?:couldn.?t|could not) find libnvidia-ml|NVML Shared Library Not Found", re.IGNORECASE),
        "no-library",
        "libnvidia-ml.so.1 of the NVIDIA driver is not found: install the driver whole, or run `ldconfig`",
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
        re.compile(r"do(?: not|n.?t) have enough permissions", re.IGNORECASE),
        "not-allowed",
        "nvidia-smi may not open /dev/nvidia* as this user: look at their owner and mode",
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
_BY_CODE: Final = {each.code: each for each in _KNOWN}
_EXIT_CODES: Final[Mapping[int, _Line]] = MappingProxyType(
    {9: _BY_CODE["no-driver"], 12: _BY_CODE["no-library"], 18: _BY_CODE["mismatch"]}
)
"""Documented by `nvidia-smi --help` but for 18, an nvmlReturn_t; used where nothing is said in words."""


def failure_of(answer: ToolResult, machine: Machine) -> Failure:
    """Say why an answer has no cards."""
    said = f"{answer.out}\n{answer.err}"
    if answer.problem:
        return _silence(answer, said)
    silent = None if said.strip() else _EXIT_CODES.get(answer.code or 0)
    line = next((each for each in _KNOWN if each.pattern.search(said)), silent)
    return _known(line, said, machine) if line else _odd(answer, said)


def _known(line: _Line, said: str, machine: Machine) -> Failure:
    problem = _problem(line.code, line.text.replace("{versions}", _versions(said, machine)), said)
    none = line.says_none(machine)
    return Failure(
        problem, Cards(None if none else Driver(source=_SOURCE), (), (problem,), is_known=none), is_final=True
    )


def _silence(answer: ToolResult, said: str) -> Failure:
    problem = _problem(*_why_silent(answer.problem), said)
    # Of a program that is not there, or may not be run, nothing follows for the driver.
    driver = Driver(source=_SOURCE) if answer.problem.startswith(("held up", "no answer")) else None
    return Failure(problem, Cards(driver, (), (problem,), is_known=False), is_final=True)


def _why_silent(problem: str) -> tuple[str, str]:
    if problem == "not found":
        return "missing", "nvidia-smi is not there: install the driver's utilities, or name it in `nvidia_smi`"
    if problem.startswith("held up"):
        return "held-up", f"nvidia-smi is {problem}: the driver hangs; look at the kernel log, a reboot may be needed"
    if problem.startswith("no answer"):
        return "timeout", f"nvidia-smi gave {problem}: the driver hangs; look at the kernel log for Xid 119 and 120"
    return "not-allowed", f"nvidia-smi cannot be run: {problem}"


def _odd(answer: ToolResult, said: str) -> Failure:
    kind = "garbage" if answer.ok else "exit"
    text = f"nvidia-smi -q -x ended with {answer.code} and no answer that can be read; other ways of asking are tried"
    problem = _problem(kind, text, said)
    return Failure(problem, Cards(Driver(source=_SOURCE), (), (problem,), is_known=False), is_final=False)


def _problem(code: str, text: str, said: str) -> Problem:
    return Problem(code=f"{_SOURCE}.{code}", fact="gpus", text=text, literal=cut(said))


def _versions(said: str, machine: Machine) -> str:
    library = re.search(r"NVML library version:\s*(\S+)", said)
    module = re.search(r"(?:Kernel Module|NVRM version:.*?)\s+(\d+\.\d[\d.]*)", machine.read_text(MODULE) or "")
    told = [f"library {library[1]}"] if library else []
    told += [f"module {module[1]}"] if module else []
    return f" ({', '.join(told)})" if told else ""
