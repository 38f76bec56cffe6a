"""What is wrong with a card, what that costs, and whether it keeps work away."""

import msgspec
import pytest

from llmgw.core.hardware.gpus import (
    Ecc,
    FabricState,
    Gpu,
    GpuFabric,
    MigInstance,
    NvLink,
    Process,
    RemappedRows,
    RetiredPages,
)
from llmgw.core.units import GIB, MIB
from workers.discovery.nvidia.health import CODES, findings
from workers.discovery.nvidia.kernel_log import events

CARD = Gpu(
    index=3,
    uuid="GPU-3",
    name="NVIDIA H100 80GB HBM3",
    pci_address="0000:9b:00.0",
    memory_total_bytes=80 * GIB,
    memory_used_bytes=4 * MIB,
    memory_reserved_bytes=550 * MIB,
    processes=(),
)
CLEAN = RemappedRows(pending=False, failed=False)


def found(log="", **facts):
    """(code, severity, whether it excludes) of each finding about the card with these facts."""
    told = findings((msgspec.structs.replace(CARD, **facts),), events(log.splitlines()))
    return [(finding.code.removeprefix("device."), str(finding.severity), finding.excludes) for finding in told]


def test_a_healthy_card_has_no_finding():
    assert found() == []
    assert found(ecc=Ecc(uncorrected_volatile=0), remapped_rows=CLEAN, recovery_action="none") == []


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        ({"failed": "GPU is lost"}, ("unhealthy.lost", "fail", True)),
        ({"failed": "GPU requires reset"}, ("unhealthy.reset", "fail", True)),
        ({"ecc": Ecc(uncorrected_volatile=2)}, ("unhealthy.ecc", "fail", True)),
        (
            {"ecc": Ecc(uncorrected_volatile=2), "remapped_rows": CLEAN, "recovery_action": "none"},
            ("unhealthy.ecc", "warn", False),
        ),
        ({"ecc": Ecc(sram_threshold_exceeded=True)}, ("unhealthy.worn", "fail", True)),
        ({"ecc": Ecc(unrepairable_memory=True)}, ("unhealthy.worn", "fail", True)),
        ({"ecc": Ecc(channel_repair_pending=True)}, ("unhealthy.repair", "warn", False)),
        ({"remapped_rows": RemappedRows(pending=True)}, ("unhealthy.remap", "fail", True)),
        ({"remapped_rows": RemappedRows(failed=True)}, ("unhealthy.remap", "fail", True)),
        ({"remapped_rows": RemappedRows(banks_without_spares=1)}, ("unhealthy.worn", "warn", False)),
        ({"retired_pages": RetiredPages(pending=True)}, ("unhealthy.retired-pages", "fail", True)),
        ({"recovery_action": "gpu-reset"}, ("unhealthy.recovery", "fail", True)),
        ({"recovery_action": "drain-p2p"}, ("unhealthy.recovery", "fail", True)),
        ({"inforom_ok": False}, ("inforom", "warn", False)),
        ({"vgpu_licence": "unlicensed (restricted)"}, ("unhealthy.vgpu-unlicensed", "fail", True)),
        ({"vgpu_licence": "unlicensed (unrestricted)"}, ("unhealthy.vgpu-unlicensed", "warn", False)),
        ({"compute_mode": "prohibited"}, ("compute-mode", "fail", True)),
        ({"throttle_reasons": ("hw-thermal", "idle")}, ("throttled", "warn", False)),
        ({"pcie_width": 8, "pcie_width_max": 16}, ("pcie-width", "warn", False)),
        ({"nvlinks": (NvLink(number=0, active=True), NvLink(number=1, active=False))}, ("nvlink-down", "warn", False)),
    ],
)
def test_each_ailment_has_its_code(facts, told):
    assert found(**facts) == [told]


@pytest.mark.parametrize(
    ("fabric", "told"),
    [
        (GpuFabric(state=FabricState.COMPLETED, status="success"), None),
        (GpuFabric(state=FabricState.NOT_SUPPORTED), None),
        (GpuFabric(state=FabricState.COMPLETED, status="insufficient resources"), ("fail", True)),
        (GpuFabric(state=FabricState.IN_PROGRESS), ("warn", True)),
        (GpuFabric(state=FabricState.NOT_STARTED), ("fail", True)),
        (GpuFabric(state=FabricState.COMPLETED, status="success", health="unhealthy"), ("fail", True)),
        (GpuFabric(state=FabricState.COMPLETED, status="success", health="limited-capacity"), ("warn", False)),
        (GpuFabric(state=FabricState.COMPLETED, status="success", bandwidth="degraded"), ("warn", False)),
        (
            GpuFabric(state=FabricState.COMPLETED, status="success", incorrect_configuration="no partition"),
            ("fail", True),
        ),
    ],
)
def test_a_fabric_is_judged_by_what_its_words_mean(fabric, told):
    assert found(fabric=fabric) == ([("unhealthy.fabric", *told)] if told else [])


def test_a_card_of_a_rack_must_know_its_fabric():
    broken = GpuFabric(state=FabricState.NOT_SUPPORTED, status="success")
    assert found(name="NVIDIA GB200", fabric=broken) == [("unhealthy.fabric", "warn", False)]


# --- Xids


def xid(number, at="0000:9b:00"):
    return f"[1.0] NVRM: Xid (PCI:{at}): {number}, pid=1, name=python, …\n"


@pytest.mark.parametrize(
    ("log", "facts", "told"),
    [
        (xid(31), {}, []),
        (xid(63), {}, [("warn", False)]),
        (xid(119), {}, [("fail", True)]),
        (xid(119), {"recovery_action": "none"}, [("warn", False)]),
        (xid(48, "0000:9c:00"), {}, []),
        (xid(119) + "NVRM: loading NVIDIA UNIX x86_64\n", {}, []),
        (xid(119) * 3, {}, [("fail", True)]),
    ],
)
def test_an_xid_speaks_of_its_own_card_until_the_driver_is_loaded_anew(log, facts, told):
    assert found(log, **facts) == [("unhealthy.xid", *each) for each in told]


FATAL, HARMLESS = (f"NVRM: Xid (PCI:0000:9b:00): 149, NETIR_LINK_EVT {word} XC0\n" for word in ("Fatal", "Nonfatal"))


@pytest.mark.parametrize(
    ("log", "facts", "told"),
    [
        (FATAL, {}, ("fail", True)),
        (HARMLESS, {}, ("warn", False)),
        (FATAL + HARMLESS, {}, ("fail", True)),
        (FATAL + HARMLESS, {"recovery_action": "none"}, ("warn", False)),
        (xid(92).replace("python", "Fatal"), {}, ("warn", False)),
    ],
)
def test_a_fatal_error_of_nvlink_keeps_work_away_whatever_follows_it(log, facts, told):
    assert found(log, **facts) == [("unhealthy.xid", *told)]


@pytest.mark.parametrize(("number", "cure"), [(79, "power-cycle the machine"), (119, "nvidia-smi -r -i 3")])
def test_a_card_that_fell_off_the_bus_is_not_reset_but_power_cycled(number, cure):
    (finding,) = findings((CARD,), events(xid(number).splitlines()))
    assert cure in finding.cure


def test_the_lost_card_is_told_with_its_xid():
    assert found(xid(79), failed="GPU is lost") == [("unhealthy.lost", "fail", True), ("unhealthy.xid", "fail", True)]


def test_a_fatal_error_of_a_switch_is_told():
    log = "nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 48 LTSSM Fault Up\n"
    assert found(log) == [("nvswitch.sxid", "fail", False)]


# --- memory of others


def process(pid=1, gib=20, **more):
    return Process(pid=pid, name="python3", memory_bytes=None if gib is None else gib * GIB, **more)


@pytest.mark.parametrize(
    ("facts", "told", "words"),
    [
        ({"memory_used_bytes": 400 * MIB}, None, ""),
        ({"memory_used_bytes": 20 * GIB, "processes": (process(),)}, ("fail", True), "pid 1 (python3, 20.0 GiB)"),
        (
            {"memory_used_bytes": GIB, "processes": (process(gib=1),)},
            ("warn", False),
            "1.0 GiB of memory are held by pid 1",
        ),
        ({"memory_used_bytes": 20 * GIB}, ("fail", True), "nobody that is listed"),
        ({"memory_used_bytes": 20 * GIB, "processes": None}, ("fail", True), "whom the driver does not say"),
        ({"memory_used_bytes": 20 * GIB, "processes": (process(gib=None),)}, ("fail", True), "unknown"),
        ({"memory_used_bytes": 20 * GIB, "processes": (process(ours=True),)}, None, ""),
        ({"memory_used_bytes": 20 * GIB, "processes": (process(gib=None, ours=True),)}, None, ""),
        ({"memory_used_bytes": 40 * GIB, "processes": (process(ours=True), process(2))}, ("fail", True), "pid 2"),
        ({"memory_used_bytes": GIB, "memory_reserved_bytes": None}, None, ""),
        ({"memory_used_bytes": 90 * GIB, "memory_is_unified": True}, None, ""),
    ],
)
def test_memory_of_others_is_told_with_its_holder(facts, told, words):
    assert found(**facts) == ([("foreign-memory", *told)] if told else [])
    for finding in findings((msgspec.structs.replace(CARD, **facts),), ()):
        assert words in finding.text


@pytest.mark.parametrize(("minor", "file"), [(5, "/dev/nvidia5"), (None, "/dev/nvidia*")])
def test_who_holds_memory_is_asked_of_the_cards_own_device_file(minor, file):
    (finding,) = findings((msgspec.structs.replace(CARD, minor_number=minor, memory_used_bytes=20 * GIB),), ())
    assert f"`fuser -v {file}`" in finding.cure


def test_an_instance_is_judged_by_its_own_memory():
    part = MigInstance(slot=1, uuid="MIG-1", gpu_instance_id=3, memory_used_bytes=10 * GIB)
    mine = process(gib=10, ours=True, gpu_instance_id=3)
    card = msgspec.structs.replace(CARD, instances=(part,), processes=(mine,))
    assert findings((card,), ()) == ()
    (finding,) = findings((msgspec.structs.replace(card, processes=()),), ())
    assert (finding.about, finding.excludes) == ("MIG-1", True)


def test_the_most_serious_stands_first_and_each_says_what_to_do():
    told = findings((msgspec.structs.replace(CARD, inforom_ok=False, recovery_action="gpu-reset"),), ())
    assert [str(finding.severity) for finding in told] == ["fail", "warn"]
    for finding in told:
        assert finding.text.startswith("GPU 3: ")
        assert finding.costs
        assert "{" not in finding.cure
        assert finding.code in CODES
