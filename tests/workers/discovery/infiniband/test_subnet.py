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
    found, findings, problems = subnet.managers(machine, NodeSettings(), ports.find(machine)[0])
    assert findings == ()
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
        (ToolResult(None, problem="not allowed: Permission denied"), "sminfo.not-allowed"),
    ],
)
def test_an_error_is_kept_with_its_port(answer, code):
    _, (port,), (problem,) = ask(a_port("mlx5_0"), sminfo=answer)
    assert (port.subnet_manager, problem.code, problem.fact) == (None, code, "port mlx5_0:1: subnet manager")


def test_a_missing_tool_is_said():
    _, _, (problem,) = ask(a_port("mlx5_0"))
    assert problem.code == "sminfo.missing"


# --- all managers


SAQUERY_COSTS = "whether a fabric has several masters, or no standby"


@pytest.mark.parametrize(
    ("answer", "code", "fact", "words"),
    [
        (None, "saquery.missing", "other subnet managers", "saquery is not installed (infiniband-diags)"),
        (
            ToolResult(1, err="Query SA failed: Invalid\n"),
            "saquery.exit",
            "port mlx5_0:1: other subnet managers",
            "saquery ends with 1",
        ),
        (
            ToolResult(255, err="ibwarn: can't open UMAD port\n"),
            "saquery.not-allowed",
            "port mlx5_0:1: other subnet managers",
            "/dev/infiniband/umad* may be opened by root alone",
        ),
        (
            ToolResult(None, problem="no answer within 10 s"),
            "saquery.timeout",
            "port mlx5_0:1: other subnet managers",
            "no answer within 10 s",
        ),
        (
            ToolResult(0, "nothing known\n"),
            "saquery.garbage",
            "port mlx5_0:1: other subnet managers",
            "saquery tells of none",
        ),
    ],
)
def test_managers_that_are_not_listed_are_one_problem_which_says_what_it_costs(answer, code, fact, words):
    more = {"saquery": answer} if answer else {}
    _, found, (problem,) = ask(a_port("mlx5_0"), a_port("mlx5_1"), sminfo=ToolResult(0, SAID), **more)
    assert (problem.code, problem.fact) == (code, fact)
    assert problem.text == f"{fact} are not known, nor {SAQUERY_COSTS}: {words}"
    assert [port.subnet_manager.lid for port in found] == [37, 37]


def test_a_missing_tool_is_said_once_for_all_subnets():
    other = SAID.replace("2c90200259201", "2c90200259202")
    answers = {"sminfo -C mlx5_0 -P 1": ToolResult(0, SAID), "sminfo -C mlx5_1 -P 1": ToolResult(0, other)}
    machine = a_machine(a_port("mlx5_0"), a_port("mlx5_1"), programs={"sminfo": "sminfo"}, tools=answers)
    told = subnet.managers(machine, NodeSettings(), ports.find(machine)[0])
    assert [problem.code for problem in told.problems] == ["saquery.missing"]


def test_several_masters_of_one_subnet_are_found_once():
    records = RECORDS.replace("STANDBY (2)", "3")
    tools = {"sminfo": ToolResult(0, SAID), "saquery": ToolResult(0, records)}
    machine = a_machine(a_port("mlx5_0"), a_port("mlx5_1"), programs={name: name for name in tools}, tools=tools)
    (finding,) = subnet.managers(machine, NodeSettings(), ports.find(machine)[0]).findings
    assert (finding.code, finding.about) == ("subnet.masters", "mlx5_0:1")
    assert "2 masters: 0x0002c90200259201, 0x7cfe90030016aef1" in finding.text
    assert finding.costs
    assert finding.cure


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
