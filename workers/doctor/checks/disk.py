"""Checks of the disks: the state folder with weights and logs, the caches, and the disks' own health."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from llmgw.core.hardware.findings import Severity
from llmgw.core.units import GIB, counted, gib
from llmgw.core.world import State
from workers import tools
from workers.doctor.checks import disk_caches
from workers.doctor.entry import Check, Fix, Group, Outcome, Patient, failed, not_here, passed, unknown, warned
from workers.doctor.reading import smart
from workers.doctor.reading.host import is_virtual
from workers.doctor.reading.launches import kept
from workers.doctor.reading.places import Place, place
from workers.doctor.reading.words import listed, unanswered, whole

_LEAST_FREE: Final = 2 * GIB
_USUAL_FREE: Final = 20 * GIB
_FOR_A_MODEL: Final = 1.2
"""How much of the largest card a model may need on the disk, while it is fetched."""
_LOGS: Final = Path("/var/log")
_LEAST_FOR_LOGS: Final = GIB // 2
_FEW_INODES: Final = 0.05
_WORN_PERCENT: Final = 90
_DISKS: Final = re.compile(r"nvme\d+n\d+|sd[a-z]+", re.ASCII)
_DEPTH: Final = 6
_MOST_FOLDERS: Final = 2000


def _state(patient: Patient) -> Place:
    return place(patient, patient.settings.state)


def _weights(patient: Patient) -> Path:
    return patient.settings.state / "weights"


# --- the file system --------------------------------------------------------------------------------------------------


def _folder(patient: Patient) -> Iterator[Outcome]:
    mount, path = _state(patient).mount, patient.settings.state
    if mount is None:
        yield unknown(f"what file system holds {path} is not told")
        return
    text = f"{path} is on {mount.kind}, mounted at {mount.point}"
    if mount.is_read_only:
        yield failed(f"{text}, which may not be written")
    elif mount.is_network:
        yield warned(f"{text}, on another machine: journals and pid files want a disk of this one")
    elif mount.is_memory:
        yield warned(f"{text}, and gone at the next start: launches and weights would be forgotten")
    else:
        yield passed(text)


def _answers(patient: Patient) -> Iterator[Outcome]:
    found = [_state(patient), place(patient, _weights(patient))]
    remote = {one.mount.point: one for one in found if one.mount and one.mount.is_network}
    for point, one in remote.items():
        if one.silence:
            yield failed(f"{point} does not answer: {one.silence}", point)
        else:
            yield passed(f"{point} answers", point)
    if not remote:
        yield not_here("nothing of the node's is on another machine")


def _free(patient: Patient) -> Iterator[Outcome]:
    found = place(patient, _weights(patient))
    if found.disk is None:
        yield unknown(f"the space for weights is not known: {found.silence or f'{found.path} cannot be looked at'}")
        return
    largest = max((gpu.memory_total_bytes or 0 for gpu in patient.inventory.gpus), default=0)
    wanted = max(_USUAL_FREE, int(largest * _FOR_A_MODEL))
    text = f"{gib(found.disk.free)} of {gib(found.disk.total)} free for weights"
    facts: dict[str, Any] = {"free_bytes": found.disk.free, "wanted_bytes": wanted}
    if found.disk.free < _LEAST_FREE:
        yield failed(text, **facts)
    elif found.disk.free < wanted:
        yield warned(f"{text}; a model as large as a card takes {gib(wanted)}" if largest else text, **facts)
    else:
        yield passed(text, **facts)


def _inodes(patient: Patient) -> Iterator[Outcome]:
    found = _state(patient)
    if found.disk is None:
        yield unknown(f"the inodes are not known: {found.silence or f'{found.path} cannot be looked at'}")
        return
    point = found.mount.point if found.mount else "/"
    result = tools.ask(patient.machine, patient.settings, "df", "-P", "-i", "--", point)
    row = next(iter(result.out.splitlines()[1:]), "").split()
    total, free = (whole(row[at]) if len(row) > 3 else None for at in (1, 3))
    if total == 0 or (row[1:2] == ["-"]):
        yield not_here(f"{point} makes inodes as it needs them")
    elif total is None or free is None:
        yield unanswered("the number of inodes", "df", result)
    else:
        text = f"{free} of {total} inodes of {point} free"
        few = failed if free == 0 else warned
        yield few(text, free=free, total=total) if free < _FEW_INODES * total else passed(text, free=free, total=total)


def _logs(patient: Patient) -> Iterator[Outcome]:
    found = place(patient, _LOGS)
    if found.disk is None:
        yield unknown(f"the space of {_LOGS} is not known: {found.silence or 'it cannot be looked at'}")
        return
    text = f"{gib(found.disk.free)} free for the system's logs"
    yield passed(text) if found.disk.free >= _LEAST_FOR_LOGS else failed(text, free_bytes=found.disk.free)


# --- what lies on it --------------------------------------------------------------------------------------------------


def _partials(patient: Patient) -> Iterator[Outcome]:
    found = place(patient, _weights(patient))
    if found.silence:
        yield unknown(f"what is left of fetches is not known: {found.silence}")
        return
    parts = sorted(str(path) for path in _unfinished(patient, found.path))
    fetching = [launch.launch_id for launch in kept(patient) if launch.state is State.FETCHING]
    if not parts:
        yield passed("no fetch was left unfinished")
    elif fetching:
        yield passed(f"unfinished files: {len(parts)}, and something is fetched now")
    else:
        yield warned(f"{listed(parts, 2)} was begun and not finished, and nothing fetches now", parts=parts[:20])


def _unfinished(patient: Patient, folder: Path) -> list[Path]:
    """Look for parts of files in a few levels of folders; what has a suffix is taken for a file."""
    found, folders = [], [folder]
    for _ in range(_DEPTH):
        inside = [above / name for above in folders[:_MOST_FOLDERS] for name in patient.machine.names_in(above)]
        found += [path for path in inside if path.suffix in {".part", ".incomplete"}]
        folders = [path for path in inside if path.suffix not in {".part", ".incomplete", ".gguf", ".json"}]
    return found


# --- the disks themselves ---------------------------------------------------------------------------------------------


def _kind(patient: Patient) -> Iterator[Outcome]:
    mount = _state(patient).mount
    device = Path("/sys/dev/block") / (mount.device if mount else "none")
    # A partition has no queue of its own: its disk is the folder above, by where the link leads.
    told = (patient.machine.read_text(device / f"{above}queue/rotational") for above in ("", "../"))
    spins = next((value for text in told if (value := whole(text)) is not None), None)
    if mount and (mount.is_network or mount.is_memory):
        yield not_here(f"{patient.settings.state} is on no disk of this machine")
    elif spins is None:
        yield unknown(f"what kind of disk holds {patient.settings.state} is not told")
    elif spins and is_virtual(patient.machine):
        yield unknown(
            f"what kind of disk holds {patient.settings.state} is known to the host of this virtual machine alone"
        )
    elif spins:
        yield warned(f"{patient.settings.state} is on a disk that turns")
    else:
        yield passed(f"{patient.settings.state} is on flash")


def _health(patient: Patient) -> Iterator[Outcome]:
    disks = [name for name in patient.machine.names_in(Path("/sys/block")) if _DISKS.fullmatch(name)]
    for name in disks:
        result = tools.ask(patient.machine, patient.settings, "smartctl", "--json", "-H", "-A", f"/dev/{name}")
        health = smart.parse(result.out)
        yield _judge_health(name, health) if health else unanswered(f"the health of {name}", "smartctl", result)
    if not disks:
        yield not_here("no disk of this machine tells its health")


def _judge_health(name: str, health: smart.Health) -> Outcome:
    used = health.percentage_used
    text = f"{name} has used up {used} % of its life" if used is not None else f"{name} says that it is well"
    if health.passed is False or health.critical_warning:
        return failed(f"{name} says that it is failing", name, critical_warning=health.critical_warning)
    if health.media_errors:
        return warned(f"{name} could not read {counted(health.media_errors, 'block')}", name)
    return warned(text, name) if used is not None and used >= _WORN_PERCENT else passed(text, name)


CHECKS: Final[tuple[Check, ...]] = (
    Check(
        id="disk.state-folder",
        group=Group.DISK,
        title="The state folder is on a disk of this machine and may be written",
        reads="/proc/self/mountinfo",
        rule="Fails when mounted read-only; warns on a network's file system and in memory.",
        costs="Launches cannot be kept, or are forgotten, and engines run on that nobody knows.",
        fix=Fix("Mount it writable after looking for the cause (the kernel's log), or name another `state` folder."),
        judge=_folder,
    ),
    Check(
        id="disk.free",
        group=Group.DISK,
        title="There is room for the next weights",
        reads="free space of the weights' folder, the memory of the largest card",
        rule="Fails below 2 GiB; warns below 20 GiB, or 1.2 times the memory of the largest card.",
        costs="Fetches end with `No space left on device`; below that, journals cannot be written.",
        fix=Fix("Remove weights that no model uses from the state folder's `weights`, or enlarge the disk."),
        judge=_free,
    ),
    Check(
        id="disk.inodes",
        group=Group.DISK,
        title="There is room for more files",
        reads="df -i",
        rule="Warns below one in twenty free, fails at none.",
        costs="`No space left on device` with space left.",
        fix=Fix("Find the folder with very many files (`du --inodes -x / | sort -n | tail`)."),
        judge=_inodes,
    ),
    Check(
        id="disk.network-answer",
        group=Group.DISK,
        title="File systems of other machines answer",
        reads="stat -f, given up after its time",
        rule="Fails where one that holds state or weights does not.",
        costs="Whoever touches it is held by the kernel and cannot be ended.",
        fix=Fix("Bring its server back; `umount -l` lets go of a mount whose server is gone for good."),
        judge=_answers,
    ),
    Check(
        id="disk.partials",
        group=Group.DISK,
        title="No fetch was left unfinished",
        reads="names in the weights' folder, the node's launches",
        rule="Warns for parts of files while nothing is fetched.",
        costs="Space; the next fetch of the same file goes on from there.",
        fix=Fix("Start the model again, or remove the parts while nothing is fetched."),
        judge=_partials,
        worst=Severity.WARN,
    ),
    Check(
        id="disk.kind",
        group=Group.DISK,
        title="Weights are read from flash",
        reads="/sys/dev/block/*/queue/rotational",
        rule="Warns for a disk that turns.",
        costs="Loading takes tens of minutes, and processes that wait for each other give up.",
        fix=Fix("Move the state folder to a flash disk; else raise load_timeout_s in the settings."),
        judge=_kind,
        worst=Severity.WARN,
    ),
    Check(
        id="disk.health",
        group=Group.DISK,
        title="No disk says that it is failing",
        reads="smartctl --json -H -A",
        rule="Fails for a failed self-assessment or a critical warning; warns from 90 % of its life used and for "
        "blocks that could not be read.",
        costs="Weights that are read wrong, then a disk that is gone.",
        fix=Fix("Drain the node and change the disk."),
        judge=_health,
    ),
    Check(
        id="disk.logs",
        group=Group.DISK,
        title="The system's logs have room",
        reads=f"free space of {_LOGS}",
        rule="Fails below half a GiB.",
        costs="Services stop when they cannot write; what happened is not kept.",
        fix=Fix("Shrink the journal, and see what else is large.", "journalctl --vacuum-size=500M"),
        judge=_logs,
    ),
    *disk_caches.CHECKS,
)
NOT_YET: Final[tuple[tuple[str, str, str], ...]] = (
    ("disk.read-speed", "Weights are read with a GiB a second", "needs a read of a GiB past the cache, beside engines"),
)
