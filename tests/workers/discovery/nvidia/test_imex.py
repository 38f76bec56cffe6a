"""The IMEX domain, from every form that its tool prints."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.core.hardware.gpus import FabricState, Gpu, GpuFabric, ImexNode
from tests.fakes.machine import FakeMachine
from workers.discovery.nvidia import imex
from workers.ports import DeviceNode, ToolResult
from workers.settings import NodeSettings

TABLE = """Connectivity Table Legend:
I - Invalid - Node wasn't reachable, no connection status available
C - Connected - Ready for operation

3/25/2025 10:39:43.659
Nodes:
Node #0   - 10.0.6.48   - READY                - Version: 570.172
Node #1   - 10.0.6.49   - UNAVAILABLE

 Nodes From\\To  0   1
       0        C   N
       1        I   I
Domain State: DEGRADED
"""
WELL = TABLE.replace("DEGRADED", "UP").replace("C   N", "C   C").replace("I   I", "C   C")
MEMBER = (
    Gpu(
        index=0,
        uuid="GPU-0",
        name="NVIDIA GB200",
        fabric=GpuFabric(state=FabricState.COMPLETED, status="success", cluster_uuid="dc6e", clique_id=1),
    ),
)
FOLDER = "/dev/nvidia-caps-imex-channels"


def machine(own="READY\n", whole=WELL, major=234):
    tools = {"systemctl": ToolResult(0, "LoadState=loaded\nActiveState=active\n")}
    tools |= {
        f"nvidia-imex-ctl -c {imex.CONFIG} -q": ToolResult(0, own),
        f"nvidia-imex-ctl -c {imex.CONFIG} -N": ToolResult(0, whole),
    }
    return FakeMachine(
        programs={"systemctl": "systemctl", "nvidia-imex-ctl": "nvidia-imex-ctl"},
        tools=tools,
        files={"/proc/devices": "Character devices:\n 195 nvidia\n 234 nvidia-caps-imex-channels\n"},
        nodes={f"{FOLDER}/channel0": DeviceNode(major, 0, readable=True, writable=True)} if major else {},
    )


def domain(text):
    return imex.parse_domain(text)


def found_on(around, settings, gpus):
    return imex.find(around, settings, gpus)


def wrong(**facts):
    around = machine(**facts)
    found, _ = found_on(around, NodeSettings(), MEMBER)
    return [finding.code for finding in imex.findings(found, MEMBER, around)]


def test_a_domain_is_read_with_and_without_versions():
    told = domain(TABLE)
    assert told.nodes == (
        ImexNode(address="10.0.6.48", state="READY", version="570.172"),
        ImexNode(address="10.0.6.49", state="UNAVAILABLE"),
    )
    assert (told.domain_state, told.unconnected) == ("DEGRADED", ((0, 1), (1, 0), (1, 1)))


def test_the_tools_json_tells_the_same():
    text = """{"nodes": {"0": {"status": "READY", "host": "10.0.6.48", "version": "570.172",
               "connections": {"0": {"status": "CONNECTED"}, "1": {"status": "DISCONNECTED"}}}}, "status": "UP"}"""
    told = domain(text)
    assert (told.domain_state, told.unconnected) == ("UP", ((0, 1),))
    assert told.nodes == (ImexNode(address="10.0.6.48", state="READY", version="570.172"),)


def test_a_domain_that_is_well_has_no_finding():
    found, problems = found_on(machine(), NodeSettings(), MEMBER)
    assert (found.state, found.domain_state, found.channels, found.channel_major, problems) == (
        "READY",
        "UP",
        (0,),
        234,
        (),
    )
    assert wrong() == []


@pytest.mark.parametrize(
    ("facts", "codes"),
    [
        ({"own": ""}, ["imex.down"]),
        ({"whole": TABLE}, ["imex.degraded", "imex.unconnected"]),
        ({"major": None}, ["imex.no-channel"]),
        ({"major": 511}, ["imex.stale-channel"]),
    ],
)
def test_what_keeps_nodes_apart_is_told(facts, codes):
    assert wrong(**facts) == codes


def test_a_machine_that_is_in_no_domain_is_not_asked():
    quiet = FakeMachine()
    assert imex.find(quiet, NodeSettings(), (Gpu(index=0, uuid="GPU-0"),)) == (None, ())


def test_what_cannot_be_read_is_a_problem():
    found, (problem,) = found_on(machine(whole="Failed to connect"), NodeSettings(), MEMBER)
    assert (found.domain_state, problem.literal) == (None, "Failed to connect")
    assert problem.code == "nvidia-imex-ctl.garbage"


@pytest.mark.parametrize(
    ("problem", "code"),
    [
        ("not found", "nvidia-imex-ctl.missing"),
        ("not allowed: Permission denied", "nvidia-imex-ctl.not-allowed"),
        ("no answer within 10 s", "nvidia-imex-ctl.timeout"),
        ("held up since 12:00", "nvidia-imex-ctl.held-up"),
    ],
)
def test_a_tool_that_does_not_answer_is_said_to_be_so(problem, code):
    around = machine()
    around.tools = {**around.tools, f"nvidia-imex-ctl -c {imex.CONFIG} -N": ToolResult(None, problem=problem)}
    _, (told,) = found_on(around, NodeSettings(), MEMBER)
    assert told.code == code
    assert told.text.endswith(f"nvidia-imex-ctl -N: {problem}")


@given(st.text(), st.integers(0, len(TABLE)))
def test_whatever_is_printed_is_read_or_not(text, at):
    for printed in (text, TABLE[:at] + text + TABLE[at:], "{" + text):
        told = imex.parse_domain(printed)
        assert told is None or all(node.address for node in told.nodes)
        assert imex.parse_state(printed) is None or imex.parse_state(printed) in printed


def test_the_ends_of_lines_and_the_blank_ones_do_not_matter():
    assert domain(WELL.replace("\n", "\r\n")) == domain(WELL)
    assert imex.parse_state("\r\n  READY \r\n") == "READY"
    blank = "\n" * 1_000_000
    assert (domain(blank), imex.parse_state(blank)) == (None, None)
