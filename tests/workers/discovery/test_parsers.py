"""Each parser eats what its source prints, the odd and the torn included."""

import pytest

from llmgw.core.units import GIB, MIB, Bytes
from workers.discovery import cards, cgroups, meminfo, nvidia_smi, nvml, os_release
from workers.discovery.cards import Card
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


@pytest.mark.parametrize(
    ("name", "mib", "expected"),
    [
        ("NVIDIA A100-SXM4-40GB", 40960, "a100-40g"),
        ("NVIDIA A100-SXM4-80GB", 81920, "a100-80g"),
        ("NVIDIA H100 80GB HBM3", 81559, "h100-80g"),
        ("NVIDIA H100 NVL", 95830, "h100-94g"),
        ("NVIDIA H200", 143771, "h200-140g"),
        ("NVIDIA GH200 480GB", 97871, "gh200-96g"),
        ("NVIDIA L40S", 46068, "l40s-45g"),
        ("NVIDIA L4", 23034, "l4-22g"),
        ("NVIDIA A10G", 23028, "a10g-22g"),
        ("Tesla T4", 15360, "t4-15g"),
        ("Tesla V100S-PCIE-32GB", 32510, "v100s-32g"),
        ("NVIDIA GeForce RTX 4090", 24564, "rtx4090-24g"),
        ("NVIDIA RTX 6000 Ada Generation", 49140, "rtx6000ada-48g"),
        ("NVIDIA RTX A6000", 49140, "a6000-48g"),
        ("NVIDIA", 49140, None),
    ],
)
def test_a_class_is_the_product_and_the_drivers_own_gib(name, mib, expected):
    assert cards.gpu_class(name, Bytes(mib * MIB)) == expected


def test_nvidia_smi_where_all_is_well():
    text = "GPU-aaa, NVIDIA H100 80GB HBM3, 81559\nGPU-bbb, NVIDIA L40S, 46068\n"
    assert nvidia_smi.parse_cards(text) == (
        Card("GPU-aaa", "NVIDIA H100 80GB HBM3", Bytes(81559 * MIB)),
        Card("GPU-bbb", "NVIDIA L40S", Bytes(46068 * MIB)),
    )


@pytest.mark.parametrize(
    ("line", "card"),
    [
        ("GPU-a, NVIDIA GB10, [N/A]", Card("GPU-a", "NVIDIA GB10", None)),
        ("GPU-a, NVIDIA GB10, [Not Supported]", Card("GPU-a", "NVIDIA GB10", None)),
        ("GPU-a, [N/A], [N/A]", Card("GPU-a", None, None)),
        ("[N/A], [N/A], [N/A]", Card(None, None, None)),
        ("GPU-a, NVIDIA A40, [GPU is lost]", Card("GPU-a", "NVIDIA A40", None, dead="GPU is lost")),
        ("GPU-a, ERR!, 46068", Card("GPU-a", None, Bytes(46068 * MIB), dead="ERR!")),
        ("[Unknown Error], [Unknown Error], [Unknown Error]", Card(None, None, None, dead="Unknown Error")),
        ("GPU-a, A name, with commas, 100", Card("GPU-a", "A name, with commas", Bytes(100 * MIB))),
    ],
)
def test_nvidia_smi_where_it_is_not(line, card):
    assert nvidia_smi.parse_cards(line) == (card,)


@pytest.mark.parametrize("text", ["", "\n\n", "No devices were found\n", "garbage"])
def test_nvidia_smi_where_nothing_is_said(text):
    assert nvidia_smi.parse_cards(text) == ()


def test_mig_modes():
    text = "GPU-a, Enabled\nGPU-b, Disabled\nGPU-c, [N/A]\n"
    assert nvidia_smi.parse_mig_modes(text) == {"GPU-a": True, "GPU-b": False, "GPU-c": False}


@pytest.mark.parametrize("text", ["", "garbage", "{}", '[{"uuid": 3}]'])
def test_what_is_not_from_our_child_is_none_of_it(text):
    assert nvml.parse(text) is None
