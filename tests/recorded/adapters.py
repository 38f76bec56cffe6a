"""Made-up InfiniBand and RoCE adapters as the kernel's trees show them, and what the subnet's tools say of them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address

COUNTERS = (
    "symbol_error",
    "link_error_recovery",
    "link_downed",
    "port_rcv_errors",
    "port_rcv_remote_physical_errors",
    "port_rcv_switch_relay_errors",
    "port_xmit_discards",
    "port_xmit_constraint_errors",
    "port_rcv_constraint_errors",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
    "VL15_dropped",
    "port_xmit_data",
    "port_rcv_data",
    "port_xmit_wait",
)
RATES = {400: "400 Gb/sec (4X NDR)", 200: "200 Gb/sec (4X HDR)", 100: "100 Gb/sec (4X EDR)", 10: "10 Gb/sec (4X SDR)"}


@dataclass(frozen=True)
class Adapter:
    """One adapter with one port."""

    name: str
    bus: str
    number: int
    """Makes its GUIDs and addresses."""
    netdev: str
    hca_type: str = "MT4129"
    ethernet: bool = False
    up: bool = True
    rate: int = 400
    lid: int = 0
    sm_lid: int = 1
    ipv4: str = ""
    numa: int = 0
    bridge: str = ""
    """Path of the PCI bridges above it, below /sys/devices."""

    @property
    def guid(self) -> str:
        return f"a088c203006f{self.number:04x}"

    @property
    def mac(self) -> str:
        return f"a0:88:c2:6f:{self.number >> 8:02x}:{self.number & 255:02x}"


def groups(digits: str) -> str:
    """Spell hexadecimal digits as the kernel does: `b83f:d203:0029:1dcc`."""
    return ":".join(digits[place : place + 4] for place in range(0, len(digits), 4))


def files(adapter: Adapter) -> Iterator[tuple[str, str]]:
    """Give the adapter's files below /sys: pairs of path and text."""
    base = f"/sys/class/infiniband/{adapter.name}"
    own = {
        "node_guid": groups(adapter.guid),
        "sys_image_guid": groups(adapter.guid),
        "node_type": "1: CA",
        "node_desc": f"{adapter.name}",
        "hca_type": adapter.hca_type,
        "board_id": "MT_0000000838",
        "fw_ver": "28.41.1000",
        "hw_rev": "0",
        "device/numa_node": str(adapter.numa),
        "device/vendor": "0x15b3",
        "device/device": "0x1021",
        "device/class": "0x020000" if adapter.ethernet else "0x020700",
        f"device/net/{adapter.netdev}/mtu": "9000" if adapter.ethernet else "4092",
        f"device/net/{adapter.netdev}/operstate": "up" if adapter.up else "down",
        f"device/net/{adapter.netdev}/address": adapter.mac,
    }
    yield from ((f"{base}/{name}", text) for name, text in own.items())
    yield from ((f"{base}/ports/1/{name}", text) for name, text in _port(adapter).items())
    yield from ((f"{base}/ports/1/{name}", text) for name, text in _gids(adapter))
    for name, text in (("mtu", own[f"device/net/{adapter.netdev}/mtu"]), ("address", adapter.mac)):
        yield f"/sys/class/net/{adapter.netdev}/{name}", text
    yield f"/sys/class/net/{adapter.netdev}/operstate", "up" if adapter.up else "down"
    for name in ("vendor", "device", "class", "numa_node"):
        yield f"/sys/bus/pci/devices/{adapter.bus}/{name}", own[f"device/{name}"]


def _port(adapter: Adapter) -> Mapping[str, str]:
    told = {
        "state": "4: ACTIVE" if adapter.up else "1: DOWN",
        "phys_state": "5: LinkUp" if adapter.up else "3: Disabled" if adapter.ethernet else "2: Polling",
        "rate": RATES[adapter.rate if adapter.up else 10],
        "link_layer": "Ethernet" if adapter.ethernet else "InfiniBand",
        "lid": f"0x{adapter.lid if adapter.up else 0:x}",
        "sm_lid": f"0x{adapter.sm_lid if adapter.up and not adapter.ethernet else 0:x}",
        "sm_sl": "0",
        "lid_mask_count": "0",
        "cap_mask": "0x00010000" if adapter.ethernet else "0xa751e848",
        "pkeys/0": "0xffff",
        "pkeys/1": "0x0000",
    }
    counters = {name: "4000000000" if name.endswith("_data") else "0" for name in COUNTERS}
    return told | {f"counters/{name}": text for name, text in counters.items()}


def _gids(adapter: Adapter) -> Iterator[tuple[str, str]]:
    zero = groups("0" * 32)
    if not adapter.ethernet:
        yield "gids/0", groups(f"fe80000000000000{adapter.guid}")
        yield "gid_attrs/types/0", "IB/RoCE v1"
        yield "gids/1", zero
        return
    octets = adapter.mac.replace(":", "")
    local = f"fe80000000000000{int(octets[:2], 16) ^ 2:02x}{octets[2:6]}fffe{octets[6:]}"
    table = [(local, "IB/RoCE v1"), (local, "RoCE v2")]
    if adapter.ipv4:
        mapped = f"00000000000000000000ffff{int(IPv4Address(adapter.ipv4)):08x}"
        table += [(mapped, "IB/RoCE v1"), (mapped, "RoCE v2")]
    for index, (digits, kind) in enumerate(table):
        yield f"gids/{index}", groups(digits)
        yield f"gid_attrs/types/{index}", kind
        yield f"gid_attrs/ndevs/{index}", adapter.netdev
    yield f"gids/{len(table)}", zero


def links(adapter: Adapter) -> Mapping[str, str]:
    """Give the symbolic links of an adapter."""
    real = f"devices/{adapter.bridge}/{adapter.bus}"
    return {
        f"/sys/class/infiniband/{adapter.name}/device": f"../../../{adapter.bus}",
        f"/sys/class/infiniband/{adapter.name}": f"../../{real}/infiniband/{adapter.name}",
        f"/sys/bus/pci/devices/{adapter.bus}": f"../../../{real}",
        f"/sys/bus/pci/devices/{adapter.bus}/driver": "../../../../bus/pci/drivers/mlx5_core",
        f"/sys/class/net/{adapter.netdev}/device": f"../../../{adapter.bus}",
    }


def sminfo(lid: int, guid: str, activity: int = 90210) -> str:
    """What sminfo prints of a master."""
    return f"sminfo: sm lid {lid} sm guid {guid}, activity count {activity} priority 14 state 3 SMINFO_MASTER\n"


def saquery(*managers: tuple[int, str, int, int]) -> str:
    """What `saquery SMIR` prints; managers are (lid, GUID of 16 digits, priority, state)."""
    return "".join(
        f"SMInfoRecord dump:\n\t\tRID\n\t\tLID...................{lid}\n\t\tSMInfo dump:\n"
        f"\t\tGUID..................0x{guid}\n\t\tSM_Key................0x0000000000000000\n"
        f"\t\tActCount..............90210\n\t\tPriority..............{priority}\n\t\tSMState...............{state}\n"
        for lid, guid, priority, state in managers
    )
