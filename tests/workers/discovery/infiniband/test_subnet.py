"""Subnet managers, in every form that sminfo and saquery print."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.workers.discovery.infiniband.tree import a_machine, a_port
from workers.discovery.infiniband import ports, subnet
from workers.ports import ToolResult
from workers.settings import NodeSettings

SAID = "sminfo: sm lid 37 sm guid 0x2c90200259201, activity count 4484381 priority 14 state 3 SMINFO_MASTER\n"
RECORDS = """SMInfoRecord dump:
\t\tRID
\t\tLID...................37
\t\tSMInfo dump:
\t\tGUID..................0x0002c90200259201
\t\tActCount..............4484400
\t\tPriority..............14
\t\tSMState...............3
SMInfoRecord dump:
\t\tLID...................40
\t\tGUID..................0x7cfe90030016aef1
\t\tSMState...............STANDBY (2)
"""


def ask(*its_ports, **tools):
    machine = a_machine(*its_ports, programs={name: name for name in tools}, tools=tools)
    found, problems = subnet.managers(machine, NodeSettings(), ports.find(machine)[0])
    return machine, found, problems


def test_the_master_and_its_standby_are_told_and_asked_for_once():
    machine, found, problems = ask(
        a_port("mlx5_0"), a_port("mlx5_1"), sminfo=ToolResult(0, SAID), saquery=ToolResult(0, RECORDS)
    )
    master = found[0].subnet_manager
    assert (master.guid, master.lid, master.priority, master.state) == ("0x0002c90200259201", 37, 14, "master")
    assert [each.guid for each in found[1].other_subnet_managers] == ["0x7cfe90030016aef1"]
    assert found[1].other_subnet_managers[0].state == "standby"
    assert (problems, [call[0] for call in machine.calls]) == ((), ["sminfo", "sminfo", "saquery"])


def test_ports_that_have_none_are_not_asked():
    roce = a_port("mlx5_0", link_layer="Ethernet")
    machine, found, problems = ask(roce, a_port("mlx5_1", state="1: DOWN"), sminfo=ToolResult(0, SAID))
    assert (machine.calls, problems, [port.subnet_manager for port in found]) == ([], (), [None, None])


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (ToolResult(255, "sminfo: iberror: failed: query\n"), "sminfo.exit"),
        (ToolResult(255, "sminfo: iberror: query failed\n"), "sminfo.exit"),
        (ToolResult(255, "sminfo: iberror: failed: Failed to open 'mlx5_0' port '1'\n"), "sminfo.not-allowed"),
        (ToolResult(None, problem="no answer within 5 s"), "sminfo.timeout"),
        (ToolResult(None, problem="held up since 12:00"), "sminfo.held-up"),
    ],
)
def test_an_error_is_kept_with_its_port(answer, code):
    _, (port,), (problem,) = ask(a_port("mlx5_0"), sminfo=answer)
    assert (port.subnet_manager, problem.code, problem.fact) == (None, code, "port mlx5_0:1: subnet manager")


def test_a_missing_tool_is_said():
    _, _, (problem,) = ask(a_port("mlx5_0"))
    assert problem.code == "sminfo.missing"


@given(st.text())
def test_whatever_is_printed_is_read_or_not(text):
    told = (
        subnet.parse_master(text),
        *subnet.parse_all(text),
        *subnet.parse_all(f"SMInfoRecord dump:\nGUID....{text}"),
    )
    assert all(manager is None or len(manager.guid) == 18 for manager in told)


def test_numbers_without_end_are_none():
    assert subnet.parse_master(SAID.replace("37", "9" * 5000)) is None
    assert subnet.parse_all(RECORDS.replace("37", "9" * 5000))[0].lid is None
