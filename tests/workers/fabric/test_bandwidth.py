"""What ib_write_bw prints, in the shapes of its versions, and what is made of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.core.hardware.bandwidth import BandwidthResult, Role, Verdict
from llmgw.core.hardware.findings import LITERAL
from workers.fabric.bandwidth import judged, parse
from workers.fabric.failures import classify
from workers.ports import ToolResult

ASKED = BandwidthResult(
    code="", verdict=Verdict.FAILED, role=Role.CLIENT, port="mlx5_0:1", peer="10.0.0.2", expected_gbps=400.0
)
NOISE = (
    "libibverbs: Warning: couldn't load driver 'libhns-rdmav34.so': libhns-rdmav34.so: cannot open shared object file\n"
    " WARNING: BW peak won't be measured in this run.\n"
    "Conflicting CPU frequency values detected: 800.000000 != 3500.000000. CPU Frequency is not max.\n"
)
BANNER = """\
---------------------------------------------------------------------------------------
                    RDMA_Write BW Test
 Dual-port       : OFF\t\tDevice         : mlx5_0
 Number of qps   : 1\t\tTransport type : IB
 Connection type : RC\t\tUsing SRQ      : OFF
 Mtu             : 4096[B]
 Link type       : IB
 Data ex. method : Ethernet
---------------------------------------------------------------------------------------
 local address: LID 0x01 QPN 0x0107 PSN 0xb264f8 RKey 0x2000201 VAddr 0x007fe663d20000
 remote address: LID 0x02 QPN 0x0107 PSN 0x7bdb93 RKey 0x2000201 VAddr 0x007f282a06e000
---------------------------------------------------------------------------------------
"""


def table(unit="Gb", average="386.31", peak="0.00", end="   \t\t     0.736825"):
    return (
        NOISE + BANNER + f" #bytes     #iterations    BW peak[{unit}/sec]    BW average[{unit}/sec]   MsgRate[Mpps]\n"
        f" 65536      221234           {peak}               {average}{end}\n" + "-" * 87 + "\n"
    )


@pytest.mark.parametrize(
    ("text", "gbps"),
    [
        (table(), 386.31),
        (table(peak="392.10"), 386.31),
        (table(average="0.012281"), 0.01),
        (table(end=""), 386.31),
        (table(end="   0.736825   12.50"), 386.31),
        (table().replace("average[", "average [").replace("\n", "\r\n"), 386.31),
        (table("MB", "11500.00"), 96.47),
        (table("MiB", "11500.00"), 96.47),
        (table("MiB", "24056"), 201.8),
        (table(average="nan"), None),
        (table(average="-nan"), None),
        (table(average="-1.0"), None),
        (table(average="inf"), None),
        (table(average="0.00"), None),
        (table(average="386,31"), None),
        (table("kB"), None),
        (BANNER, None),
        (table().partition("65536")[0], None),
        ("", None),
    ],
)
def test_the_average_is_read_in_gigabits(text, gbps):
    told = parse(text)
    assert (told if told is None else round(told, 2)) == gbps


def test_of_several_sizes_the_last_is_taken():
    rows = " 2      5000   0.14   0.01   0.767588\n 65536   5000   98.10   97.90   0.19\n"
    header = " #bytes #iterations BW peak[Gb/sec] BW average[Gb/sec] MsgRate[Mpps]\n"
    assert parse(header + rows) == 97.90


@pytest.mark.parametrize(
    ("text", "gbps"),
    [
        ('{"test_info": {"Mtu": 4096},\n"results": {"MsgSize": 65536, "BW_average": 386.31, "MsgRate": 0.7}}', 386.31),
        ("{\nresults: {\nMsgSize: 65536,\nBW_peak: 0.00,\nBW_average: 97.5,\nMsgRate: 0.18\n}\n}", 97.5),
        ('{"results": {"bw_avg": 12.250000,\n}}', 12.25),
        ('{"results": {"BW_average": nan}}', None),
        ('{"results": {"BW_average": -3}}', None),
        ('{"results": {"BW_average": "much"}}', None),
        ('{"results": {}}', None),
    ],
)
def test_a_report_in_json_is_read_with_and_without_its_quotes(text, gbps):
    assert parse(text) == gbps


@pytest.mark.parametrize(
    ("average", "rate", "code", "verdict"),
    [
        ("360.00", 400.0, "bandwidth.good", Verdict.GOOD),
        ("359.90", 400.0, "bandwidth.slow", Verdict.SLOW),
        ("300.00", 400.0, "bandwidth.slow", Verdict.SLOW),
        ("299.90", 400.0, "bandwidth.low", Verdict.FAILED),
        ("120.00", 100.0, "bandwidth.good", Verdict.GOOD),
        ("386.31", None, "bandwidth.unrated", Verdict.UNRATED),
    ],
)
def test_a_figure_is_judged_by_the_rate_of_the_port(average, rate, code, verdict):
    asked = BandwidthResult(code="", verdict=Verdict.FAILED, role=Role.CLIENT, port="mlx5_0:1", expected_gbps=rate)
    told = judged(asked, ToolResult(0, table(average=average)))
    assert (told.code, told.verdict, told.gbps) == (code, verdict, float(average))
    assert bool(told.cure) is (verdict is not Verdict.GOOD)


SOCKET = "Unable to open file descriptor for socket connection\n Unable to init the socket connection\n"
FAILURES = [
    (
        "device-not-found",
        "IB device mlx5_9 not found\n Unable to find the Infiniband/RoCE device\n",
    ),
    ("device-not-found", "No IB devices found\n Unable to find the Infiniband/RoCE device\n"),
    ("port-down", " Port number 1 state is Down\n Couldn't get context for the device\n"),
    ("port-down", " Port number 1 state is Init\n"),
    ("port-not-found", " Unable to query port 3 attributes\n Couldn't get context for the device\n"),
    (
        "device-not-found",
        " Did not detect devices \n Unable to find the Infiniband/RoCE device\n",
    ),
    ("no-server", f"Couldn't connect to 10.0.0.2:18515\n{SOCKET}"),
    (
        "no-server",
        (
            "Couldn't connect to gpu02:18515\nUnable to open file descriptor for socket connection "
            "Unable to init the socket connection\n"
        ),
    ),
    ("no-such-host", f"Name or service not known for gpu99:18515\n{SOCKET}"),
    ("port-in-use", f"Couldn't listen to port 18515\n{SOCKET}"),
    (
        "old-tool",
        "ib_write_bw: unrecognized option '--bind_source_ip=10.0.0.1'\n Invalid Command or flag.\n",
    ),
    ("version-mismatch", "Current implementation is not compatible with versions older than 5.70\n"),
    ("gid-mismatch", " Found Incompatibility issue with GID types.\n Please Try to use a different IP version.\n"),
    ("no-lid", " Local lid 0x0 detected. Is an SM running? \n If you're running RMDAoE you must use GIDs\n"),
    ("path", " Failed to modify QP 123 to RTR\n Unable to Connect the HCA's through the link\n"),
    (
        "retry-exceeded",
        " Completion with error at client\n Failed status 12: wr_id 0 syndrom 0x81\nscnt=128, ccnt=0\n",
    ),
    (
        "retry-exceeded",
        (
            " Completion with error at client\n"
            " Failed status-transport retry counter exceeded (12): wr_id 0 syndrom 0x81\n Failed to complete\n"
        ),
    ),
    ("flushed", " Failed status 5: wr_id 0 syndrom 0xf9\n"),
    ("remote-access", " Failed status-remote access error (10): wr_id 0 syndrom 0x88\n"),
    ("not-ready", " Failed status 13: wr_id 0 syndrom 0x82\n"),
    ("completion", " Failed status 4: wr_id 0 syndrom 0x52\n"),
    ("memlock", "Couldn't allocate MR with error=12\nfailed to create mr\n Couldn't create IB resources\n"),
    ("resources", " Couldn't create IB resources\n"),
    (
        "peer-died",
        (
            "ethernet_read_keys: Couldn't read remote address\n Unable to read from socket/rdma_cm\n"
            " Failed to exchange data between server and clients\n"
        ),
    ),
    ("peer-died", "ethernet_read_data: Couldn't read reports\n"),
    ("not-allowed", "libibverbs: /dev/infiniband/uverbs0: Permission denied\n Couldn't get context for the device\n"),
    ("broken-tool", "ib_write_bw: error while loading shared libraries: libibumad.so.3: cannot open\n"),
    ("no-figure", ""),
]


@pytest.mark.parametrize(("code", "said"), FAILURES)
def test_no_figure_has_a_reason_and_something_to_do(code, said):
    told = judged(ASKED, ToolResult(1, BANNER, NOISE + said))
    assert (told.code, told.verdict, told.gbps) == (f"bandwidth.{code}", Verdict.FAILED, None)
    assert told.text
    assert told.cure
    assert said.strip()[:40] in told.literal
    assert (told.port, told.peer, told.expected_gbps) == ("mlx5_0:1", "10.0.0.2", 400.0)


@pytest.mark.parametrize(
    ("answer", "role", "code"),
    [
        (ToolResult(1, table()), Role.CLIENT, "no-figure"),
        (ToolResult(-11, table()), Role.CLIENT, "no-figure"),
        (ToolResult(0, table(average="nan")), Role.CLIENT, "no-figure"),
        (ToolResult(0, BANNER), Role.SERVER, "no-figure"),
        (ToolResult(None, problem="not allowed: Permission denied"), Role.CLIENT, "not-started"),
        (ToolResult(None, problem="held up since 10:00"), Role.CLIENT, "not-started"),
        (ToolResult(None, problem="no answer within 20 s"), Role.CLIENT, "hung"),
        (ToolResult(None, problem="no answer within 80 s"), Role.SERVER, "no-client"),
        (ToolResult(None, BANNER, problem="no answer within 80 s"), Role.SERVER, "hung"),
        (ToolResult(None, "", "Failed status 12: wr_id 0", "no answer within 80 s"), Role.SERVER, "retry-exceeded"),
    ],
)
def test_what_ends_in_another_way_is_told_as_that(answer, role, code):
    asked = BandwidthResult(code="", verdict=Verdict.FAILED, role=role, port="mlx5_0:1", expected_gbps=400.0)
    told = judged(asked, answer)
    assert (told.code, told.verdict, told.gbps) == (f"bandwidth.{code}", Verdict.FAILED, None)
    assert told.text
    assert told.cure


def test_a_warning_of_a_library_that_is_not_needed_is_no_failure():
    assert classify(NOISE) is None


def test_the_words_of_the_tool_are_cut():
    assert len(judged(ASKED, ToolResult(1, "x" * 100_000)).literal) <= LITERAL


@given(st.text())
def test_whatever_is_printed_is_read_or_not(text):
    figure = parse(text)
    assert figure is None or figure > 0
    shown = parse(table().replace("386.31", text))
    assert shown is None or shown > 0
    assert judged(ASKED, ToolResult(0, text, text)).code
    assert judged(ASKED, ToolResult(1, text, text)).verdict is Verdict.FAILED


@given(st.floats(0.01, 9999.0), st.floats(0, 9999.0), st.integers(1, 2**40), st.sampled_from(["Gb", "MiB", "MB"]))
def test_every_row_that_the_tool_can_print_is_read(average, peak, iterations, unit):
    row = f" {65536:<7}    {iterations:<10}       {peak:<7.2f}            {average:<7.2f}   \t\t     {0.7:<7.6f}\n"
    told = parse(f" #bytes     #iterations    BW peak[{unit}/sec]    BW average[{unit}/sec]   MsgRate[Mpps]\n{row}")
    printed = float(f"{average:.2f}") * (1 if unit == "Gb" else 8 * 2**20 / 1e9)
    assert told == pytest.approx(printed)
