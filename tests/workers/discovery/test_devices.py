"""What placement is offered of the cards, and what is kept from it with which reason."""

import msgspec
import pytest

from llmgw.core.hardware.findings import Finding, Severity
from llmgw.core.hardware.gpus import Gpu, MigInstance
from llmgw.core.units import GIB, MIB, Bytes, Seconds
from workers.discovery.devices import offered, uses_host_memory
from workers.discovery.nvidia.cards import Cards

CARD = Gpu(
    index=3,
    uuid="GPU-3",
    name="NVIDIA A100-SXM4-80GB",
    device_class="a100-80g",
    memory_total_bytes=81920 * MIB,
    mig_enabled=False,
    mig_enabled_pending=False,
)
PART = MigInstance(slot=1, uuid="MIG-1", profile="3g.40gb", memory_total_bytes=40192 * MIB)
CUT = msgspec.structs.replace(CARD, mig_enabled=True, mig_enabled_pending=True, instances=(PART,))


def devices(*gpus, findings=(), stale_since=None):
    return offered(
        Cards(gpus=gpus),
        findings=findings,
        host_memory=Bytes(120 * GIB),
        reserve=Bytes(8 * GIB),
        stale_since=stale_since,
    )


def ailment(*gpus, **more):
    (device,) = devices(*gpus, **more)
    return device.unhealthy_code


def change(gpu=CARD, **facts):
    return msgspec.structs.replace(gpu, **facts)


def test_a_card_is_offered_as_a_whole():
    (device,) = devices(CARD)
    assert (device.id, device.kind, device.device_class, device.memory >> 30) == ("GPU-3", "gpu", "a100-80g", 80)
    assert (device.index, device.label, device.card, device.unhealthy) == (3, "3", None, None)


@pytest.mark.parametrize(
    ("facts", "untold"),
    [
        ({"memory_total_bytes": None}, "memory"),
        ({"device_class": None}, "name"),
        ({"device_class": None, "memory_total_bytes": 0}, "name and memory"),
    ],
)
def test_what_is_not_known_of_a_card_is_named(facts, untold):
    (device,) = devices(change(**facts))
    assert (device.unhealthy_code, device.unhealthy) == ("device.unknown", f"the driver does not tell its {untold}")


def test_a_card_that_is_cut_is_offered_by_its_instances():
    (device,) = devices(CUT)
    assert (device.id, device.kind, device.device_class) == ("MIG-1", "mig", "a100-80g-mig-3g.40gb")
    assert (device.index, device.label, device.card) == (1301, "3/mig1", "GPU-3")
    assert (device.memory, device.unhealthy) == (40192 * MIB, None)


def test_an_instance_has_its_memory_though_the_cards_may_not_be_read():
    (device,) = devices(change(CUT, memory_total_bytes=None))
    assert (device.device_class, device.memory, device.unhealthy) == ("a100-80g-mig-3g.40gb", 40192 * MIB, None)


@pytest.mark.parametrize(
    ("gpu", "code"),
    [
        (change(CUT, instances=()), "device.mig-empty"),
        (change(CARD, mig_enabled_pending=True), "device.mig-pending"),
        (change(CUT, mig_enabled_pending=False), "device.mig-pending"),
        (change(CARD, failed="GPU is lost"), "device.unhealthy.lost"),
        (change(CARD, failed="GPU requires reset"), "device.unhealthy.reset"),
        (change(CARD, failed="GPU requires restart"), "device.unhealthy.reset"),
        (change(CARD, memory_total_bytes=None), "device.unknown"),
        (change(CARD, name=None, device_class=None), "device.unknown"),
        (change(CUT, name="GRID A100X-1-5C", virtualization="vgpu", instances=()), ""),
        (change(CARD, mig_enabled=None, mig_enabled_pending=None), ""),
    ],
)
def test_why_a_card_may_not_be_used(gpu, code):
    assert ailment(gpu) == code


def test_a_finding_that_excludes_keeps_a_card_and_its_instances_out():
    ecc = Finding("device.unhealthy.ecc", "2 errors", severity=Severity.FAIL, about="GPU-3", excludes=True)
    assert ailment(CARD, findings=[ecc]) == "device.unhealthy.ecc"
    assert ailment(CUT, findings=[ecc]) == "device.unhealthy.ecc"
    held = msgspec.structs.replace(ecc, code="device.foreign-memory", about="MIG-1")
    assert ailment(CUT, findings=[held]) == "device.foreign-memory"
    assert ailment(CARD, findings=[msgspec.structs.replace(ecc, excludes=False)]) == ""
    assert ailment(CARD, findings=[msgspec.structs.replace(ecc, about="GPU-4")]) == ""


def test_what_was_told_long_ago_is_not_placeable():
    (device,) = devices(CARD, stale_since=Seconds(1_000_000.0))
    assert device.unhealthy_code == "device.stale"


def test_a_card_without_a_name_is_no_device():
    assert devices(change(CARD, uuid=None)) == ()
    assert devices(change(CUT, instances=(msgspec.structs.replace(PART, uuid=None),))) == ()


def test_a_card_without_memory_of_its_own_has_the_machines_less_a_reserve():
    spark = change(CARD, name="NVIDIA GB10", memory_total_bytes=None, memory_is_unified=True, mig_enabled=None)
    (device,) = devices(spark)
    assert (device.memory >> 30, device.device_class, device.unhealthy) == (112, "gb10-120g", None)
    assert uses_host_memory(Cards(gpus=(spark,)))
    assert not uses_host_memory(Cards(gpus=(CARD,)))
