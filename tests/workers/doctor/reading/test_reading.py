"""What the doctor reads beside the inventory: each format as its makers print it, and nothing else."""

import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.machine import FakeMachine
from workers.doctor.reading import clocks, ibstat, interfaces, mounts, pcie, procfs, qos, sockets, verbs, words
from workers.doctor.reading.clocks import Clock
from workers.doctor.reading.pcie import Bridge
from workers.doctor.reading.procfs import Limit
from workers.doctor.reading.sockets import Listener
from workers.ports import ToolResult

LIMITS = """Limit                     Soft Limit           Hard Limit           Units
Max processes             4096                 96364                processes
Max open files            1024                 524288               files
Max locked memory         unlimited            unlimited            bytes
Max nice priority         0                    0
Max file locks            many                 unlimited            locks
"""
TCP = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 981799 1 0 100 0 0 10 0
   1: 0500A8C0:4E20 00000000:0000 0A 00000000:00000000 00:00000000 00000000   100        0 981800 1 0 100 0 0 10 0
   2: 0500A8C0:9C40 0600A8C0:1F90 01 00000000:00000000 00:00000000 00000000   100        0 981801 1 0 100 0 0 10 0
"""
TCP6 = """  sl  local_address                         remote_address                        st
   0: 00000000000000000000000000000000:2049 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000
   1: 0000000000000000FFFF00000100007F:0050 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000
"""
MOUNTS = r"""22 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw
40 22 0:51 / /srv/two\040words rw,noatime shared:9 - nfs4 10.0.0.9:/models rw,vers=4.2
41 22 0:52 / /srv/old ro,relatime - ext4 /dev/sdb1 ro
torn line
"""
LSPCI = """17:00.0 PCI bridge: Broadcom / LSI PEX890xx PCIe Gen 5 Switch (rev b0) (prog-if 00 [Normal decode])
\tCapabilities: [148 v1] Access Control Services
\t\tACSCap:\tSrcValid+ TransBlk+ ReqRedir+
\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir+

0001:18:00.0 PCI bridge: Intel Corporation Device 352a (prog-if 00 [Normal decode])
\t\tACSCtl:\tSrcValid- TransBlk- ReqRedir-

1a:00.0 3D controller: NVIDIA Corporation GH100 [H100 SXM5 80GB] (rev a1)
\t\tACSCtl:\tSrcValid+ TransBlk-

1b:00.0 PCI bridge: PLX Technology, Inc. Device 8796
\tCapabilities: <access denied>
"""
CHRONY = """Reference ID    : C0A80001 (ntp1.example)
Stratum         : 3
Ref time (UTC)  : Tue Dec 01 06:51:12 2026
System time     : 0.000123456 seconds slow of NTP time
Last offset     : -0.000011111 seconds
Leap status     : Normal
"""
STATUS = """               Local time: Tue 2026-12-01 07:00:00 UTC
System clock synchronized: yes
              NTP service: active
"""
DCB = "pfc-cap 8 macsec-bypass off delay 0\nprio-pfc 0:off 1:off 2:off 3:on 4:off 5:off 6:off 7:off\nrequests 0:0 1:0\n"
MLNX = "PFC configuration:\n\tpriority    0   1   2   3   4\n\tenabled     0   0   0   1   0   \n\tbuffer      0   0\n"
DEVINFO = """hca_id:\tmlx5_0
\ttransport:\t\t\tInfiniBand (0)
\t\tport:\t1
\t\t\tmax_mtu:\t\t4096 (5)
\t\t\tactive_mtu:\t\t2048 (4)
\t\tport:\t2
\t\t\tactive_mtu:\t\t4096 (5)
"""
BOND = "MII Status: up\n\nSlave Interface: eth4\nMII Status: up\n\nSlave Interface: eth5\nMII Status: down\n"


def test_numbers_are_read_and_nothing_else():
    assert [words.whole(text) for text in (" 12\n", "-3", "1.5", "", None, "²", "9" * 5000)] == [12, -3, *[None] * 5]
    assert [words.number(text) for text in ("1.5", "-2e-3", "nan", "inf", "1e999", None)] == [1.5, -0.002, *[None] * 4]


def test_many_names_are_cut():
    assert words.listed(["a", "b"]) == "a, b"
    assert words.listed(["a", "b", "c", "d", "e", "f"]) == "a, b, c, d and 2 more"


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (ToolResult(None, problem="not found"), "the clock is not known: chronyc is not installed"),
        (ToolResult(None, problem="not allowed: Permission denied"), "chronyc may not be run: Permission denied"),
        (ToolResult(None, problem="held up since 12:00"), "chronyc held up since 12:00"),
        (ToolResult(None, problem="no answer within 5 s"), "chronyc gave no answer within 5 s"),
        (ToolResult(1, err="506 Cannot talk to daemon"), "chronyc ended with 1"),
    ],
)
def test_a_tool_that_does_not_tell_is_named_with_its_reason(result, text):
    assert text in words.unanswered("the clock", "chronyc", result).text


def test_limits_of_a_process():
    found = procfs.parse_limits(LIMITS)
    assert found["Max locked memory"] == Limit(None, None)
    assert found["Max open files"] == Limit(1024, 524288)
    assert found["Max nice priority"] == Limit(0, 0)
    assert "Max file locks" not in found


def test_counts_of_the_kernel():
    text = "MemTotal:       1024 kB\nHugePages_Total:       7\nActive(anon):  2 kB\noom_kill 3\nno number\n"
    assert procfs.parse_counts(text) == {"MemTotal": 1048576, "HugePages_Total": 7, "Active(anon)": 2048, "oom_kill": 3}


def test_the_owner_of_a_process():
    root = procfs.parse_owner("Uid:\t0\t0\t0\t0\n")
    user = procfs.parse_owner("Uid:\t0\t1000\t0\t0\nCapEff:\t0000000400000000\n")
    assert root.is_root
    assert root.may(34)
    assert not user.is_root
    assert user.may(34)
    assert not user.may(21)
    assert procfs.parse_owner("").uid is None


def test_listeners():
    assert sockets.parse(TCP) == (Listener("127.0.0.1", 8080), Listener("192.168.0.5", 20000))
    assert sockets.parse(TCP6) == (Listener("::", 8265), Listener("127.0.0.1", 80))
    assert [one.is_local for one in sockets.parse(TCP)] == [True, False]
    assert sockets.listeners(FakeMachine()) is None


def test_ranges_of_ports():
    assert sockets.parse_ranges("32768\t60999\n") == ((32768, 32768), (60999, 60999))
    assert sockets.parse_ranges("8080,9000-9010\n") == ((8080, 8080), (9000, 9010))
    assert sockets.parse_ranges("\n") == ()
    assert sockets.without((20, 30), [(25, 26)]) == ((20, 24), (27, 30))
    assert sockets.without((20, 30), [(10, 22), (30, 40)]) == ((23, 29),)
    assert sockets.without((20, 30), [(1, 100)]) == ()
    assert sockets.without((20, 30), [(1, 5)]) == ((20, 30),)


def test_the_mount_that_holds_a_path():
    found = mounts.parse(MOUNTS)
    models = mounts.holding(found, Path("/srv/two words/models"))
    assert models is not None
    assert (models.kind, models.is_network, models.is_read_only, models.device) == ("nfs4", True, False, "0:51")
    old = mounts.holding(found, Path("/srv/old"))
    assert old is not None
    assert old.is_read_only
    root = mounts.holding(found, Path("/var/lib"))
    assert root is not None
    assert root.source == "/dev/nvme0n1p2"
    assert mounts.holding((), Path("/")) is None


def test_bridges_with_access_control():
    assert pcie.parse_bridges(LSPCI) == (
        Bridge("0000:17:00.0", redirects=True),
        Bridge("0001:18:00.0", redirects=False),
        Bridge("0000:1b:00.0", redirects=None),
    )


def test_the_bridges_above_a_device():
    link = "../../../devices/pci0000:16/0000:16:01.0/0000:17:00.0/0000:1a:00.0"
    machine = FakeMachine(links={"/sys/bus/pci/devices/0000:1a:00.0": link})
    assert pcie.above(machine, "0000:1a:00.0") == ("0000:16:01.0", "0000:17:00.0")
    assert pcie.above(machine, "0000:1b:00.0") == ()


def test_clocks():
    assert clocks.parse_chrony(CHRONY) == Clock("chrony", synchronised=True, offset_s=0.000123456)
    assert clocks.parse_chrony("Leap status     : Not synchronised\n").synchronised is False
    assert clocks.parse_timedatectl(STATUS).synchronised is True
    assert clocks.parse_timedatectl("NTPSynchronized=no\n").synchronised is False
    assert clocks.parse_timedatectl("").synchronised is None
    assert clocks.parse_ntp("associd=0 status=0615 leap_none, sync_ntp,\noffset=-12.5, x=1\n") == Clock(
        "ntpd", synchronised=True, offset_s=0.0125
    )
    assert clocks.parse_ntp("associd=0 leap_alarm, sync_unspec\n").synchronised is False
    assert clocks.parse_ntp("").synchronised is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("       Offset: +1.500ms\n", 0.0015), ("Offset: -2us", 2e-06), ("Offset: 1min 2s", 62.0), ("Offset: n/a", None)],
)
def test_offsets_of_timesyncd(text, seconds):
    assert clocks.parse_timesync_offset(text) == seconds


def test_priorities_that_pause():
    assert qos.parse_dcb_pfc(DCB) == (3,)
    assert qos.parse_dcb_pfc("Attribute read: Operation not supported") is None
    assert qos.parse_mlnx_pfc(MLNX) == (3,)
    assert qos.parse_mlnx_pfc("") is None
    assert qos.parse_mlnx_trust("Priority trust state: dscp\n") == "dscp"


def test_pauses_are_counted_and_their_times_are_not():
    text = "NIC statistics:\n     rx_prio3_pause: 5\n     rx_prio3_pause_duration: 9\n     tx_packets: 3\n"
    assert qos.parse_pauses(text) == {"rx_prio3_pause": 5}


def test_mtus_and_device_nodes_of_adapters():
    assert verbs.parse_active_mtus(DEVINFO) == {"mlx5_0:1": 2048, "mlx5_0:2": 4096}
    machine = FakeMachine(
        files={
            "/sys/class/infiniband_verbs/abi_version": "6",
            "/sys/class/infiniband_verbs/uverbs3/ibdev": "mlx5_0\n",
            "/sys/class/infiniband_mad/umad0/ibdev": "mlx5_0\n",
            "/sys/class/infiniband_mad/umad0/port": "2\n",
        }
    )
    assert verbs.node_of(machine, "uverbs", "mlx5_0") == Path("/dev/infiniband/uverbs3")
    assert verbs.node_of(machine, "umad", "mlx5_0", 1) is None
    assert verbs.node_of(machine, "umad", "mlx5_0", 2) == Path("/dev/infiniband/umad0")


def test_members_of_bonds():
    machine = FakeMachine(files={"/proc/net/bonding/bond0": BOND})
    assert interfaces.parse_bond(BOND) == {"eth4": True, "eth5": False}
    assert interfaces.members(machine, "bond0") == ("eth4", "eth5")
    assert interfaces.members(machine, "eth9") == ("eth9",)


def test_interfaces():
    files = {
        "/sys/class/net/ib0/operstate": "unknown\n",
        "/sys/class/net/ib0/carrier": "1\n",
        "/sys/class/net/ib0/mtu": "2044\n",
        "/sys/class/net/eth0/operstate": "down\n",
        "/sys/class/net/eth0/speed": "-1\n",
    }
    ib0, eth0, none = (interfaces.interface(FakeMachine(files=files), name) for name in ("ib0", "eth0", "eth9"))
    assert (ib0.is_there, ib0.is_up, ib0.mtu) == (True, True, 2044)
    assert (eth0.is_up, eth0.speed_mbps) == (False, None)
    assert (none.is_there, none.is_up) == (False, None)


PARSERS = (
    *(procfs.parse_limits, procfs.parse_counts, procfs.parse_owner, sockets.parse, sockets.parse_ranges, mounts.parse),
    *(
        pcie.parse_bridges,
        clocks.parse_chrony,
        clocks.parse_timedatectl,
        clocks.parse_timesync_offset,
        clocks.parse_ntp,
    ),
    *(qos.parse_dcb_pfc, qos.parse_mlnx_pfc, qos.parse_mlnx_trust, qos.parse_pauses, verbs.parse_active_mtus),
    interfaces.parse_bond,
)
REAL = (LIMITS, TCP, TCP6, MOUNTS, LSPCI, CHRONY, STATUS, DCB, MLNX, DEVINFO, BOND)


@st.composite
def mangled(draw):
    """A real text with a part of it gone and other signs in its place."""
    text = draw(st.sampled_from(REAL))
    begin, end = sorted(draw(st.tuples(*[st.integers(0, len(text))] * 2)))
    return text[:begin] + draw(st.text(string.printable + "²٣é", max_size=30)) + text[end:]


@given(mangled())
def test_no_parser_raises(text):
    for parse in PARSERS:
        parse(text)


def test_ports_as_ibstat_tells_them():
    text = "CA 'mlx5_0'\n\tPort 1:\n\t\tState: Active\n\t\tRate: 40 (FDR10)\n\tPort 2:\n\t\tState: Down\nCA 'x'\n"
    assert ibstat.parse(text) == (
        ibstat.SeenPort("mlx5_0:1", "active", 40.0),
        ibstat.SeenPort("mlx5_0:2", "down", None),
    )


@given(st.text())
def test_whatever_ibstat_prints_is_read(text):
    assert all(":" in port.name for port in ibstat.parse(text))
