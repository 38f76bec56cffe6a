"""Classes by the driver's own figures."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.core.units import GIB, MIB, Bytes
from workers.discovery.nvidia.classes import capability, gpu_class, is_unified, is_vgpu_on_mig, mig_class

PRODUCTS = [
    ("NVIDIA A100-SXM4-40GB", 40960, "a100-40g", "8.0"),
    ("NVIDIA A100-SXM4-80GB", 81920, "a100-80g", "8.0"),
    ("NVIDIA H100 80GB HBM3", 81559, "h100-80g", "9.0"),
    ("NVIDIA H100 NVL", 95830, "h100-94g", "9.0"),
    ("NVIDIA H200", 143771, "h200-140g", "9.0"),
    ("NVIDIA B200", 183359, "b200-179g", "10.0"),
    ("NVIDIA GB200", 189471, "gb200-185g", "10.0"),
    ("NVIDIA GB300", 284208, "gb300-278g", "10.3"),
    ("NVIDIA GH200 480GB", 97871, "gh200-96g", "9.0"),
    ("NVIDIA L40S", 46068, "l40s-45g", "8.9"),
    ("NVIDIA L4", 23034, "l4-22g", "8.9"),
    ("NVIDIA A10", 23028, "a10-22g", "8.6"),
    ("NVIDIA A10G", 23028, "a10g-22g", "8.6"),
    ("NVIDIA A40", 46068, "a40-45g", "8.6"),
    ("Tesla T4", 15360, "t4-15g", "7.5"),
    ("NVIDIA GeForce RTX 4090", 24564, "rtx4090-24g", "8.9"),
    ("NVIDIA GeForce RTX 3090", 24576, "rtx3090-24g", "8.6"),
    ("NVIDIA GeForce RTX 5090", 32607, "rtx5090-32g", "12.0"),
    ("NVIDIA RTX 6000 Ada Generation", 49140, "rtx6000ada-48g", "8.9"),
    ("NVIDIA RTX A6000", 49140, "a6000-48g", "8.6"),
    ("NVIDIA RTX A6000", 46068, "a6000-45g", "8.6"),
    ("Tesla V100S-PCIE-32GB", 32510, "v100s-32g", "7.0"),
    ("NVIDIA TITAN V", 12288, "titanv-12g", "7.0"),
    ("Quadro RTX 6000", 24576, "rtx6000-24g", "7.5"),
    ("Quadro P2000", 5120, "p2000-5g", "6.1"),
    ("GRID A100-10C", 10240, "a100-10c-10g", "8.0"),
    ("NVIDIA L40S-48Q", 49152, "l40s-48q-48g", "8.9"),
    ("GRID A100X-1-5C", 5120, "a100x-1-5c-5g", "8.0"),
    ("Graphics Device", 5912, "graphics-device-6g", None),
    ("NVIDIA Graphics Device", 49152, "nvidia-graphics-device-48g", None),
    ("NVIDIA A100 80GB PCIe", 81920, "a100-80g", "8.0"),
    ("NVIDIA A100-PCIE-40GB", 40536, "a100-40g", "8.0"),
    ("NVIDIA H100 PCIe", 81559, "h100-80g", "9.0"),
    ("NVIDIA H200 NVL", 143771, "h200-140g", "9.0"),
    ("NVIDIA GH200 144G HBM3e", 146831, "gh200-143g", "9.0"),
    ("NVIDIA H20", 97871, "h20-96g", "9.0"),
    ("NVIDIA B300 SXM6 AC", 275040, "b300-269g", "10.3"),
    ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 97887, "rtxpro6000blackwellserver-96g", "12.0"),
    ("NVIDIA RTX 4000 SFF Ada Generation", 20475, "rtx4000sffada-20g", "8.9"),
    ("NVIDIA RTX 5000 Ada Generation", 32760, "rtx5000ada-32g", "8.9"),
    ("Quadro RTX 5000", 16384, "rtx5000-16g", "7.5"),
    ("Quadro RTX 4000", 8192, "rtx4000-8g", "7.5"),
    ("NVIDIA RTX A1000", 8188, "a1000-8g", "8.6"),
    ("NVIDIA RTX A3000 Laptop GPU", 6144, "a3000laptop-6g", "8.6"),
    ("NVIDIA RTX A5500", 24564, "a5500-24g", "8.6"),
    ("NVIDIA GeForce RTX 3080 Ti", 12288, "rtx3080ti-12g", "8.6"),
    ("NVIDIA GeForce GTX 1660 Ti", 5941, "gtx1660ti-6g", "7.5"),
    ("Tesla V100-SXM2-16GB", 16160, "v100-16g", "7.0"),
    ("Tesla P100-PCIE-16GB", 16280, "p100-16g", "6.0"),
    ("Tesla M60", 7618, "m60-7g", "5.2"),
    ("NVIDIA A30", 24576, "a30-24g", "8.0"),
    ("NVIDIA A40-48Q", 49152, "a40-48q-48g", "8.6"),
    ("NVIDIA A100-1-5CME", 5120, "a100-1-5cme-5g", "8.0"),
    ("NVIDIA H100XM-80C", 81920, "h100xm-80c-80g", "9.0"),
    ("NVIDIA RTX6000-Ada-48Q", 49152, "rtx6000ada-48q-48g", "8.9"),
    ("NVIDIA RTX Pro 6000 Blackwell DC-1-24Q", 24576, "rtxpro6000blackwelldc-1-24q-24g", "12.0"),
    ("Orin (nvgpu)", 30697, "orin-30g", "8.7"),
]


@pytest.mark.parametrize(("name", "mib", "called", "able"), PRODUCTS)
def test_a_class_is_the_product_and_the_drivers_gib(name, mib, called, able):
    assert gpu_class(name, Bytes(mib * MIB)) == called
    assert capability(name) == able


def test_an_instance_is_named_after_its_card_and_profile():
    assert mig_class("NVIDIA A100-SXM4-80GB", Bytes(81920 * MIB), "3g.40gb") == "a100-80g-mig-3g.40gb"
    assert mig_class("NVIDIA H100 80GB HBM3", Bytes(81559 * MIB), "1g.10gb+me") == "h100-80g-mig-1g.10gb+me"


@pytest.mark.parametrize(
    ("name", "told", "called"),
    [
        ("NVIDIA A100-SXM4-80GB", (81920, 81251, 81038), "a100-80g"),
        ("NVIDIA A100-SXM4-40GB", (40960, 40536, 40537), "a100-40g"),
        ("Tesla T4", (15360, 15109, 15079), "t4-15g"),
        ("NVIDIA L4", (23034, 23040, 22731), "l4-22g"),
        ("NVIDIA A10", (23028, 22731), "a10-22g"),
        ("NVIDIA H200", (143771, 143156), "h200-140g"),
    ],
)
def test_a_class_holds_between_drivers(name, told, called):
    assert {gpu_class(name, Bytes(mib * MIB)) for mib in told} == {called}


@given(st.text(), st.integers(0, 1 << 42))
def test_whatever_a_card_is_called_its_class_is_one_plain_word(name, memory):
    called = gpu_class(name, Bytes(memory))
    assert called is None or re.fullmatch("[a-z0-9][a-z0-9.-]*", called)
    capability(name), is_unified(name), is_vgpu_on_mig(name)
    mig_class(name, None, "1g.5gb")


def test_in_a_container_the_cards_memory_is_taken_from_its_name():
    assert mig_class("NVIDIA A100-SXM4-40GB", None, "1g.5gb") == "a100-40g-mig-1g.5gb"
    assert mig_class("NVIDIA H200", None, "1g.18gb") == "h200-140g-mig-1g.18gb"
    assert mig_class("NVIDIA GH200 480GB", None, "1g.24gb") == "gh200-96g-mig-1g.24gb", "480 GB are the machine's"
    assert mig_class("NVIDIA H100 PCIe", None, "1g.10gb") == "h100-80g-mig-1g.10gb"
    assert mig_class("NVIDIA GB200", None, "1g.23gb") == "gb200-185g-mig-1g.23gb"
    assert mig_class("NVIDIA New", None, "1g.5gb") == "new-mig-1g.5gb"


def test_some_have_no_memory_of_their_own():
    assert is_unified("NVIDIA GB10")
    assert is_unified("NVIDIA Graphics Device", "12.1")
    assert not is_unified("NVIDIA GH200 480GB", "9.0")
    assert gpu_class("NVIDIA GB10", Bytes(119 * GIB)) == "gb10-119g"


def test_a_virtual_card_on_an_instance_is_known_by_its_name():
    assert is_vgpu_on_mig("GRID A100X-1-5C")
    assert is_vgpu_on_mig("NVIDIA A100-1-5CME")
    assert not is_vgpu_on_mig("GRID A100-10C")
    assert not is_vgpu_on_mig("NVIDIA A100-SXM4-80GB")
