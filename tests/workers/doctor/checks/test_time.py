"""Checks of the clock."""

import pytest

from tests.workers.doctor.checks.patients import a_patient, only, verdicts
from workers.doctor.checks.time import CHECKS, NOT_YET
from workers.ports import ToolResult


def chrony(offset="0.000020", leap="Normal"):
    return {"chronyc": f"Stratum : 3\nSystem time     : {offset} seconds slow of NTP time\nLeap status     : {leap}\n"}


DOWN = {"chronyc": ToolResult(1, out="506 Cannot talk to daemon\n")}
SHOW = "NTP=yes\nNTPSynchronized={}\n"
STATUS = "       Server: 10.0.0.1\n       Offset: {}\n"
NTP = {"ntpq": "associd=0 status=0615 leap_none, sync_ntp,\nstratum=2, offset=250.0\n"}


def timesyncd(is_synchronised, offset):
    return {"timedatectl show": SHOW.format(is_synchronised), "timedatectl timesync-status": STATUS.format(offset)}


@pytest.mark.parametrize(
    ("tools", "synchronised", "offset"),
    [
        ({}, "unknown", "unknown"),
        (chrony(), "pass", "pass"),
        (chrony("0.250000"), "pass", "warn"),
        (chrony("3.500000"), "pass", "fail"),
        (chrony("0.000000", "Not synchronised"), "fail", "pass"),
        (DOWN, "unknown", "unknown"),
        (DOWN | timesyncd("yes", "+1.2ms"), "pass", "pass"),
        (timesyncd("yes", "-2s"), "pass", "fail"),
        (timesyncd("yes", "n/a"), "pass", "unknown"),
        (timesyncd("no", "n/a"), "fail", "unknown"),
        ({"timedatectl": "System clock synchronized: yes\n"}, "pass", "unknown"),
        (NTP, "pass", "warn"),
    ],
)
def test_the_clock_is_judged(tools, synchronised, offset):
    assert verdicts(CHECKS, "time.synchronised", a_patient(tools=tools)) == [synchronised]
    assert verdicts(CHECKS, "time.offset", a_patient(tools=tools)) == [offset]


def test_it_is_said_who_was_asked():
    text = only(CHECKS, "time.synchronised", a_patient(tools=DOWN)).text
    assert text.endswith("chronyc does not tell, timedatectl is not installed, ntpq is not installed")


def test_what_is_not_checked_yet_says_why():
    assert all(why.startswith("needs ") for _, _, why in NOT_YET)
