"""What an InfiniBand or RoCE port is, and who manages the subnet it is on."""

from enum import StrEnum

import msgspec


class LinkLayer(StrEnum):
    """What a port speaks; the only sure sign of RoCE."""

    INFINIBAND = "infiniband"
    ETHERNET = "ethernet"


class PortState(StrEnum):
    """The logical state of a port."""

    NOP = "nop"
    DOWN = "down"
    INIT = "init"
    ARMED = "armed"
    ACTIVE = "active"
    ACTIVE_DEFER = "active-defer"


class Gid(msgspec.Struct, frozen=True, kw_only=True):
    """One address of a port; unused entries of the table are left out."""

    index: int
    gid: str
    """In the kernel's full form: `0000:0000:0000:0000:0000:ffff:0a00:0001`."""
    kind: str | None = None
    """`ib`, `roce-v1`, `roce-v2`."""
    netdev: str | None = None
    ipv4: str | None = None
    """The address that it maps, for an IPv4-mapped one."""


class SubnetManager(msgspec.Struct, frozen=True, kw_only=True):
    """Who manages an InfiniBand subnet, as the subnet tells it."""

    guid: str
    """16 hexadecimal digits after `0x`: `0x0002c90200259201`."""
    lid: int | None = None
    priority: int | None = None
    state: str | None = None
    """`master`, `standby`, `discover`, `not-active`."""
    activity: int | None = None
    """A counter: one that stands still is a manager that is dead."""


class Port(msgspec.Struct, frozen=True, kw_only=True):
    """One port of one adapter."""

    hca: str
    port: int = 1
    link_layer: LinkLayer | None = None
    state: PortState | None = None
    physical_state: str | None = None
    """`link-up`, `polling`, `disabled`, `sleep`, `training`, `link-error-recovery`, `phy-test`."""
    rate_gbps: float | None = None
    """Of the link as it trained, in 10⁹ bits per second; what a port that is down prints is not believed."""
    width: int | None = None
    """Lanes: 4."""
    speed: str | None = None
    """`NDR`, `HDR`, … as printed."""
    lid: int | None = None
    subnet_manager_lid: int | None = None
    port_guid: str | None = None
    node_guid: str | None = None
    system_guid: str | None = None
    """Shared by the ports of one card."""
    hca_type: str | None = None
    board: str | None = None
    firmware: str | None = None
    pci_address: str | None = None
    numa_node: int | None = None
    is_virtual_function: bool = False
    is_software: bool = False
    """True for an adapter made of software (rxe, siw), which no fabric is built on."""
    is_subnet_manager: bool | None = None
    """True where this port says that it is a manager itself."""
    netdevs: tuple[str, ...] = ()
    gids: tuple[Gid, ...] = ()
    roce_gid_index: int | None = None
    """The entry that RoCE v2 traffic must use, chosen by rule; null where there is none, which a finding tells."""
    partitions: tuple[str, ...] = ()
    """P_Keys that are set: `0xffff`."""
    counters: dict[str, int] = {}
    """As the kernel names them; data in octets (its own count is in words of four)."""
    counters_since: dict[str, int] | None = None
    """How much those that matter have risen since `counters_since_s` seconds ago.

    Null at the first look, and where one has fallen: they were reset.
    """
    counters_since_s: float | None = None
    near_gpus: tuple[str, ...] = ()
    """UUIDs of the cards that are nearest by PCI, else by NUMA node."""
    subnet_manager: SubnetManager | None = None
    other_subnet_managers: tuple[SubnetManager, ...] = ()

    @property
    def name(self) -> str:
        """Return it as NCCL writes it: `mlx5_0:1`."""
        return f"{self.hca}:{self.port}"

    @property
    def is_active(self) -> bool:
        """Tell whether it carries traffic."""
        return self.state is PortState.ACTIVE and self.physical_state in {"link-up", None}
