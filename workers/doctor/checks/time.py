"""Checks of the clock: does somebody set it, and how wrong is it."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from workers import tools
from workers.doctor.entry import Check, Fix, Group, Outcome, Patient, failed, passed, unknown, warned
from workers.doctor.reading.clocks import Clock, parse_chrony, parse_ntp, parse_timedatectl, parse_timesync_offset
from workers.doctor.reading.words import listed

_GOOD_S: Final = 0.1
_BAD_S: Final = 1.0
_ASKED: Final[tuple[tuple[tuple[str, ...], Callable[[str], Clock]], ...]] = (
    (("chronyc", "tracking"), parse_chrony),
    (("timedatectl", "show"), parse_timedatectl),
    (("ntpq", "-c", "rv"), parse_ntp),
)
"""Who may know, the best first."""


def _clock(patient: Patient) -> Clock | str:
    """Return what is known of the clock, or why nothing is."""
    return patient.once("clock", lambda: _ask(patient))


def _ask(patient: Patient) -> Clock | str:
    silent = []
    for (tool, *arguments), parse in _ASKED:
        result = tools.ask(patient.machine, patient.settings, tool, *arguments)
        clock = parse(result.out)
        if clock.synchronised is not None:
            return _with_offset(patient, clock)
        silent.append(f"{tool} {'is not installed' if result.problem == 'not found' else 'does not tell'}")
    return ", ".join(silent)


def _with_offset(patient: Patient, clock: Clock) -> Clock:
    if clock.told_by != "systemd" or not clock.synchronised:
        return clock
    result = tools.ask(patient.machine, patient.settings, "timedatectl", "timesync-status")
    return replace(clock, offset_s=parse_timesync_offset(result.out))


def _synchronised(patient: Patient) -> Iterator[Outcome]:
    clock = _clock(patient)
    if isinstance(clock, str):
        yield unknown(f"whether the clock is set by somebody is not known: {clock}")
    elif clock.synchronised:
        yield passed(f"the clock is set by the network, says {clock.told_by}")
    else:
        yield failed(f"the clock is set by nobody, says {clock.told_by}")


def _offset(patient: Patient) -> Iterator[Outcome]:
    clock = _clock(patient)
    if isinstance(clock, str):
        yield unknown(f"how wrong the clock is is not known: {clock}")
    elif clock.offset_s is None:
        yield unknown(f"{clock.told_by} does not tell how wrong the clock is")
    else:
        text = f"the clock is {clock.offset_s * 1000:.3g} ms off, says {clock.told_by}"
        say = passed if clock.offset_s < _GOOD_S else warned if clock.offset_s < _BAD_S else failed
        yield say(text, offset_s=clock.offset_s)


_COSTS: Final = (
    "Certificates and tokens seem to be from the future or too old; logs of several nodes cannot be compared."
)

CHECKS: Final[tuple[Check, ...]] = (
    Check(
        id="time.synchronised",
        group=Group.TIME,
        title="The clock is set by the network",
        reads=listed([" ".join(asked) for asked, _ in _ASKED]),
        rule="Fails where it is not; the first of these that tells is believed.",
        costs=_COSTS,
        fix=Fix(
            "Install chrony, or switch timesyncd on.", "timedatectl set-ntp true", undo="timedatectl set-ntp false"
        ),
        judge=_synchronised,
    ),
    Check(
        id="time.offset",
        group=Group.TIME,
        title="The clock is right",
        reads="chronyc tracking, timedatectl timesync-status, ntpq -c rv",
        rule="Warns from 0.1 s on, fails from 1 s on.",
        costs=_COSTS,
        fix=Fix(
            "See whether the time server can be reached; chrony moves a clock that is far off by `chronyc makestep`."
        ),
        judge=_offset,
    ),
)
NOT_YET: Final[tuple[tuple[str, str, str], ...]] = (
    (
        "time.control-plane",
        "The node's clock is the control plane's",
        "needs the control plane's time, which ticks carry",
    ),
)
