"""What the kernel says of cards, however its log was read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.machine import FakeMachine
from workers.discovery.nvidia.kernel_log import Kind, XidClass, events, read, since_the_driver, xid_class
from workers.ports import ToolResult
from workers.settings import NodeSettings

XID = "NVRM: Xid (PCI:0000:9b:00): 119, pid=2024380, name=nvidia-smi, Timeout after 6s of waiting"


def parsed(text):
    return events(text.splitlines())


@pytest.mark.parametrize(
    ("line", "address", "number", "seconds"),
    [
        (f"[  123.456789] {XID}", "0000:9b:00.0", 119, 123.456789),
        (f"[Tue Dec  1 06:36:01 2026] {XID}", "0000:9b:00.0", 119, None),
        (f"2026-12-01T06:36:01+0000 gpu07 kernel: {XID}", "0000:9b:00.0", 119, None),
        (f"3,1234,98765432,-;{XID}", "0000:9b:00.0", 119, 98.765432),
        ("NVRM: Xid (0000:03:00): 14, Channel 00000001", "0000:03:00.0", 14, None),
        (
            "NVRM: Xid (PCI:0000:91:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off",
            "0000:91:00.0",
            79,
            None,
        ),
        (
            "NVRM: Xid (PCI:0018:01:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0)",
            "0018:01:00.0",
            149,
            None,
        ),
    ],
)
def test_an_xid_in_every_form(line, address, number, seconds):
    (event,) = parsed(line)
    assert (event.kind, event.pci_address, event.number, event.seconds) == (Kind.XID, address, number, seconds)
    assert event.literal == line.strip()


def test_a_lost_card_may_have_no_xid():
    (event,) = parsed("NVRM: GPU 0000:18:00.0: GPU has fallen off the bus.")
    assert (event.kind, event.pci_address) == (Kind.LOST, "0000:18:00.0")


def test_errors_of_switches_are_told_once():
    first, second = parsed(
        "nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 48 LTSSM Fault Up\n"
        "nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Severity 1 Engine instance 48\n"
        "nvidia-nvswitch2: SXid (PCI:0000:07:00.0): 12028, Non-fatal, Link 32 egress\n"
    )
    assert (first.kind, first.number, first.is_fatal) == (Kind.SXID, 20034, True)
    assert (second.number, second.is_fatal) == (12028, False)


def test_what_was_before_the_driver_is_over():
    events = parsed(f"{XID}\nNVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.95.05\n{XID}\n")
    assert [event.kind for event in since_the_driver(events)] == [Kind.XID]
    assert since_the_driver(events[:1]) == events[:1]


@pytest.mark.parametrize(
    ("number", "kind"),
    [(13, "application"), (94, "application"), (63, "warn"), (48, "reset"), (79, "node"), (4711, "warn")],
)
def test_what_an_xid_asks_for(number, kind):
    assert xid_class(number) is XidClass(kind)


def machine(**tools):
    return FakeMachine(programs={name: name for name in tools}, tools=tools)


def test_the_journal_is_read_where_dmesg_may_not_be():
    denied = ToolResult(1, "", "dmesg: read kernel buffer failed: Operation not permitted")
    events, problems = read(machine(dmesg=denied, journalctl=ToolResult(0, XID)), NodeSettings())
    assert ([event.number for event in events], problems) == ([119], ())


def test_a_log_that_may_not_be_read_is_one_problem():
    denied = ToolResult(1, "", "dmesg: read kernel buffer failed: Operation not permitted")
    events, (problem,) = read(machine(dmesg=denied), NodeSettings())
    assert (events, problem.code) == ((), "kernel-log.not-allowed")
    assert "Operation not permitted" in problem.literal


@given(st.text())
def test_whatever_is_logged_is_read_or_not(text):
    assert all(event.literal for event in parsed(text))
    assert len(parsed(f"{XID}\n{text}\n{XID}")) >= 2, "the lines around it keep their meaning"
    parsed(f"NVRM: Xid ({text}): 79, ")
