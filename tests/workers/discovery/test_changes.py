"""What of an inventory is news to the control plane and to the log, and what is mere fluctuation."""

import msgspec
import pytest

from llmgw.core.hardware.fabrics import Attachment
from llmgw.core.hardware.findings import Finding, Problem, Severity
from llmgw.core.hardware.gpus import (
    Driver,
    Ecc,
    FabricState,
    Gpu,
    GpuFabric,
    MigInstance,
    NvLink,
    Process,
    RemappedRows,
)
from llmgw.core.hardware.network import Gid, Port, PortState, SubnetManager
from llmgw.core.units import GIB, Bytes
from llmgw.core.wire import Inventory
from llmgw.core.world import Device, DeviceKind
from tests.builders import NO_DRIVER
from workers.discovery.changes import Masters, matters, told

CARD = "GPU-11111111-2222-3333-4444-555555555555"
PENDING = Finding("device.unhealthy.remap", "GPU 0: 3 rows wait to be remapped", about=CARD, severity=Severity.FAIL)
UNKNOWN = Problem(
    code="nvml.field-failed", fact="gpu 0: temperature", text="temperature failed", literal="Unknown Error"
)
MASTER = SubnetManager(guid="0x0002c90300000001", state="master", activity=100)
BEFORE = Inventory(
    devices=(Device(CARD, DeviceKind.GPU, "h100-80g", Bytes(80 * GIB)),),
    cpu_count=8,
    memory_total=Bytes(64 * GIB),
    memory_available=Bytes(32 * GIB),
    disk_total=Bytes(1000 * GIB),
    disk_free=Bytes(500 * GIB),
    driver=Driver(version="570.124.06", source="nvml"),
    gpus=(
        Gpu(
            index=0,
            uuid=CARD,
            temperature_celsius=40,
            pcie_width=16,
            ecc=Ecc(enabled=True, uncorrected_volatile=0),
            remapped_rows=RemappedRows(corrected=0, uncorrected=0, pending=False),
            nvlinks=(NvLink(number=0, active=True, errors={"crc": 0}),),
            instances=(MigInstance(slot=0, uuid="MIG-1", memory_free_bytes=GIB),),
        ),
    ),
    ports=(
        Port(
            hca="mlx5_0", state=PortState.ACTIVE, rate_gbps=400.0, counters={"symbol_error": 1}, subnet_manager=MASTER
        ),
    ),
    findings=(PENDING,),
    problems=(UNKNOWN,),
)


def with_gpu(**change):
    return msgspec.structs.replace(BEFORE, gpus=(msgspec.structs.replace(BEFORE.gpus[0], **change),))


def with_port(**change):
    return msgspec.structs.replace(BEFORE, ports=(msgspec.structs.replace(BEFORE.ports[0], **change),))


def with_finding(**change):
    return msgspec.structs.replace(BEFORE, findings=(msgspec.structs.replace(PENDING, **change),))


@pytest.mark.parametrize(
    ("change", "is_news"),
    [
        ({}, False),
        ({"memory_available": 31 * GIB}, False),
        ({"memory_available": 28 * GIB}, True),
        ({"disk_free": 460 * GIB}, False),
        ({"disk_free": 400 * GIB}, True),
        ({"disk_free": None}, True),
        ({"cpu_count": 4}, True),
        ({"engines": {"llamacpp": "/opt/llama-server"}}, True),
        ({"problems": (NO_DRIVER,)}, True),
        ({"devices": ()}, True),
        ({"driver": Driver(version="570.124.06", source="nvidia-smi")}, True),
        ({"gpus_stale_since": 1_000_000.0}, True),
        ({"fabrics": (Attachment(name="compute", identities=("sm:0x1",)),)}, True),
    ],
)
def test_of_the_machine_only_what_matters_is_news(change, is_news):
    assert matters(BEFORE, msgspec.structs.replace(BEFORE, **change)) is is_news


@pytest.mark.parametrize(
    "after",
    [
        with_gpu(temperature_celsius=70, power_watts=300.0, clock_sm_mhz=1980, utilization_percent=100),
        with_gpu(memory_used_bytes=GIB, memory_free_bytes=79 * GIB, performance_state="P0"),
        with_gpu(pcie_width=8, pcie_generation=1, throttle_reasons=("idle",)),
        with_gpu(processes=(Process(pid=1, memory_bytes=GIB),)),
        with_gpu(ecc=Ecc(enabled=True, uncorrected_volatile=7)),
        with_gpu(remapped_rows=RemappedRows(corrected=9, uncorrected=1, pending=False)),
        with_gpu(nvlinks=(NvLink(number=0, active=True, errors={"crc": 99}),)),
        with_gpu(instances=(MigInstance(slot=0, uuid="MIG-1", memory_free_bytes=0),)),
        with_port(counters={"symbol_error": 2}, counters_since={"symbol_error": 1}, counters_since_s=60.0),
        with_port(subnet_manager=msgspec.structs.replace(MASTER, activity=200)),
        with_finding(text="GPU 0: 4 rows wait to be remapped", literal="Pending : 4"),
    ],
)
def test_readings_and_counters_are_no_news(after):
    assert not matters(BEFORE, after)


@pytest.mark.parametrize(
    "after",
    [
        with_gpu(uuid="GPU-other"),
        with_gpu(failed="GPU is lost"),
        with_gpu(mig_enabled_pending=True),
        with_gpu(ecc=Ecc(enabled=False)),
        with_gpu(remapped_rows=RemappedRows(pending=True)),
        with_gpu(nvlinks=(NvLink(number=0, active=False),)),
        with_gpu(fabric=GpuFabric(state=FabricState.IN_PROGRESS)),
        with_gpu(instances=(MigInstance(slot=1, uuid="MIG-2"),)),
        with_port(state=PortState.DOWN),
        with_port(rate_gbps=200.0),
        with_port(subnet_manager=msgspec.structs.replace(MASTER, guid="0x0002c90300000002")),
        with_port(gids=(Gid(index=3, gid="0000:0000:0000:0000:0000:ffff:0a00:0001", kind="roce-v2"),)),
        with_finding(severity=Severity.WARN),
        with_finding(about="GPU-other"),
        with_finding(text="GPU 0: remapping has failed"),
    ],
)
def test_what_the_hardware_is_and_how_well_it_is_is_news(after):
    assert matters(BEFORE, after)


# --- in words -----------------------------------------------------------------------------------------------------


def said(before, after):
    return [(news.event, dict(news.facts)) for news in told(before, after)]


def test_at_the_first_look_every_finding_and_every_unknown_fact_is_said():
    assert [news.event for news in told(None, BEFORE)] == ["finding", "not known"]
    finding = told(None, BEFORE)[0]
    assert finding.is_warning
    assert (finding.facts["text"], finding.facts["about"]) == (PENDING.text, CARD)


def test_what_was_said_is_not_said_again():
    assert said(BEFORE, with_finding(text="GPU 0: 4 rows wait to be remapped")) == []


def test_a_finding_that_is_gone_is_said_once():
    cured = msgspec.structs.replace(BEFORE, findings=())
    assert said(BEFORE, cured) == [("finding is gone", {"code": "device.unhealthy.remap", "about": CARD})]
    assert said(cured, cured) == []


TAKEN_OVER = with_port(subnet_manager=msgspec.structs.replace(MASTER, guid="0x0002c90300000002"))
SILENT = with_port(subnet_manager=None)


@pytest.mark.parametrize("looks", [(BEFORE, TAKEN_OVER), (BEFORE, SILENT, SILENT, TAKEN_OVER)])
def test_another_subnet_manager_is_said_once_from_which_to_which(looks):
    masters = Masters()
    *first, last = [masters.told(look) for look in looks]
    assert first == [()] * len(first)
    (news,) = last
    facts = {"port": "mlx5_0:1", "from": "0x0002c90300000001", "to": "0x0002c90300000002"}
    assert (news.is_warning, news.event, news.facts) == (True, "subnet manager changed", facts)
    assert masters.told(TAKEN_OVER) == ()


def test_a_subnet_manager_that_comes_back_is_no_change():
    masters = Masters()
    assert [masters.told(look) for look in (BEFORE, SILENT, BEFORE)] == [(), (), ()]


def test_a_downgrade_to_nvidia_smi_is_said_with_its_reason_and_so_is_its_end():
    failed = Problem(code="nvml.exit", fact="gpus", text="NVML ended with 1")
    fallen = msgspec.structs.replace(
        BEFORE, driver=Driver(version="570.124.06", source="nvidia-smi"), problems=(UNKNOWN, failed)
    )
    (news, unknown) = told(BEFORE, fallen)
    assert (news.event, news.is_warning) == ("cards are told by nvidia-smi instead of NVML", True)
    assert news.facts == {"why": "NVML ended with 1"}
    assert unknown.event == "not known"
    assert [event for event, _ in said(fallen, BEFORE)] == ["cards are told by NVML again"]
