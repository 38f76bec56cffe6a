"""The command line of a node: `llmgw-node run`, and what looks at its hardware without a worker."""

import argparse
import dataclasses
import errno
import io
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, TextIO

import msgspec

from llmgw import logs, telemetry
from llmgw.core.engines import ENGINES
from workers.discovery import readable
from workers.discovery.collect import Collector
from workers.discovery.infiniband import ports
from workers.doctor import command
from workers.doctor.run import examine, patient_of
from workers.engines import programs
from workers.fabric import command as fabric_test
from workers.fabric import scan_command as fabric_scan
from workers.ports import Machine
from workers.recording import form, writing
from workers.recording.recorder import RecordingMachine
from workers.recording.replay import NotReplayable, open_folder
from workers.settings import FILE_VARIABLE, KEYS, REQUIRED, NodeSettings, WrongSetting, fabrics_from_text, read_settings
from workers.supervisor.journal import engines_of
from workers.system import RealMachine

DONE: Final = 0
FAILED: Final = 1
BAD_USAGE: Final = 2

_REQUIRED: Final[Mapping[str, tuple[str, ...]]] = {"run": REQUIRED, "stop-engines": ("state",)}
_UNWRITABLE: Final = frozenset({errno.EPIPE, errno.ENOSPC, errno.EIO})
"""By these an output says that nothing more goes into it."""
_PATIENCE_S: Final = 120.0
"""A person waits for a tool that hangs until its own limit is over; a worker has other things to do."""


class Override(NamedTuple):
    """A flag that says a setting better than the settings do."""

    flag: str
    metavar: str
    help: str
    is_folder: bool = False
    """It must be there; a tree that is not would pass for a machine without hardware."""

    @property
    def key(self) -> str:
        """Return the setting."""
        return self.flag.removeprefix("--").replace("-", "_")


_OVERRIDES: Final = (
    Override("--nvidia-smi", "PATH", "the nvidia-smi to ask"),
    Override("--nvml", "PATH|off|auto", "the libnvidia-ml to load, or none"),
    Override("--sysfs", "ROOT", "a tree to read instead of /sys", is_folder=True),
    Override("--proc", "ROOT", "a tree to read instead of /proc", is_folder=True),
    Override("--tools", "DIR", "a folder in which outside tools are looked for before PATH", is_folder=True),
)
_NO_FABRIC: Final = WrongSetting("", "--fabric", "cannot be used", "give compute=mlx5_0,mlx5_1:2")
_OF_REAL_TREES: Final = ("sysfs", "proc", "tools")
"""What a recording has of its own."""


class Wrong(Exception):
    """The command cannot be meant like this, in a sentence for the operator."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 done, 1 failed, 2 wrong usage or settings.

    Without `argv` it is this process's own command line, and the process's outputs are seen to as well.
    """
    return _from_shell() if argv is None else _command(argv)


def _from_shell() -> int:
    """Run the process's own command: nothing but the answer stands on its output, as far as somebody reads it."""
    sys.stdout, sys.stderr = (output or _nowhere() for output in (sys.stdout, sys.stderr))
    for output in (sys.stdout, sys.stderr):
        if isinstance(output, io.TextIOWrapper):
            output.reconfigure(errors="backslashreplace")  # a sign that the locale has not must not cost the answer
    logs.configure("node")
    try:
        code = _command(sys.argv[1:])
        sys.stdout.flush()
    except OSError as error:
        if error.errno not in _UNWRITABLE or error.filename is not None:
            raise
        if error.errno != errno.EPIPE:  # `| head` has heard enough; all else is news
            print(f"llmgw-node: the answer cannot be written: {error.strerror}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python would try once more when it ends
        return FAILED
    return code


def _nowhere() -> TextIO:
    """Stand in for an output that was closed before this process began."""
    return Path(os.devnull).open("w", encoding="utf-8")


def _command(argv: Sequence[str]) -> int:
    arguments = _parser().parse_args(argv)
    try:
        settings = _settings(arguments, os.environ)
    except Wrong as wrong:
        print(wrong, file=sys.stderr)
        return BAD_USAGE
    match arguments.command:
        case "run":
            return _run(settings)
        case "stop-engines":
            return _stop_engines(settings, arguments.patience_s, dry_run=arguments.dry_run)
        case "fabric-test":
            with _real_machine(settings) as machine:
                return fabric_test.run(arguments, machine, settings, ports.find(machine)[0])
        case "fabric-scan":
            with _real_machine(settings) as machine:
                return fabric_scan.run(arguments, machine, settings, ports.find(machine)[0])
        case "record":
            return _record(arguments.folder, settings)
        case _:
            return _looking(arguments, settings)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="llmgw-node", description="What runs on a node of llmgw.")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run the node's worker in the foreground; engines outlive it")
    look = commands.add_parser("inventory", help="print what the scheduler would see on this machine")
    look.add_argument("--json", action="store_true", help="print it as the control plane gets it")
    stop = commands.add_parser("stop-engines", help="end the engines that a stopped worker has left running")
    stop.add_argument("--patience-s", type=float, default=5.0, help="how long they may take (%(default)s)")
    stop.add_argument("--dry-run", action="store_true", help="only say which run; exits with 1 if any does")
    doctor = commands.add_parser("doctor", help="check everything a node needs, and say how to cure what is wrong")
    command.add_arguments(doctor)
    doctor.add_argument(
        "--fabric",
        action="append",
        default=[],
        metavar="NAME=HCA,…",
        help="take these ports for a fabric; repeatable",
    )
    test = commands.add_parser("fabric-test", help="measure the bandwidth to another node, as server or as client")
    roles = fabric_test.add_arguments(test)
    walk = commands.add_parser(
        "fabric-scan", help="walk over an InfiniBand fabric and print its graph; loads its manager"
    )
    fabric_scan.add_arguments(walk)
    record = commands.add_parser("record", help="write what this machine answers into a folder, its identity replaced")
    record.add_argument("folder", type=Path, metavar="DIR", help="a new or empty folder")
    for each in (run, look, doctor, test, *roles, walk, stop, record):
        _add(each, "--settings", type=Path, metavar="FILE", help=f"TOML file; also {FILE_VARIABLE}")
    for each in (look, doctor, test, *roles, walk, record):
        for override in _OVERRIDES:
            _add(each, override.flag, metavar=override.metavar, help=override.help)
    for each in (look, doctor):
        each.add_argument("--replay", type=Path, metavar="DIR", help="look at a recorded machine instead of this one")
    return parser


def _add(parser: argparse.ArgumentParser, flag: str, **more: Any) -> None:
    """Add a flag that a command and its roles both take: one that has a default would undo what the other was told."""
    parser.add_argument(flag, default=argparse.SUPPRESS, **more)


# --- settings -----------------------------------------------------------------------------------------------------


def _settings(arguments: argparse.Namespace, environ: Mapping[str, str]) -> NodeSettings:
    """Read the settings file, the environment over it, the flags over both; raises Wrong with a line a mistake."""
    required = _REQUIRED.get(arguments.command, ())
    settings = read_settings(_settings_file(arguments, environ), environ, required)
    if not isinstance(settings, NodeSettings):
        raise _wrong(settings)
    given = {each: told for each in _OVERRIDES if (told := getattr(arguments, each.key, None)) is not None}
    if getattr(arguments, "replay", None):
        _refuse_trees([each for each in given if each.key in _OF_REAL_TREES])
    values = {each.key: _value(each, told) for each, told in given.items()}
    mistakes = tuple(value for value in values.values() if isinstance(value, WrongSetting))
    if mistakes:
        raise _wrong(mistakes)
    if fabrics := _fabrics(arguments):
        values["fabrics"] = fabrics
    return dataclasses.replace(settings, **values)  # type: ignore[arg-type]  # each kind reads what its field holds


def _settings_file(arguments: argparse.Namespace, environ: Mapping[str, str]) -> Path | None:
    replay = getattr(arguments, "replay", None)
    recorded = replay / form.SETTINGS if replay else None
    named = environ.get(FILE_VARIABLE)
    told = getattr(arguments, "settings", None)
    return told or (recorded if recorded and recorded.exists() else Path(named) if named else None)


def _value(override: Override, told: str) -> object:
    """Check what a flag says as the same setting is checked; paths are meant from here."""
    is_path = "/" in told or override.is_folder
    said = str(Path(told).expanduser().absolute()) if is_path and told else told
    if override.is_folder and not Path(said).is_dir():
        return WrongSetting("", override.flag, f"{told} is no folder", "name one that is there")
    kind = KEYS[override.key]
    try:
        return kind.read(kind.from_text(said))
    except ValueError:
        return WrongSetting("", override.flag, "cannot be used", f"give {kind.expected}")


def _fabrics(arguments: argparse.Namespace) -> object:
    """Read `--fabric NAME=HCA,…`, as often as it was given; raises Wrong."""
    given = getattr(arguments, "fabric", [])
    if any("=" not in each for each in given):
        raise _wrong([_NO_FABRIC])
    try:
        return KEYS["fabrics"].read(fabrics_from_text(";".join(given)))
    except ValueError:
        raise _wrong([_NO_FABRIC]) from None


def _refuse_trees(given: Sequence[Override]) -> None:
    if given:
        raise Wrong(f"llmgw-node: {given[0].flag}: a recording has its own – leave it out, or leave --replay out")


def _wrong(mistakes: Sequence[WrongSetting]) -> Wrong:
    return Wrong("\n".join(f"llmgw-node: {mistake.text()}" for mistake in mistakes))


# --- run ----------------------------------------------------------------------------------------------------------


def _run(settings: NodeSettings) -> int:
    # Celery takes half a second to load, which the other commands need not wait for.
    from workers.supervisor import StateRefused  # noqa: PLC0415
    from workers.tasks import serve  # noqa: PLC0415

    logs.configure("node", settings.log_level)
    telemetry.configure("node")
    try:
        return serve(settings)
    except StateRefused as refused:
        print(f"llmgw-node: {refused}", file=sys.stderr)
    except OSError as error:
        full = error.errno == errno.ENOSPC
        cure = "free some space" if full else "correct `state` in the node's settings, or the folder's rights"
        print(f"llmgw-node: {error.filename or settings.state}: {error.strerror} – {cure}", file=sys.stderr)
    return FAILED


# --- stop-engines -------------------------------------------------------------------------------------------------


def _stop_engines(settings: NodeSettings, patience_s: float, *, dry_run: bool) -> int:
    from workers.supervisor import StateHeld, ending  # noqa: PLC0415

    machine = RealMachine.of(settings)
    try:
        outcomes = (
            ending.running(settings.state, machine)
            if dry_run
            else ending.end_engines(settings.state, machine, patience_s)
        )
    except StateHeld as held:
        print(f"llmgw-node: {held}", file=sys.stderr)
        return FAILED
    for outcome in outcomes:
        print(f"{outcome.launch_id}  {outcome.text}")
    if not outcomes:
        print("no engine runs")
    return DONE if all(outcome.ended for outcome in outcomes) else FAILED


# --- what looks at the hardware -----------------------------------------------------------------------------------


@contextmanager
def _real_machine(settings: NodeSettings) -> Iterator[RealMachine]:
    """Give the real machine, and leave no tool running that nobody waits for any more."""
    machine = RealMachine.of(settings)
    try:
        yield machine
    finally:
        machine.close()


def _looking(arguments: argparse.Namespace, settings: NodeSettings) -> int:
    if arguments.replay is None:
        with _real_machine(settings) as machine:
            return _look(arguments, settings, machine)
    try:
        return _look(arguments, settings, open_folder(arguments.replay))
    except NotReplayable as wrong:
        print(f"llmgw-node: --replay: {wrong}", file=sys.stderr)
        return BAD_USAGE


def _collector(settings: NodeSettings, machine: Machine) -> Collector:
    found = {name: programs.find(name, settings, machine) for name in ENGINES}
    pids = engines_of(machine, settings.state)
    return Collector(machine, settings, found, patience_s=_PATIENCE_S, engines=lambda: pids)


def _look(arguments: argparse.Namespace, settings: NodeSettings, machine: Machine) -> int:
    look = _collector(settings, machine).collect
    if arguments.command == "doctor":
        return command.run(arguments, machine, settings, look, is_replay=arguments.replay is not None)
    inventory = look()
    if arguments.json:
        print(msgspec.json.format(msgspec.json.encode(inventory)).decode())
    else:
        print("\n".join(readable.lines(inventory)))
    return DONE


def _record(folder: Path, settings: NodeSettings) -> int:
    try:
        writing.check_is_free(folder)
    except writing.Refused as refused:
        print(f"llmgw-node: {refused}", file=sys.stderr)
        return BAD_USAGE
    with _real_machine(settings) as machine:
        recording = RecordingMachine(machine)
        inventory = _collector(settings, recording).collect()
        examine(patient_of(recording, settings, inventory))  # so that a replay can be examined, too
        notes = recording.notes
        try:
            replaced = writing.write(notes, machine, folder, writing.settings_text(settings))
        except OSError as error:
            print(f"llmgw-node: {error.filename or folder}: {error.strerror}", file=sys.stderr)
            return FAILED
    print("\n".join(writing.summary(folder, notes, replaced)))
    return DONE


if __name__ == "__main__":
    sys.exit(main())
