"""Runs the checks in their order and puts together what they came to."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import structlog

from llmgw.core.hardware.examination import Cure, Examination, Examined
from llmgw.core.hardware.findings import cut
from llmgw.core.units import Seconds
from llmgw.core.wire import Inventory
from workers.doctor.checks import CATALOGUE
from workers.doctor.entry import Check, Group, Outcome, Patient, Verdict
from workers.ports import Machine
from workers.settings import NodeSettings

log = structlog.get_logger(__name__)

_RANK: Final = {verdict: rank for rank, verdict in enumerate(Verdict)}
_GROUPS: Final = {group: rank for rank, group in enumerate(Group)}


def examine(patient: Patient, checks: Sequence[Check] = CATALOGUE) -> Examination:
    """Run the checks; one that breaks costs itself, and is told as not known."""
    begun = patient.machine.monotonic()
    ordered = sorted(checks, key=lambda check: _GROUPS[check.group])
    outcomes = [told for check in ordered for told in _told(check, patient)]
    return Examination(
        at=patient.now,
        took_s=round(patient.machine.monotonic() - begun, 3),
        outcomes=tuple(sorted(outcomes, key=lambda outcome: _RANK[Verdict(outcome.verdict)])),
    )


def patient_of(
    machine: Machine,
    settings: NodeSettings,
    inventory: Inventory,
    *,
    earlier: Mapping[str, int] | None = None,
    earlier_at: Seconds | None = None,
) -> Patient:
    """Return the node as the checks see it."""
    before = earlier or {}
    return Patient(machine, settings, inventory, machine.now(), earlier=before, earlier_at=earlier_at)


def _told(check: Check, patient: Patient) -> Iterator[Examined]:
    for outcome in _judged(check, patient):
        # What is not known may be well: a cure is told for what is seen to be wrong alone.
        is_wrong = outcome.verdict in {Verdict.FAIL, Verdict.WARN}
        yield Examined(
            check=check.id,
            group=check.group.value,
            title=check.title,
            verdict=outcome.verdict.value,
            text=outcome.text,
            about=outcome.about,
            costs=check.costs if is_wrong else "",
            cure=cure_of(check, outcome) if is_wrong else Cure(),
            evidence=dict(outcome.evidence),
        )


def _judged(check: Check, patient: Patient) -> Iterable[Outcome]:
    try:
        return tuple(check.judge(patient))
    except Exception as error:
        # One check that meets what nobody has thought of must not end the doctor; that it broke is told.
        log.exception("check broke", check=check.id)
        text = f"the check itself broke ({type(error).__name__}: {cut(str(error))}); please send a recording"
        return (Outcome(Verdict.UNKNOWN, text),)


def cure_of(check: Check, outcome: Outcome) -> Cure:
    """Fill in the fix; where a name in it is not known, its words hold without the command."""
    return Cure(
        text=_filled(check.fix.text, outcome) or check.fix.text,
        command=_filled(check.fix.command, outcome),
        undo=_filled(check.fix.undo, outcome),
        safe=check.fix.safe,
    )


def _filled(template: str, outcome: Outcome) -> str:
    try:
        return template.format_map(dict(outcome.fix_arguments))
    except (KeyError, ValueError, IndexError):
        return ""
