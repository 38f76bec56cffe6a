"""The made-up machines, one of each kind; `python -m tests.recorded.make` writes them into folders beside this file."""

from collections.abc import Callable, Mapping
from typing import Final

from tests.recorded.adapters import Adapter, saquery, sminfo
from tests.recorded.cards import Card, Instance, made_up_uuid, matrix, xml
from tests.recorded.folders import Recording, bridge_of

BY_SMI: Final = 'nvml = "off"\n'
MASTER: Final = "a088c20300ff0001"
HEALTHY_FABRIC: Final = {
    "state": "Completed",
    "status": "Success",
    "cliqueId": "0",
    "clusterUuid": "00000000-0000-0000-0000-000000000000",
    "health": "N/A",
}


def uuid(machine: str, number: int) -> str:
    return f"GPU-{made_up_uuid(f'{machine} card {number}')}"


def mig_uuid(machine: str, number: int) -> str:
    return f"MIG-{made_up_uuid(f'{machine} instance {number}')}"


def serial(machine: str, number: int) -> str:
    return str(1_320_000_000_000 + int(made_up_uuid(f"{machine} serial {number}")[:8], 16))


# --- without cards ------------------------------------------------------------------------------------------------


def cpu_only() -> Recording:
    machine = Recording()
    machine.host(cpus=32, memory_gib=128, system="Debian GNU/Linux 12 (bookworm)", kernel="6.1.0-28-amd64")
    return machine


def infiniband_without_gpu() -> Recording:
    """A storage node: two ports on one fabric, the second of them down."""
    machine = Recording(settings='[fabrics.storage]\nports = ["mlx5_0", "mlx5_1"]\n')
    machine.host(cpus=64, memory_gib=512, system="Rocky Linux 9.4 (Blue Onyx)", kernel="5.14.0-427.13.1.el9_4.x86_64")
    ports = [
        Adapter("mlx5_0", "0000:10:00.0", 1, "ib0", lid=11, bridge=bridge_of(0, 0)),
        Adapter("mlx5_1", "0000:14:00.0", 2, "ib1", lid=12, bridge=bridge_of(0, 1), up=False),
    ]
    machine.adapters(ports)
    machine.tools["sminfo -C mlx5_0 -P 1"] = sminfo(1, f"0x{MASTER}")
    machine.tools["saquery SMIR -C mlx5_0 -P 1"] = saquery((1, MASTER, 14, 3), (2, "a088c20300ff0002", 10, 2))
    return machine


# --- few cards ----------------------------------------------------------------------------------------------------


def t4() -> Recording:
    """One card of the Turing kind: pages are retired, rows are not remapped."""
    machine = Recording(settings=BY_SMI)
    machine.host(cpus=8, memory_gib=32, system="Ubuntu 20.04.6 LTS", kernel="5.4.0-200-generic")
    card = Card(
        index=0,
        name="Tesla T4",
        mib=15360,
        bus="0000:00:1e.0",
        uuid=uuid("t4", 0),
        serial=serial("t4", 0),
        capability="7.5",
        used_mib=2,
        reserved_mib=446,
        watts=9.4,
        limit_watts=70.0,
        mig=None,
        tags={
            "remapped_rows": "N/A",
            "retired_pages/pending_retirement": "No",
            "retired_pages/multiple_single_bit_retirement/retired_count": "0",
            "retired_pages/double_bit_retirement/retired_count": "0",
            "performance_state": "P8",
        },
    )
    machine.driver("515.105.01", "11.7", [card])
    machine.smi([card], "515.105.01", "11.7", dtd="nvsmi_device_v11.dtd")
    return machine


def l40s_pcie() -> Recording:
    """Four cards that reach each other over PCI Express alone; one holds somebody's memory."""
    machine = Recording(settings=BY_SMI + "expected_gpus = 4\n")
    machine.host(cpus=96, memory_gib=768, system="Ubuntu 22.04.5 LTS", kernel="5.15.0-131-generic")
    cards = [
        Card(
            index=number,
            name="NVIDIA L40S",
            mib=46068,
            bus=f"0000:{bus}:00.0",
            uuid=uuid("l40s", number),
            serial=serial("l40s", number),
            capability="8.9",
            used_mib=20480 if number == 2 else 1,
            reserved_mib=553,
            watts=34.1,
            limit_watts=350.0,
            mig=None,
            numa=number // 2,
            processes=((48151, "python3", 20470),) if number == 2 else (),
        )
        for number, bus in enumerate(("16", "27", "a8", "b8"))
    ]
    machine.driver("550.127.05", "12.4", cards, is_open=True)
    machine.smi(cards, "550.127.05", "12.4")
    machine.tools["nvidia-smi topo -m"] = matrix(cards, (), "NODE")
    return machine


def rtx4090_pair() -> Recording:
    """Two cards of the desk kind: no serial number, no ECC, one drives a display."""
    machine = Recording(settings=BY_SMI)
    machine.host(cpus=32, memory_gib=192, system="Ubuntu 24.04.1 LTS", kernel="6.8.0-51-generic")
    cards = [
        Card(
            index=number,
            name="NVIDIA GeForce RTX 4090",
            mib=24564,
            bus=f"0000:{bus}:00.0",
            uuid=uuid("rtx4090", number),
            capability="8.9",
            used_mib=310 if number == 0 else 4,
            reserved_mib=363,
            watts=21.0,
            limit_watts=450.0,
            ecc=None,
            mig=None,
            tags={"display_active": "Enabled" if number == 0 else "Disabled", "remapped_rows": "N/A"},
        )
        for number, bus in enumerate(("01", "41"))
    ]
    machine.driver("565.77", "12.7", cards, is_open=True)
    machine.smi(cards, "565.77", "12.7")
    machine.tools["nvidia-smi topo -m"] = matrix(cards, (), "PHB")
    return machine


def gb10_unified() -> Recording:
    """One card without memory of its own: it uses the machine's."""
    machine = Recording(settings=BY_SMI)
    machine.host(cpus=20, memory_gib=119, system="NVIDIA DGX OS 7.2.3", kernel="6.11.0-1016-nvidia", arch="aarch64")
    missing = dict.fromkeys((f"fb_memory_usage/{name}" for name in ("total", "reserved", "used", "free")), "N/A")
    card = Card(
        index=0,
        name="NVIDIA GB10",
        mib=0,
        bus="000f:01:00.0",
        uuid=uuid("gb10", 0),
        capability="12.1",
        watts=4.6,
        ecc=None,
        mig=None,
        tags=missing
        | {"gpu_power_readings/current_power_limit": "N/A", "remapped_rows": "N/A", "addressing_mode": "ATS"},
    )
    machine.driver("580.95.05", "13.0", [card], is_open=True)
    machine.smi([card], "580.95.05", "13.0")
    return machine


def vgpu_unlicensed() -> Recording:
    """A guest with a part of a card whose licence has run out."""
    machine = Recording(settings=BY_SMI)
    machine.host(cpus=16, memory_gib=64, system="Ubuntu 22.04.5 LTS", kernel="5.15.0-131-generic")
    card = Card(
        index=0,
        name="NVIDIA L40S-24Q",
        mib=24576,
        bus="0000:02:00.0",
        uuid=uuid("vgpu", 0),
        capability="8.9",
        reserved_mib=1024,
        ecc=None,
        mig=None,
        tags={
            "gpu_virtualization_mode/virtualization_mode": "VGPU",
            "vgpu_software_licensed_product/licensed_product_name": "NVIDIA RTX Virtual Workstation",
            "vgpu_software_licensed_product/license_status": "Unlicensed (Restricted)",
            "gpu_power_readings/power_draw": "N/A",
            "gpu_power_readings/current_power_limit": "N/A",
            "temperature/gpu_temp": "N/A",
            "remapped_rows": "N/A",
        },
    )
    machine.driver("550.127.05", "12.4", [card])
    machine.smi([card], "550.127.05", "12.4")
    return machine


# --- cards in parts -----------------------------------------------------------------------------------------------


def a100_mig_mixed() -> Recording:
    """Four cards: two cut into parts with holes between them, one in MIG mode and not cut, one whole."""
    machine = Recording(settings=BY_SMI)
    machine.host(cpus=128, memory_gib=1024, system="Ubuntu 22.04.5 LTS", kernel="5.15.0-131-generic")
    cut = {
        0: [(0, "3g.40gb", 40192, 2, 42), (1, "2g.20gb", 19968, 3, 28), (3, "1g.10gb", 9728, 9, 14)],
        1: [(2, "1g.10gb+me", 9728, 7, 14)],
    }
    cards = [
        Card(
            index=number,
            name="NVIDIA A100-SXM4-80GB",
            mib=81920,
            bus=f"0000:{bus}:00.0",
            uuid=uuid("a100", number),
            serial=serial("a100", number),
            capability="8.0",
            reserved_mib=623,
            watts=58.2,
            limit_watts=400.0,
            mig=number < 3,
            numa=number // 2,
            nvlinks=0 if number < 3 else 12,
            instances=tuple(
                Instance(slot, profile, mib, gpu_instance, mig_uuid("a100", 10 * number + slot), multiprocessors)
                for slot, profile, mib, gpu_instance, multiprocessors in cut.get(number, ())
            ),
        )
        for number, bus in enumerate(("07", "0f", "47", "4e"))
    ]
    machine.driver("535.216.01", "12.2", cards)
    machine.smi(cards, "535.216.01", "12.2")
    return machine


def mig_empty() -> Recording:
    """One card in MIG mode that nobody has cut: nothing of it can be used."""
    machine = Recording(settings=BY_SMI)
    machine.host(cpus=48, memory_gib=384, system="Rocky Linux 9.4 (Blue Onyx)", kernel="5.14.0-427.13.1.el9_4.x86_64")
    card = Card(
        index=0,
        name="NVIDIA H100 NVL",
        mib=95830,
        bus="0000:e3:00.0",
        uuid=uuid("mig-empty", 0),
        serial=serial("mig-empty", 0),
        mig=True,
        limit_watts=400.0,
    )
    machine.driver("560.35.05", "12.6", [card])
    machine.smi([card], "560.35.05", "12.6")
    return machine


# --- eight cards and their fabrics --------------------------------------------------------------------------------


def h100_infiniband() -> Recording:
    """Eight cards behind four switches, eight adapters for computing on one fabric, and two for storage on another."""
    machine = Recording(
        settings=BY_SMI
        + "expected_gpus = 8\n\n[fabrics.compute]\nports = ["
        + ", ".join(f'"mlx5_{number}"' for number in range(8))
        + ']\nrate_gbps = 400.0\n\n[fabrics.storage]\nports = ["mlx5_8", "mlx5_9"]\n'
    )
    machine.host(cpus=192, memory_gib=2015, system="Ubuntu 22.04.5 LTS", kernel="5.15.0-1073-nvidia")
    cards = _eight("h100", "NVIDIA H100 80GB HBM3", 81559, 18, HEALTHY_FABRIC)
    machine.driver("570.124.06", "12.8", cards, is_open=True)
    machine.smi(cards, "570.124.06", "12.8")
    adapters = [
        Adapter(
            f"mlx5_{number}",
            f"0000:{0x12 + 4 * number:02x}:00.0",
            0x100 + number,
            f"ib{number}",
            lid=100 + number,
            sm_lid=1 if number < 8 else 7,
            rate=400 if number < 8 else 200,
            numa=number // 4 if number < 8 else number - 8,
            bridge=bridge_of(number // 4, number),
        )
        for number in range(10)
    ]
    machine.adapters(adapters)
    machine.tools["nvidia-smi topo -m"] = matrix(cards, [(each.name, each.bus, each.numa) for each in adapters], "NV18")
    for number, adapter in enumerate(adapters):
        guid = MASTER if number < 8 else "a088c20300ee0007"
        lid = 1 if number < 8 else 7
        machine.tools[f"sminfo -C {adapter.name} -P 1"] = sminfo(lid, f"0x{guid}")
        machine.tools[f"saquery SMIR -C {adapter.name} -P 1"] = saquery(
            (lid, guid, 14, 3), (2, "a088c20300ff0002", 1, 2)
        )
    return machine


def lost_card() -> Recording:
    """Eight cards of which one has fallen off the bus: nvidia-smi tells of none until each is asked alone."""
    machine = Recording(settings=BY_SMI)
    machine.host(cpus=192, memory_gib=2015, system="Ubuntu 22.04.5 LTS", kernel="5.15.0-1073-nvidia")
    cards = _eight("lost", "NVIDIA H100 80GB HBM3", 81559, 18, HEALTHY_FABRIC)
    dead = cards[3]
    machine.driver("550.127.05", "12.4", cards)
    words = (
        f"Unable to determine the device handle for GPU{dead.bus.upper()}: GPU is lost.  "
        "Reboot the system to recover this GPU\n"
    )
    machine.smi(cards, "550.127.05", "12.4")
    machine.fails("nvidia-smi -q -x", 15, words)
    machine.fails("nvidia-smi nvlink --status", 15, words)
    machine.fails("nvidia-smi nvlink -e", 15, words)
    machine.fails(f"nvidia-smi -q -x -i {dead.long_bus}", 15, words)
    for card in cards:
        if card is not dead:
            machine.tools[f"nvidia-smi -q -x -i {card.long_bus}"] = xml([card], "550.127.05", "12.4", attached=8)
    machine.tools["dmesg"] = (
        f"[171667.103455] NVRM: Xid (PCI:{dead.bus[:-2]}): 79, pid=48151, name=python3, "
        "GPU has fallen off the bus.\n"
        f"[171667.103501] NVRM: GPU {dead.bus}: GPU has fallen off the bus.\n"
    )
    return machine


def driver_mismatch() -> Recording:
    """The driver's programs were updated under a kernel module that still runs: no card can be asked."""
    machine = Recording()
    machine.host(cpus=64, memory_gib=512, system="Ubuntu 22.04.5 LTS", kernel="5.15.0-131-generic")
    cards = _eight("mismatch", "NVIDIA A100-SXM4-40GB", 40960, 12, None)[:4]
    machine.driver("580.119.02", "13.0", cards)
    words = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.126\n"
    for line in ("-q -x", "-q", "-L", "nvlink --status", "nvlink -e", "topo -m"):
        machine.fails(f"nvidia-smi {line}", 18, words)
    return machine


def roce_connectx() -> Recording:
    """Two cards and two Ethernet adapters: one with an address, one with none but the one that every link has."""
    machine = Recording(settings=BY_SMI + '[fabrics.compute]\nports = ["rocep16s0", "rocep20s0"]\ninterface = "ens1"\n')
    machine.host(cpus=96, memory_gib=1024, system="Ubuntu 24.04.1 LTS", kernel="6.8.0-51-generic")
    cards = [
        Card(
            index=number,
            name="NVIDIA H200",
            mib=143771,
            bus=f"0000:{0x11 + 4 * number:02x}:00.0",
            uuid=uuid("roce", number),
            serial=serial("roce", number),
            nvlinks=18,
            fabric=HEALTHY_FABRIC,
        )
        for number in range(2)
    ]
    machine.driver("570.124.06", "12.8", cards, is_open=True)
    machine.smi(cards, "570.124.06", "12.8")
    machine.adapters(
        [
            Adapter(
                "rocep16s0", "0000:10:00.0", 0x201, "ens1", ethernet=True, ipv4="10.20.0.7", bridge=bridge_of(0, 0)
            ),
            Adapter("rocep20s0", "0000:14:00.0", 0x202, "ens2", ethernet=True, bridge=bridge_of(0, 1)),
        ]
    )
    return machine


def gb200_tray() -> Recording:
    """A tray of a rack: four cards in an NVLink domain with those of other trays, and the service for that."""
    machine = Recording(settings=BY_SMI)
    machine.host(cpus=144, memory_gib=882, system="Ubuntu 24.04.1 LTS", kernel="6.8.0-1021-nvidia-64k", arch="aarch64")
    fabric = {
        "state": "Completed",
        "status": "Success",
        "cliqueId": "32766",
        "clusterUuid": made_up_uuid("a rack"),
        "health/summary": "Healthy",
        "health/bandwidth": "Full",
    }
    cards = [
        Card(
            index=number,
            name="NVIDIA GB200",
            mib=189471,
            bus=f"00{8 + number // 2 * 8 + number % 2:02x}:01:00.0",
            uuid=uuid("gb200", number),
            serial=serial("gb200", number),
            capability="10.0",
            limit_watts=1200.0,
            watts=140.0,
            numa=number // 2,
            nvlinks=18,
            tags={f"fabric/{path}": text for path, text in fabric.items()} | {"addressing_mode": "ATS"},
        )
        for number in range(4)
    ]
    machine.driver("570.124.06", "12.8", cards, is_open=True)
    machine.smi(cards, "570.124.06", "12.8")
    machine.tools["nvidia-smi topo -m"] = matrix(cards, (), "NV18")
    machine.files["/proc/devices"] = "Character devices:\n195 nvidia\n234 nvidia-caps-imex-channels\n511 nvidia-uvm"
    machine.nodes["/dev/nvidia-caps-imex-channels/channel0"] = {"major": 234, "minor": 0}
    return machine


def _eight(machine: str, name: str, mib: int, nvlinks: int, fabric: Mapping[str, str] | None) -> list[Card]:
    return [
        Card(
            index=number,
            name=name,
            mib=mib,
            bus=f"0000:{0x13 + 4 * number:02x}:00.0",
            uuid=uuid(machine, number),
            serial=serial(machine, number),
            capability="8.0" if "A100" in name else "9.0",
            numa=number // 4,
            nvlinks=nvlinks,
            fabric=fabric,
        )
        for number in range(8)
    ]


MACHINES: Final[Mapping[str, Callable[[], Recording]]] = {
    "cpu-only": cpu_only,
    "infiniband-without-gpu": infiniband_without_gpu,
    "t4": t4,
    "l40s-pcie": l40s_pcie,
    "rtx4090-pair": rtx4090_pair,
    "gb10-unified": gb10_unified,
    "vgpu-unlicensed": vgpu_unlicensed,
    "a100-mig-mixed": a100_mig_mixed,
    "mig-empty": mig_empty,
    "h100-infiniband": h100_infiniband,
    "lost-card": lost_card,
    "driver-mismatch": driver_mismatch,
    "roce-connectx": roce_connectx,
    "gb200-tray": gb200_tray,
}
