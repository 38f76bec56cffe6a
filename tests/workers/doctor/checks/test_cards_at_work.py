"""Checks of what programs and links of the cards do."""

import pytest

from llmgw.core.hardware.gpus import NvLink, Process
from tests.workers.doctor.checks.patients import a_gpu, a_patient, only, verdicts
from workers.doctor.checks import cards
from workers.doctor.checks.cards_at_work import CHECKS

HELD = {"gpus": (a_gpu(processes=(Process(pid=7, name="python"),)),)}
CARD = {"gpus": (a_gpu(processes=()),)}


def stat(state):
    return {"files": {"/proc/7/stat": f"7 (python) ) {state} 1 7 7 0 -1"}}


def xids(times, number=13, apart=1.0):
    lines = [
        f"[{100 + at * apart:.6f}] NVRM: Xid (PCI:0000:9b:00): {number}, pid=7, name=python, Graphics Exception"
        for at in range(times)
    ]
    return {"tools": {"dmesg": "\n".join(lines) + "\n"}}


def linked(errors):
    return {"gpus": (a_gpu(nvlinks=(NvLink(number=0, active=True, errors=errors),)),)}


@pytest.mark.parametrize(
    ("check", "facts", "expected"),
    [
        ("gpu.holders", {}, "not-applicable"),
        ("gpu.holders", {"gpus": (a_gpu(processes=None),)}, "unknown"),
        ("gpu.holders", CARD, "pass"),
        ("gpu.holders", HELD, "pass"),
        ("gpu.holders", HELD | stat("S"), "pass"),
        ("gpu.holders", HELD | stat("Z"), "fail"),
        ("gpu.holders", HELD | stat("D"), "warn"),
        ("gpu.xid-flood", {}, "not-applicable"),
        ("gpu.xid-flood", CARD, "unknown"),
        ("gpu.xid-flood", CARD | xids(10), "pass"),
        ("gpu.xid-flood", CARD | xids(11), "warn"),
        ("gpu.xid-flood", CARD | xids(11, apart=3600.0), "pass"),
        ("gpu.xid-flood", CARD | xids(40, number=79), "pass"),
        ("topology.link-errors", CARD, "not-applicable"),
        ("topology.link-errors", linked({"crc": 3}), "unknown"),
        ("topology.link-errors", linked({"crc": 3}) | {"earlier": {"nvlink.GPU-0.0": 3}}, "pass"),
        ("topology.link-errors", linked({"crc": 3, "replay": 1}) | {"earlier": {"nvlink.GPU-0.0": 3}}, "warn"),
    ],
)
def test_cards_at_work_are_judged(check, facts, expected):
    assert verdicts(CHECKS, check, a_patient(**facts)) == [expected]


def test_the_dead_holder_is_named():
    assert only(CHECKS, "gpu.holders", a_patient(**HELD, **stat("Z"))).text == (
        "process 7 (python) is dead and holds a card still"
    )


@pytest.mark.parametrize(("told", "verdict"), [(None, "not-applicable"), (False, "pass"), (True, "warn")])
def test_a_display_on_a_card(told, verdict):
    assert verdicts(cards.CHECKS, "gpu.display", a_patient(gpus=(a_gpu(display_active=told),))) == [verdict]
