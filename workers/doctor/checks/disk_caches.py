"""Checks of the folders in which engines keep what they have compiled."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from workers.doctor.entry import Check, Fix, Group, Outcome, Patient, failed, passed, unknown, warned
from workers.doctor.reading.places import place

_NAMED: Final = ("XDG_CACHE_HOME", "VLLM_CACHE_ROOT", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "CUDA_CACHE_PATH")


def _caches(patient: Patient) -> Iterator[Outcome]:
    folders = _folders(patient)
    for path in folders:
        yield _judge(patient, path)
    if not folders:
        yield unknown("where engines keep what they compile is not known: the environment has no HOME")


def _folders(patient: Patient) -> tuple[Path, ...]:
    environment = patient.machine.environment()
    named = [environment[name] for name in _NAMED if environment.get(name, "").startswith("/")]
    home = environment.get("HOME", "")
    usual = [f"{home}/.cache"] if home.startswith("/") and not environment.get("XDG_CACHE_HOME") else []
    return tuple(Path(path) for path in dict.fromkeys((*usual, *named)))


def _judge(patient: Patient, path: Path) -> Outcome:
    found = place(patient, path)
    if found.mount is None:
        return unknown(f"what file system holds {path} is not told", str(path))
    text = f"{path} is on {found.mount.kind}"
    if found.mount.is_read_only:
        return failed(f"{text}, which may not be written", str(path))
    if found.mount.is_network:
        return warned(f"{text}, on another machine, which other nodes may write too", str(path))
    return passed(text, str(path))


CHECKS: Final[tuple[Check, ...]] = (
    Check(
        id="disk.caches",
        group=Group.DISK,
        title="What engines compile is kept on a disk of this machine",
        reads=f"HOME, {', '.join(_NAMED)} in this process's environment; /proc/self/mountinfo",
        rule="Fails on a file system that may not be written, warns on a network's.",
        costs="Engines compile at every start; several nodes that write one cache spoil it for each other.",
        fix=Fix("Set HOME of the unit, or VLLM_CACHE_ROOT and its like, to a folder on a disk of this machine."),
        judge=_caches,
    ),
)
