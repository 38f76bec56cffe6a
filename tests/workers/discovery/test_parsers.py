"""Each parser eats what its source prints, the odd and the torn included."""

import pytest

from llmgw.core.units import GIB, Bytes
from workers.discovery import cgroups, meminfo, os_release
from workers.discovery.meminfo import Memory


def test_meminfo():
    text = (
        "MemTotal:       16384000 kB\nMemFree:         1000 kB\nMemAvailable:    8192000 kB\nHugePages_Total:       0\n"
    )
    assert meminfo.parse(text) == Memory(Bytes(16384000 * 1024), Bytes(8192000 * 1024))
    assert meminfo.parse("") == Memory(None, None)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('NAME="Debian GNU/Linux"\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n', "Debian GNU/Linux 12 (bookworm)"),
        ("NAME=Alpine\nVERSION_ID=3\n", "Alpine"),
        ("nonsense", ""),
    ],
)
def test_os_release(text, name):
    assert os_release.parse(text) == name


def test_the_groups_of_a_process():
    assert cgroups.parse("0::/system.slice/llmgw.service\n") == {"": "/system.slice/llmgw.service"}
    assert cgroups.parse("4:memory:/a\n3:cpu,cpuacct:/b\n1:name=systemd:/\n") == {
        "memory": "/a",
        "cpu": "/b",
        "cpuacct": "/b",
        "name=systemd": "/",
    }


@pytest.mark.parametrize(
    ("text", "quota"),
    [("150000 100000\n", 1.5), ("max 100000\n", None), ("-1 100000", None), ("", None), ("1 0", None)],
)
def test_a_quota_of_cpus(text, quota):
    assert cgroups.parse_quota(text) == quota


@pytest.mark.parametrize(
    ("text", "limit"), [("1073741824\n", GIB), ("max\n", None), ("9223372036854771712\n", None), ("", None)]
)
def test_a_limit_of_memory(text, limit):
    assert cgroups.parse_limit(text) == limit
