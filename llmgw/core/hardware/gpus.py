"""What an NVIDIA card, its instances and its links are; null is a fact that the card has not, or that was not told.

A fact that the driver failed to tell is null too, and is named by a `Problem`; one that does not apply is null alone.
Both ways to ask, NVML and nvidia-smi, fill in these same types.
"""

from enum import StrEnum

import msgspec


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """Who holds memory of a card."""

    pid: int
    name: str | None = None
    memory_bytes: int | None = None
    kind: str = "compute"
    """`compute`, `graphics`, or `both`."""
    ours: bool = False
    """True for an engine that this node's worker started, and for its children."""
    gpu_instance_id: int | None = None
    compute_instance_id: int | None = None


class MigInstance(msgspec.Struct, frozen=True, kw_only=True):
    """One part of a card in MIG mode."""

    slot: int
    """The driver's number on its card; holes occur."""
    uuid: str | None = None
    profile: str | None = None
    """`3g.40gb`, `1g.10gb+me`."""
    gpu_instance_id: int | None = None
    compute_instance_id: int | None = None
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    memory_free_bytes: int | None = None
    multiprocessors: int | None = None
    ecc_uncorrected_volatile: int | None = None
    processes: tuple[Process, ...] | None = None


class Ecc(msgspec.Struct, frozen=True, kw_only=True):
    """Error correction; counts of errors since the driver was loaded (volatile) and ever (aggregate)."""

    enabled: bool | None = None
    enabled_pending: bool | None = None
    """What it will be after a reset."""
    uncorrected_volatile: int | None = None
    corrected_volatile: int | None = None
    uncorrected_aggregate: int | None = None
    corrected_aggregate: int | None = None
    sram_threshold_exceeded: bool | None = None
    unrepairable_memory: bool | None = None
    channel_repair_pending: bool | None = None
    tpc_repair_pending: bool | None = None


class RemappedRows(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of memory that were replaced by spare ones, from Ampere on."""

    corrected: int | None = None
    uncorrected: int | None = None
    pending: bool | None = None
    failed: bool | None = None
    banks_without_spares: int | None = None


class RetiredPages(msgspec.Struct, frozen=True, kw_only=True):
    """Pages of memory that were taken out of use, before Ampere."""

    single_bit: int | None = None
    double_bit: int | None = None
    pending: bool | None = None


class FabricState(StrEnum):
    """How far a card is registered with its NVLink fabric."""

    NOT_SUPPORTED = "not-supported"
    NOT_STARTED = "not-started"
    IN_PROGRESS = "in-progress"
    COMPLETED = "completed"


class GpuFabric(msgspec.Struct, frozen=True, kw_only=True):
    """What a card says of its NVLink fabric; `status` counts only where the state is completed."""

    state: FabricState | None = None
    status: str | None = None
    """`success`, or the driver's words in lower case."""
    cluster_uuid: str | None = None
    """None where it is all zeros: one node alone."""
    clique_id: int | None = None
    health: str | None = None
    """`healthy`, `unhealthy`, `limited-capacity`."""
    bandwidth: str | None = None
    """`full` or `degraded`."""
    route_recovery: bool | None = None
    route_unhealthy: bool | None = None
    access_timeout_recovery: bool | None = None
    incorrect_configuration: str | None = None
    """`none`, or what is wrong, in words."""

    @property
    def domain(self) -> str | None:
        """Return `<cluster UUID>.<clique>`, what cards of several nodes must share for NVLink between them."""
        is_member = self.state is FabricState.COMPLETED and self.status == "success" and self.cluster_uuid
        return f"{self.cluster_uuid}.{self.clique_id or 0}" if is_member else None


class NvLink(msgspec.Struct, frozen=True, kw_only=True):
    """One NVLink of a card."""

    number: int
    active: bool | None = None
    remote: str | None = None
    """`gpu`, `switch`, or None where it is not told."""
    remote_pci_address: str | None = None
    errors: dict[str, int] | None = None
    """Counters: `replay`, `recovery`, `crc`."""


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """One card. Its identity is the UUID; its number is the driver's, and never another's because one is dead."""

    index: int | None = None
    uuid: str | None = None
    name: str | None = None
    device_class: str | None = None
    """`h100-80g`: the product, and the driver's figure of memory in whole GiB."""
    pci_address: str | None = None
    """As the kernel spells it: `0000:3b:00.0`."""
    minor_number: int | None = None
    serial: str | None = None
    vbios: str | None = None
    failed: str | None = None
    """The driver's words that this card can do nothing; None when it answers."""

    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    """Without what the driver reserves for itself, where that is told."""
    memory_reserved_bytes: int | None = None
    memory_free_bytes: int | None = None
    memory_is_unified: bool = False
    """True for a card that has no memory of its own and uses the machine's."""
    compute_capability: str | None = None
    """`9.0`; compare as numbers, part by part."""

    temperature_celsius: int | None = None
    temperature_slowdown_celsius: int | None = None
    temperature_margin_celsius: int | None = None
    """Degrees left until it slows down, where the driver tells that instead."""
    power_watts: float | None = None
    power_limit_watts: float | None = None
    power_limit_default_watts: float | None = None
    clock_sm_mhz: int | None = None
    clock_memory_mhz: int | None = None
    utilization_percent: int | None = None
    """Null in MIG mode, where the driver does not tell it."""
    performance_state: str | None = None
    throttle_reasons: tuple[str, ...] | None = None
    """Those that are active: `idle`, `applications-clocks`, `sw-power-cap`, `hw-slowdown`, `sync-boost`, `sw-thermal`,
    `hw-thermal`, `hw-power-brake`, `display-clocks`."""

    pcie_generation: int | None = None
    pcie_generation_max: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    pcie_replays: int | None = None
    numa_node: int | None = None

    persistence_mode: bool | None = None
    compute_mode: str | None = None
    """`default`, `exclusive-process`, `prohibited`."""
    display_active: bool | None = None
    addressing_mode: str | None = None
    virtualization: str | None = None
    """`none`, `pass-through`, `vgpu`, `host-vgpu`, …"""
    vgpu_licence: str | None = None
    """`licensed`, `unlicensed (unrestricted)`, `unlicensed (restricted)`: the driver's words in lower case."""
    recovery_action: str | None = None
    """`none`, `gpu-reset`, `node-reboot`, `drain-p2p`, `drain-and-reset`, …"""
    inforom_ok: bool | None = None

    ecc: Ecc = Ecc()
    remapped_rows: RemappedRows | None = None
    retired_pages: RetiredPages | None = None
    mig_enabled: bool | None = None
    """Null where the card knows no MIG."""
    mig_enabled_pending: bool | None = None
    instances: tuple[MigInstance, ...] = ()
    fabric: GpuFabric | None = None
    nvlinks: tuple[NvLink, ...] | None = None
    processes: tuple[Process, ...] | None = None
    """Null where the driver does not tell."""

    @property
    def called(self) -> str:
        """Return what a person calls it: `GPU 3`; `GPU ?` for one without a number."""
        return f"GPU {'?' if self.index is None else self.index}"

    @property
    def for_smi(self) -> str:
        """Return what `nvidia-smi -i` takes for it: its number, else its address or UUID."""
        return str(self.index) if self.index is not None else self.pci_address or self.uuid or "?"


class Driver(msgspec.Struct, frozen=True, kw_only=True):
    """The NVIDIA driver of this machine."""

    version: str | None = None
    cuda_version: str | None = None
    """The highest that the driver serves: `12.8`."""
    module_version: str | None = None
    """Of the kernel module that is loaded."""
    is_open: bool | None = None
    """True for the open kernel module."""
    source: str | None = None
    """Who told of the cards: `nvml` or `nvidia-smi`."""
    attached: int | None = None
    """How many cards the driver says there are."""


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """How two things of one machine are joined; what they are is their name in the matrix: `GPU0`, `mlx5_0`."""

    a: str
    b: str
    by: str
    """`NV18` (NVLinks in number), `PIX`, `PXB`, `PHB`, `NODE`, `SYS`."""


class Topology(msgspec.Struct, frozen=True, kw_only=True):
    """How cards and adapters are joined inside this machine."""

    pairs: tuple[Pair, ...] = ()
    """Every pair once, the lower first."""
    cpus: dict[str, str] = {}
    """Name of a card → the CPUs near it, as the kernel writes lists: `0-47,96-143`."""
    numa: dict[str, int] = {}
    nvlink_domains: tuple[tuple[str, ...], ...] = ()
    """UUIDs of the cards that reach each other by NVLink alone; a card without is in none."""


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """A unit of systemd."""

    unit: str
    state: str | None = None
    """`active`, `inactive`, `failed`, `not-found`, …"""
    version: str | None = None


class NvSwitch(msgspec.Struct, frozen=True, kw_only=True):
    """Switches between cards of this machine, and the fabric manager that sets them up."""

    switches: int = 0
    """How many are seen on PCI; an NVLink 5 board shows none."""
    fabric_manager: Service | None = None
    is_needed: bool | None = None
    """Whether this machine needs a fabric manager of its own; null where that could not be told."""


class ImexNode(msgspec.Struct, frozen=True, kw_only=True):
    """One member of an IMEX domain."""

    address: str
    state: str
    version: str | None = None


class Imex(msgspec.Struct, frozen=True, kw_only=True):
    """What lets cards of several nodes share memory over NVLink."""

    service: Service | None = None
    state: str | None = None
    """Of this node: `READY`, …"""
    domain_state: str | None = None
    """`UP`, `DEGRADED`, `DOWN`."""
    nodes: tuple[ImexNode, ...] = ()
    unconnected: tuple[tuple[int, int], ...] = ()
    """Pairs of members (from, to) that are not connected."""
    channels: tuple[int, ...] = ()
    """Minor numbers of the channel devices that are there."""
    channel_major: int | None = None
    """Major number that the kernel gave them; a device with another one is a leftover."""
