"""Checks of the engines: installed, able to start, aware of the cards, and none running that nobody knows."""

import re
from collections.abc import Iterator
from typing import Final

from llmgw.core.hardware.findings import Severity, cut
from llmgw.core.units import GIB, counted
from workers import tools
from workers.doctor.entry import Check, Fix, Group, Outcome, Patient, failed, not_here, passed, unknown, warned
from workers.doctor.reading.launches import kept
from workers.doctor.reading.processes import engines
from workers.doctor.reading.words import listed
from workers.engines import programs
from workers.ports import ToolResult

_ILLEGAL_INSTRUCTION: Final = -4
_IDLE_BYTES: Final = GIB
"""So much may be in use of a card on which nothing runs."""
_CAUSES: Final = (
    (re.compile(r"GLIBC(?:XX)?_[\d.]+' not found"), "this system's C library is older than the one it was built for"),
    (re.compile(r"libcuda\.so\S*: cannot open"), "there is no CUDA driver, and it was built to need one"),
    (re.compile(r"(lib\S+\.so\S*): cannot open shared object"), "a library that it needs is missing"),
    (re.compile(r"ModuleNotFoundError|ImportError"), "a Python module that it needs is missing or broken"),
)
_ON_CARDS: Final = re.compile(r"^\s*(?:CUDA|ROCm|Vulkan|SYCL)\d+:", re.MULTILINE)


def _found(patient: Patient) -> dict[str, programs.Program]:
    """Return the engines of the inventory and how each is called."""
    named = ((name, programs.find(name, patient.settings, patient.machine)) for name in patient.inventory.engines)
    return {name: program for name, program in named if program}


def _run(patient: Patient, program: programs.Program, flag: str) -> ToolResult:
    return patient.machine.output((*program, flag), tools.limit(program[0].rpartition("/")[2], patient.settings))


def _installed(patient: Patient) -> Iterator[Outcome]:
    for name, words in patient.inventory.engines.items():
        yield passed(f"{name}: {words}", name)
    if not patient.inventory.engines:
        why = [problem.text for problem in patient.inventory.problems if problem.code == "engine.missing"]
        # A machine may be looked at before anything is installed on it: that makes nothing of it broken.
        yield warned(f"no engine is installed: {listed(why) or 'none was found'}")


def _starts(patient: Patient) -> Iterator[Outcome]:
    found = _found(patient)
    for name, program in found.items():
        yield _judge_start(name, _run(patient, program, "--version"))
    if not found:
        yield not_here("no engine is installed")


def _judge_start(name: str, result: ToolResult) -> Outcome:
    said = result.err or result.out
    if result.ok:
        return passed(f"{name} starts and says its version", name)
    if result.code is None:
        return unknown(f"whether {name} starts is not known: {result.problem}", name)
    if result.code == _ILLEGAL_INSTRUCTION:
        return failed(f"{name} was built for a newer CPU than this one: it ends with an illegal instruction", name)
    cause = next((words for pattern, words in _CAUSES if pattern.search(said)), f"it ends with {result.code}")
    return failed(f"{name} does not start: {cause}", name, literal=cut(said))


def _devices(patient: Patient) -> Iterator[Outcome]:
    program = _found(patient).get("llamacpp")
    if not patient.inventory.gpus or not program:
        yield not_here("there are no cards, or no llama.cpp for them")
    elif any(gpu.processes or (gpu.memory_used_bytes or 0) > _IDLE_BYTES for gpu in patient.inventory.gpus):
        yield unknown("llama.cpp is not asked for its devices while cards are in use: it would take memory of each")
    elif len(program) > 1:
        yield unknown("which devices llama.cpp uses is not told by xllamacpp before a model is loaded")
    else:
        result = _run(patient, program, "--list-devices")
        cards = len(_ON_CARDS.findall(result.out + result.err))
        if not result.ok:
            yield unknown(f"llama-server does not list its devices: {result.problem or f'ended with {result.code}'}")
        elif cards:
            yield passed(f"llama.cpp sees {counted(cards, 'card')}")
        else:
            yield warned("llama.cpp sees no card here: it was built for the CPU alone, or CUDA does not start")


def _leftovers(patient: Patient) -> Iterator[Outcome]:
    ours = {launch.pid for launch in kept(patient)} - {None}
    strangers = [one for one in engines(patient.machine) if one.pid not in ours and one.session not in ours]
    if strangers:
        said = listed([f"{one.name} (pid {one.pid})" for one in strangers])
        yield warned(f"engines that are no launch of this node: {said}", pids=[one.pid for one in strangers])
    else:
        yield passed("every engine that runs here is a launch of this node")


CHECKS: Final[tuple[Check, ...]] = (
    Check(
        id="engine.installed",
        group=Group.SOFTWARE,
        title="An engine is installed",
        reads="the inventory: llama_server in the settings, PATH, Python packages",
        rule="Warns where there is none; says of each which version it is.",
        costs="No model can be placed here.",
        fix=Fix("Install llama-server, or xllamacpp into the worker's environment; or name it as llama_server."),
        judge=_installed,
        worst=Severity.WARN,
    ),
    Check(
        id="engine.starts",
        group=Group.SOFTWARE,
        title="Every engine starts",
        reads="the engine's own --version",
        rule="Fails where it ends otherwise, with the cause where its words tell: C library, driver, CPU, module.",
        costs="Each launch of it fails at once.",
        fix=Fix("Install a build for this system and CPU."),
        judge=_starts,
    ),
    Check(
        id="engine.devices",
        group=Group.SOFTWARE,
        title="llama.cpp sees the cards",
        reads="llama-server --list-devices, while no card is in use",
        rule="Warns where it lists none on a node with cards.",
        costs="Models run on the CPU, slowly and without a word.",
        fix=Fix("Install a build with CUDA; where it is one, see the checks of the group `driver`."),
        judge=_devices,
        worst=Severity.WARN,
    ),
    Check(
        id="engine.leftovers",
        group=Group.SOFTWARE,
        title="No engine runs that is no launch of this node",
        reads="/proc/*/cmdline, the state folder's launches",
        rule="Warns for each that is none; those of another worker on this machine are told too.",
        costs="They hold cards, memory and ports that placement takes for free.",
        fix=Fix("See whose they are (`ps -fp PID`), and end those that nobody wants."),
        judge=_leftovers,
        worst=Severity.WARN,
    ),
)
