"""What ib_write_bw prints, and what is made of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.fabric.bandwidth import parse, result
from workers.ports import ToolResult


def table(unit="Gb", average="386.31", peak="0.00"):
    return (
        " WARNING: BW peak won't be measured in this run.\n"
        f" #bytes     #iterations    BW peak[{unit}/sec]    BW average[{unit}/sec]   MsgRate[Mpps]\n"
        f" 65536      221234           {peak}               {average}               0.736825\n"
    )


@pytest.mark.parametrize(
    ("text", "gbps"),
    [
        (table(), 386.31),
        (table("MB", "11500.00"), 96.47),
        (table("MiB", "11500.00"), 96.47),
        (table(average="nan"), None),
        (table(average="-1.0"), None),
        (table(average="inf"), None),
        (table(average="0.00"), None),
        ("no table", None),
    ],
)
def test_the_average_is_read_in_gigabits(text, gbps):
    told = parse(text)
    assert (told if told is None else round(told, 2)) == gbps


@pytest.mark.parametrize(
    ("average", "code"), [("386.31", "bandwidth.good"), ("320.00", "bandwidth.slow"), ("120.00", "bandwidth.low")]
)
def test_a_figure_is_judged_by_the_rate_of_the_port(average, code):
    told = result(ToolResult(0, table(average=average)), 400.0)
    assert (told.code, told.expected_gbps) == (code, 400.0)


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (ToolResult(1, "", "IB device mlx5_9 not found\n"), "bandwidth.no-device"),
        (ToolResult(1, "", " Port number 1 state is Down\n"), "bandwidth.port-down"),
        (ToolResult(1, "", "Couldn't connect to 10.0.0.2:18515\n"), "bandwidth.no-server"),
        (ToolResult(1, "", "Couldn't listen to port 18515\n"), "bandwidth.port-in-use"),
        (ToolResult(1, "", " Failed to modify QP 123 to RTR\n"), "bandwidth.no-path"),
        (ToolResult(1, "", " Failed status 12: wr_id 0 syndrom 0x81\n"), "bandwidth.retries"),
        (ToolResult(1, "", "Couldn't allocate MR with error=12\n"), "bandwidth.memlock"),
        (ToolResult(1, table()), "bandwidth.no-figure"),
        (ToolResult(0, table(average="nan")), "bandwidth.no-figure"),
        (ToolResult(None, problem="not found"), "bandwidth.missing"),
        (ToolResult(None, problem="no answer within 20 s"), "bandwidth.timeout"),
    ],
)
def test_no_figure_has_a_reason(answer, code):
    told = result(answer, 400.0)
    assert (told.code, told.gbps) == (code, None)
    assert told.text


@given(st.text())
def test_whatever_is_printed_is_read_or_not(text):
    parse(text)
    parse(table().replace("386.31", text))
