"""The command line of a node: `llmgw-node run`, `llmgw-node inventory`, `llmgw-node stop-engines`."""

import argparse
import errno
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from llmgw import logs, telemetry
from llmgw.core.engines import ENGINES
from llmgw.core.units import gib
from llmgw.core.wire import Inventory
from workers.settings import FILE_VARIABLE, REQUIRED, NodeSettings, read_settings

DONE: Final = 0
FAILED: Final = 1
BAD_USAGE: Final = 2

_REQUIRED: Final[Mapping[str, tuple[str, ...]]] = {"run": REQUIRED, "stop-engines": ("state",)}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 done, 1 failed, 2 wrong usage or settings."""
    arguments = _parser().parse_args(argv)
    required = _REQUIRED.get(arguments.command, ())
    settings = read_settings(_settings_file(arguments, os.environ), os.environ, required)
    if not isinstance(settings, NodeSettings):
        for wrong in settings:
            print(f"llmgw-node: {wrong.text()}", file=sys.stderr)
        return BAD_USAGE
    match arguments.command:
        case "run":
            return _run(settings)
        case "stop-engines":
            return _stop_engines(settings, arguments.patience_s, dry_run=arguments.dry_run)
        case _:
            return _inventory(settings, as_json=arguments.json)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="llmgw-node", description="What runs on a node of llmgw.")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run the node's worker in the foreground; engines outlive it")
    look = commands.add_parser("inventory", help="print what the scheduler would see on this machine")
    look.add_argument("--json", action="store_true", help="print it as the control plane gets it")
    stop = commands.add_parser("stop-engines", help="end the engines that a stopped worker has left running")
    stop.add_argument("--patience-s", type=float, default=5.0, help="how long they may take (%(default)s)")
    stop.add_argument("--dry-run", action="store_true", help="only say which run; exits with 1 if any does")
    for command in (run, look, stop):
        command.add_argument("--settings", type=Path, metavar="FILE", help=f"TOML file; also {FILE_VARIABLE}")
    return parser


def _settings_file(arguments: argparse.Namespace, environ: Mapping[str, str]) -> Path | None:
    named = environ.get(FILE_VARIABLE)
    return arguments.settings or (Path(named) if named else None)


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
    from workers.system import RealMachine  # noqa: PLC0415

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


# --- inventory ----------------------------------------------------------------------------------------------------


def _inventory(settings: NodeSettings, *, as_json: bool) -> int:
    from workers.discovery.collect import Collector  # noqa: PLC0415
    from workers.engines import programs  # noqa: PLC0415
    from workers.system import RealMachine  # noqa: PLC0415

    machine = RealMachine.of(settings)
    found = {name: programs.find(name, settings, machine) for name in ENGINES}
    inventory = Collector(machine, settings, found).collect()
    print(_as_json(inventory) if as_json else "\n".join(_as_text(inventory)))
    return DONE


def _as_json(inventory: Inventory) -> str:
    return msgspec.json.format(msgspec.json.encode(inventory)).decode()


def _as_text(inventory: Inventory) -> Iterator[str]:
    yield f"{inventory.os}, Python {inventory.python}, llmgw {inventory.llmgw}"
    available = inventory.memory_available
    free = f", {gib(available)} available" if available is not None else ""
    yield f"CPUs     {inventory.cpu_count}"
    yield f"memory   {gib(inventory.memory_total)}{free}"
    if inventory.disk_free is not None and inventory.disk_total is not None:
        yield f"disk     {gib(inventory.disk_total)}, {gib(inventory.disk_free)} free"
    for device in inventory.devices:
        ailment = f"  not placeable: {device.unhealthy}" if device.unhealthy else ""
        yield f"device   {device.id}  {device.device_class}  {gib(device.memory)}  {device.slots} slots{ailment}"
    for name, words in inventory.engines.items():
        yield f"engine   {name}: {words}"
    for problem in inventory.problems:
        yield f"problem  {problem.text}"


if __name__ == "__main__":
    sys.exit(main())
