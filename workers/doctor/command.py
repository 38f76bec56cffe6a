"""`llmgw-node doctor`: runs the checks, prints what is wrong and how to cure it, and runs the safe cures when told."""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, redirect_stdout
from typing import Final

import msgspec

from llmgw.core.hardware.examination import Examination, Examined, alike
from llmgw.core.nccl import explain
from llmgw.core.wire import Inventory
from workers.doctor import kept
from workers.doctor.checks import CATALOGUE, NOT_YET
from workers.doctor.entry import Check, Group, Patient
from workers.doctor.environments import with_environments
from workers.doctor.run import examine, patient_of
from workers.ports import Machine
from workers.settings import NodeSettings

DONE, FAILED, BAD_USAGE = 0, 1, 2
_SHOWN: Final = ("fail", "warn", "unknown")
_FIX_S: Final = 60.0
Look = Callable[[], Inventory]
"""Looks at everything; before the checks, and again after the cures."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    parser.add_argument("--json", action="store_true", help="print the inventory and every outcome with its evidence")
    parser.add_argument("--only", action="append", default=[], metavar="ID|GROUP", help="run these checks alone")
    parser.add_argument("--list", action="store_true", help="print all checks, and those that are not made yet")
    parser.add_argument("--all", action="store_true", help="print what passes, too")
    parser.add_argument(
        "--fix", action="store_true", help="run the cures that are safe while engines serve, after asking"
    )
    parser.add_argument("--yes", action="store_true", help="with --fix: do not ask")


def run(arguments: argparse.Namespace, machine: Machine, settings: NodeSettings, look: Look, *, is_replay: bool) -> int:
    """Run it; 0 when nothing fails, 1 when something does, 2 for a check that is not known."""
    known = {check.id for check in CATALOGUE} | {group.value for group in Group}
    if unknown := [word for word in arguments.only if word not in known]:
        print(f"llmgw-node: --only: there is no check {unknown[0]} – `--list` prints them", file=sys.stderr)
        return BAD_USAGE
    checks = [check for check in CATALOGUE if not arguments.only or {check.id, check.group.value} & set(arguments.only)]
    if arguments.list:
        print("\n".join(_listed(checks)))
        return DONE
    patient = _patient(machine, settings, look())
    told = with_environments(examine(patient, checks), patient.inventory)
    if not is_replay and not arguments.only:
        kept.write(machine, settings.state, patient.now, patient.counters)
    if arguments.json:
        document = {"inventory": patient.inventory, "examination": told}
        print(msgspec.json.format(msgspec.json.encode(document)).decode())
    else:
        print("\n".join(lines(told, everything=arguments.all)))
    if arguments.fix and not is_replay:
        with redirect_stdout(sys.stderr) if arguments.json else nullcontext():  # the answer stays JSON
            told = _fix(told, checks, patient, look, is_agreed=arguments.yes)
    return FAILED if told.count("fail") else DONE


def _patient(machine: Machine, settings: NodeSettings, inventory: Inventory) -> Patient:
    before = kept.read(machine, settings.state)
    counters = before.counters if before else None
    return patient_of(machine, settings, inventory, earlier=counters, earlier_at=before.at if before else None)


# --- text ---------------------------------------------------------------------------------------------------------


def lines(told: Examination, *, everything: bool = False) -> Iterator[str]:
    """Say what was found, the most serious first, and the NCCL environment of each fabric."""
    shown = [outcome for outcome in told.outcomes if outcome.verdict in _SHOWN or everything]
    for found in alike(shown):
        yield from _outcomes(found)
    for fabric, environment in told.environments.items():
        yield f"NCCL environment of a shard on {fabric}:"
        yield from (f"  {name}={value}  # {why}" for name, value, why in explain(environment))
    for fabric, why in told.refused.items():
        yield f"NCCL environment of a shard on {fabric}: none, {why}"
    counts = [f"{told.count(word)} {word}" for word in (*_SHOWN, "pass", "not-applicable")]
    yield f"{', '.join(counts)}, in {told.took_s:.1f} s"


def _outcomes(found: Sequence[Examined]) -> Iterator[str]:
    """Say what one check found, of one port or of ten, and once what that costs and what cures it."""
    costs, cure = found[0].costs, found[0].cure
    yield from (f"{outcome.verdict.upper():8} {outcome.check}: {outcome.text}" for outcome in found)
    if costs:
        yield f"           costs: {costs}"
    if cure.text:
        yield f"           cure:  {cure.text}"
    if cure.command:
        undo = f"; undo: {cure.undo}" if cure.undo else ""
        word = "safe" if cure.safe else "NOT safe while engines serve"
        yield f"           {word}: {cure.command}{undo}"


def _listed(checks: Sequence[Check]) -> Iterator[str]:
    for check in checks:
        yield f"{check.id:28} {check.group.value:10} {check.title}"
    for name, title, why in NOT_YET:
        yield f"{name:28} not yet    {title}: {why}"


# --- cures --------------------------------------------------------------------------------------------------------


def _fix(told: Examination, checks: Sequence[Check], patient: Patient, look: Look, *, is_agreed: bool) -> Examination:
    """Run the safe cures of what is not well, each after a yes, and look again."""
    due = {
        outcome.cure.command for outcome in told.outcomes if outcome.verdict in {"fail", "warn"} and outcome.cure.safe
    }
    for command in sorted(due - {""}):
        if not is_agreed and not _agreed(command):
            continue
        print(f"$ {command}")
        done = patient.machine.output(("/bin/sh", "-c", command), _FIX_S)
        print(done.out + done.err + (done.problem or f"ended with {done.code}"))
    if not due - {""}:
        print("nothing that is not well has a safe cure")
        return told
    again = patient_of(
        patient.machine, patient.settings, look(), earlier=patient.earlier, earlier_at=patient.earlier_at
    )
    after = examine(again, checks)
    print(f"after it: {after.count('fail')} fail, {after.count('warn')} warn")
    return after


def _agreed(command: str) -> bool:
    if not sys.stdin.isatty():
        print(f"not run, since there is nobody to ask (give --yes): {command}")
        return False
    try:
        return input(f"run `{command}`? [y/N] ").strip().lower() in {"y", "yes"}
    except EOFError:  # ^D
        print()
        return False
