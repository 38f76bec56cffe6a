"""Reads InfiniBand and RoCE ports from /sys/class/infiniband; a file that is missing or unreadable costs one fact."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from llmgw.core.hardware.findings import Problem
from llmgw.core.hardware.gpus import Gpu
from llmgw.core.hardware.network import Gid, LinkLayer, Port, PortState
from workers.discovery.infiniband import gids
from workers.discovery.infiniband.folder import Folder
from workers.discovery.nvidia.topology import distance, numa_of, place_of
from workers.discovery.pci import canonical
from workers.ports import Machine

CLASS: Final = Path("/sys/class/infiniband")
_RATE: Final = re.compile(r"^([0-9]{1,6}(?:\.[0-9]{1,6})?) Gb/sec \(([0-9]{1,3})X ?(\w*)\)")
_NUMBERED: Final = re.compile(r"^\s*([0-9]{1,3}):")
_SOFTWARE: Final = re.compile(r"(?:rxe|siw)(?:[0-9_].*)?", re.IGNORECASE)
"""As `rdma link add` is told in most instructions: `rxe0`, `siw_eth0`."""
_NO_FIRMWARE: Final = re.compile(r"[0.]*")
_PHYSICAL: Final = MappingProxyType(
    {
        1: "sleep",
        2: "polling",
        3: "disabled",
        4: "training",
        5: "link-up",
        6: "link-error-recovery",
        7: "phy-test",
    }
)
_STATES: Final = tuple(PortState)
_LAYERS: Final = MappingProxyType({"infiniband": LinkLayer.INFINIBAND, "ethernet": LinkLayer.ETHERNET})
_COUNT: Final = re.compile(r"[0-9]{1,20}")
"""Of 64 bits; longer ones are no counts."""
_GID: Final = re.compile(r"(?:[0-9a-f]{4}:){7}[0-9a-f]{4}")
_IN_WORDS: Final = frozenset({"port_xmit_data", "port_rcv_data"})
"""The kernel counts these in words of four octets."""
_IS_SM: Final = 0x2
_NEARNESS: Final = ("PIX", "PXB", "PHB", "NODE", "SYS")
_APART: Final = _NEARNESS.index("SYS")


def find(machine: Machine, gpus: Sequence[Gpu] = ()) -> tuple[tuple[Port, ...], tuple[Problem, ...]]:
    """Return every port of every adapter; a machine without adapters has none, and that is no problem."""
    problems: list[Problem] = []
    ports: list[Port] = []
    for hca in sorted(machine.names_in(CLASS), key=_natural):
        for number in Folder(machine, CLASS / hca, hca).numbers("ports"):
            card = Folder(machine, CLASS / hca, f"{hca}:{number}")
            port = Folder(machine, CLASS / hca / "ports" / number, f"{hca}:{number}")
            ports.append(_port(machine, hca, int(number), gpus, card, port))
            problems += (*port.problems(), *card.problems())
    return tuple(ports), tuple(problems)


def _natural(name: str) -> tuple[object, ...]:
    """Sort `mlx5_2` before `mlx5_10`."""
    return tuple((0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d+)", name))


def _port(machine: Machine, hca: str, number: int, gpus: Sequence[Gpu], card: Folder, port: Folder) -> Port:
    said = port.text("state", needed=True)
    state = _state(said)
    if said is not None and state is None:
        port.garbled("state", said)
    rate, width, speed = _rate(
        port.text("rate") if state in {PortState.ACTIVE, PortState.INIT, PortState.ARMED} else None
    )
    layer = _LAYERS.get((port.text("link_layer") or "").lower())
    link = machine.link(CLASS / hca / "device")
    address = canonical(link.rsplit("/", 1)[-1]) if link else None
    node = _numa(machine, card, address)
    table = tuple(_gids(port, layer))
    netdevs = card.names("device/net")
    mask = port.whole("cap_mask")
    return Port(
        hca=hca,
        port=number,
        link_layer=layer,
        state=state,
        physical_state=_PHYSICAL.get(_numbered(port.text("phys_state")) or 0),
        rate_gbps=rate,
        width=width,
        speed=speed,
        lid=port.whole("lid"),
        subnet_manager_lid=port.whole("sm_lid"),
        port_guid=_guid_of(table),
        node_guid=_guid(card.text("node_guid")),
        system_guid=_guid(card.text("sys_image_guid")),
        hca_type=card.text("hca_type"),
        board=card.text("board_id"),
        firmware=card.text("fw_ver"),
        pci_address=address,
        numa_node=node,
        is_virtual_function=machine.link(CLASS / hca / "device" / "physfn") is not None,
        is_software=_is_software(hca, card, is_linked=link is not None),
        is_subnet_manager=None if mask is None else bool(mask & _IS_SM),
        netdevs=netdevs,
        gids=table,
        roce_gid_index=gids.choose(table, netdevs) if layer is LinkLayer.ETHERNET else None,
        partitions=tuple(_partitions(port)),
        counters=dict(_counters(port)),
        near_gpus=_near(machine, address, node, gpus),
    )


def _is_software(hca: str, card: Folder, *, is_linked: bool) -> bool:
    """Tell adapters of software by their name or by the interface they sit on; hardware has a device, or firmware.

    An adapter of a virtual machine, or of a bus other than PCI, may show no device and still be one.
    """
    if _SOFTWARE.fullmatch(hca) or card.text("parent"):
        return True
    has_firmware = not _NO_FIRMWARE.fullmatch(card.text("fw_ver") or "")
    return not (is_linked or has_firmware or card.text("hca_type"))


def _numa(machine: Machine, card: Folder, address: str | None) -> int | None:
    """Return the NUMA node of an adapter, also of one whose PCI address is not known; the kernel writes -1 for none."""
    known = numa_of(machine, address)
    told = card.whole("device/numa_node") if known is None else known
    return told if told is not None and told >= 0 else None


# --- words --------------------------------------------------------------------------------------------------------


def _numbered(word: str | None) -> int | None:
    found = _NUMBERED.match(word or "")
    return int(found[1]) if found else None


def _state(word: str | None) -> PortState | None:
    """Read `4: ACTIVE`; the numbers are the verbs library's."""
    number = _numbered(word)
    return _STATES[number] if number is not None and number < len(_STATES) else None


def _rate(word: str | None) -> tuple[float | None, int | None, str | None]:
    """Read `400 Gb/sec (4X NDR)`; a speed may be missing, as it is for SDR."""
    found = _RATE.match(word or "")
    return (float(found[1]), int(found[2]), found[3] or None) if found else (None, None, None)


def _guid(word: str | None) -> str | None:
    digits = (word or "").replace(":", "").removeprefix("0x").lower()
    return f"0x{digits:0>16}" if re.fullmatch(r"[0-9a-f]{1,16}", digits) else None


def _guid_of(table: Sequence[Gid]) -> str | None:
    """Return a port's own GUID: the lower half of its first GID on InfiniBand."""
    first = next((gid for gid in table if gid.index == 0 and gid.kind == "ib"), None)
    return _guid(first.gid[20:]) if first else None


# --- tables -------------------------------------------------------------------------------------------------------


def _gids(port: Folder, layer: LinkLayer | None) -> Iterator[Gid]:
    """Read the addresses that are set; an unused entry is all zeros, and its attributes cannot be read (EINVAL)."""
    for name in port.numbers("gids"):
        gid = (port.text(f"gids/{name}") or "").lower()
        if not _GID.fullmatch(gid) or not gid.strip("0:"):
            continue
        kind = (port.text(f"gid_attrs/types/{name}") or "").lower()
        netdev = port.text(f"gid_attrs/ndevs/{name}")
        yield Gid(index=int(name), gid=gid, kind=_kind(kind, layer), netdev=netdev, ipv4=gids.ipv4_of(gid))


def _kind(word: str, layer: LinkLayer | None) -> str | None:
    if word == "roce v2":
        return "roce-v2"
    if layer is LinkLayer.INFINIBAND:
        return "ib"
    return "roce-v1" if word else None


def _partitions(port: Folder) -> Iterator[str]:
    for name in port.numbers("pkeys"):
        key = (port.text(f"pkeys/{name}") or "").lower()
        if re.fullmatch(r"0x[0-9a-f]{1,4}", key) and int(key, 16):
            yield key


def _counters(port: Folder) -> Iterator[tuple[str, int]]:
    """Read what counts; drivers without a counter answer with an error, or with `N/A (no PMA)`."""
    for group in ("counters", "hw_counters"):
        for name in port.names(group):
            word = port.text(f"{group}/{name}") or ""
            if _COUNT.fullmatch(word) and name != "lifespan":
                yield name, int(word) * (4 if name in _IN_WORDS else 1)


def _near(machine: Machine, address: str | None, node: int | None, gpus: Sequence[Gpu]) -> tuple[str, ...]:
    """Return the cards that are nearest, by their places in the kernel's tree of devices, else by NUMA node."""
    place = place_of(machine, address)
    far = {gpu.uuid: _steps(machine, place, node, gpu) for gpu in gpus if gpu.uuid}
    nearest = min(far.values(), default=_APART)
    return tuple(uuid for uuid, steps in far.items() if steps == nearest < _APART)


def _steps(machine: Machine, place: Sequence[str], node: int | None, gpu: Gpu) -> int:
    """Return how far a card is; a place that is not known is below no common bridge, and the NUMA nodes decide."""
    other = place_of(machine, gpu.pci_address)
    other_node = numa_of(machine, gpu.pci_address)
    word = distance(place, other, node, gpu.numa_node if other_node is None else other_node)
    return _NEARNESS.index(word)
