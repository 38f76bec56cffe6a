"""Writes what was noted into a folder that a person can read through before sending it."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from workers.ports import Machine, ToolResult
from workers.recording import form, identities
from workers.recording.disguise import Disguise
from workers.recording.form import Call, Facts, Node, Room
from workers.recording.recorder import Notes
from workers.settings import NodeSettings

_SECRET: Final = re.compile(r"/proc/\d+/(environ|cmdline)|.*/(g?shadow|.*token.*|.*secret.*|.*password.*|id_[a-z0-9]+)")
"""Files that are left out, whoever may have asked for them."""
LEFT_OUT: Final = "left out of the recording"
_TOLD_VARIABLES: Final = re.compile(
    r"(?i)(https?|no|all|ftp)_proxy|(NCCL|CUDA|NVIDIA|GLOO|UCX)_\w+|LD_LIBRARY_PATH|LANG"
)
_CREDENTIALS: Final = re.compile(r"(?<=//)[^/@\s]+@")
_KERNEL_LOG: Final = re.compile(r"dmesg|journalctl")
_OF_HARDWARE: Final = re.compile(
    r"NVRM|nvidia|nvswitch|xid|nouveau|mlx|infiniband|\bib_|\bib\d|rdma|pcie|\bAER\b|iommu|DMAR|\bACS\b|peermem|gdrdrv|\bBAR"
    r"|EDAC|mce:|hardware error|thermal|bnxt|irdma|efa",
    re.IGNORECASE,
)
"""Of the kernel's log only lines about the hardware are kept: the rest is nobody's business."""


class Refused(Exception):
    """There is no folder to write to, in a sentence for the operator."""


def check_is_free(folder: Path) -> None:
    """Raise `Refused` unless the folder is empty, or can be made."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise Refused(f"{folder} is there already and not an empty folder; name a new one")
    if not folder.parent.is_dir():
        raise Refused(f"{folder.parent} is no folder")


def write(notes: Notes, machine: Machine, folder: Path, settings: str = "") -> Mapping[str, int]:
    """Write a disguised recording, with settings as TOML; return how many identities of each kind were replaced.

    Raises OSError. Whoever asks `machine` from here on is not recorded.
    """
    disguise = Disguise(identities.find(_texts(notes, machine)), machine.new_id().encode())
    calls = {form.call_name(disguise.text(line)): (line, result) for line, result in notes.calls.items()}
    for name, (line, result) in calls.items():
        _write_call(folder / form.TOOLS / name, line, result, disguise)
    for path, text in _readable(notes):
        _write_text(form.place(folder, disguise.text(path)), disguise.text(text, path))
    if settings:
        _write_text(folder / form.SETTINGS, disguise.text(settings))
    facts = _facts(notes, machine, disguise)
    _write_json(folder / form.TOOLS / form.CALLS, {name: _call(*call, disguise) for name, call in calls.items()})
    _write_json(folder / form.FACTS, msgspec.structs.replace(facts, replaced=disguise.made_up.counts))
    return disguise.made_up.counts


def _texts(notes: Notes, machine: Machine) -> Iterator[tuple[str, str]]:
    """Give all in which identities are looked for; the machine's own name is among it, and is not written."""
    yield "/proc/sys/kernel/hostname", machine.read_text(Path("/proc/sys/kernel/hostname")) or ""
    for line, result in notes.calls.items():
        yield line, f"{result.out}\n{result.err}"
    yield from _readable(notes)


def _readable(notes: Notes) -> Iterator[tuple[str, str]]:
    for path, found in notes.files.items():
        if found.text is not None and not _SECRET.fullmatch(path):
            yield path, found.text


def _facts(notes: Notes, machine: Machine, disguise: Disguise) -> Facts:
    told = disguise.text
    unreadable = {path: found.problem for path, found in notes.files.items() if found.text is None}
    unreadable |= {path: LEFT_OUT for path in notes.files if _SECRET.fullmatch(path)}
    return Facts(
        version=form.VERSION,
        at=machine.now(),
        boot_id=told(machine.boot_id()),
        cpu_count=notes.cpu_count,
        programs={name: told(path) for name, path in notes.programs.items()},
        modules=tuple(sorted(notes.modules)),
        environment={name: told(value) for name, value in _variables(notes.environment)},
        disks={told(path): Room(disk.total, disk.free) for path, disk in notes.disks.items()},
        interfaces={told(name): tuple(map(told, found)) for name, found in notes.interfaces.items()},
        links={told(path): told(target) for path, target in sorted(notes.links.items())},
        nodes={told(path): Node(*node) for path, node in sorted(notes.nodes.items())},
        unreadable={told(path): why for path, why in sorted(unreadable.items())},
        folders={told(path): tuple(map(told, names)) for path, names in sorted(notes.folders.items())},
    )


def _variables(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name, value in sorted(environment.items()):
        if _TOLD_VARIABLES.fullmatch(name):
            yield name, _CREDENTIALS.sub("", value)


def _call(line: str, result: ToolResult, disguise: Disguise) -> Call:
    return Call(disguise.text(line), result.code, result.problem)


def _write_call(file: Path, line: str, result: ToolResult, disguise: Disguise) -> None:
    _write_text(file, disguise.text(_kept(line, result.out), line))
    if result.err:
        _write_text(file.with_name(file.name + form.ERRORS), disguise.text(result.err, line))


def _kept(line: str, out: str) -> str:
    if not _KERNEL_LOG.match(line):
        return out
    return "".join(line for line in out.splitlines(keepends=True) if _OF_HARDWARE.search(line))


def _write_text(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, "utf-8")


def _write_json(file: Path, value: object) -> None:
    _write_text(file, msgspec.json.format(msgspec.json.encode(value)).decode() + "\n")


def settings_text(settings: NodeSettings) -> str:
    """Return as TOML those settings that a look depends on and that tell nothing of the operator."""
    lines = [f"cpu_slots = {settings.cpu_slots}", f"memory_reserve_bytes = {settings.memory_reserve_bytes}"]
    if settings.nvml == "off":
        lines.append('nvml = "off"')
    if settings.expected_gpus is not None:
        lines.append(f"expected_gpus = {settings.expected_gpus}")
    for fabric in settings.fabrics:
        told = {key: value for key, value in msgspec.structs.asdict(fabric).items() if value is not None}
        lines += ["", f"[fabrics.{json.dumps(told.pop('name'))}]"]
        lines += [f"{key} = {json.dumps(value)}" for key, value in told.items()]
    return "\n".join(lines) + "\n"


def summary(folder: Path, notes: Notes, replaced: Mapping[str, int]) -> Iterable[str]:
    """Say what lies there and what was replaced, for whoever is to look it over."""
    yield f"{folder}: {len(notes.calls)} calls of tools, {len(notes.files)} files"
    for kind, many in replaced.items():
        yield f"replaced  {many} {kind}"
    yield "Look it over before you send it: names of processes and models, paths and comments are as they were."
