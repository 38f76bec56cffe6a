"""A fabric as a node was told of it, as its adapters bear it out, and as they would propose one."""

import msgspec

from llmgw.core.hardware.network import LinkLayer


class DeclaredFabric(msgspec.Struct, frozen=True, kw_only=True):
    """A fabric that the operator has declared for this node."""

    name: str
    ports: tuple[str, ...]
    """`mlx5_0` (its port 1) or `mlx5_0:2`, in the order of the rails."""
    interface: str | None = None
    """Where processes of several nodes first meet (NCCL's bootstrap); None lets llmgw choose."""
    rate_gbps: float | None = None
    """What each port should run at; None compares with its like."""
    rail_only: bool = False
    """True where only ports of the same number reach each other."""


class AttachedPort(msgspec.Struct, frozen=True, kw_only=True):
    """One port of a fabric on this node."""

    name: str
    """`mlx5_0:1`."""
    usable: bool
    why: str = ""
    """Why not."""
    rate_gbps: float | None = None
    gid_index: int | None = None
    """For RoCE."""
    rail: int = 0
    """Its place in the declaration."""
    near_gpus: tuple[str, ...] = ()
    identity: str | None = None
    """What tells one physical fabric from another: `sm:0x…` by the master's GUID, `roce:<vlan>:<subnet>`."""


class Attachment(msgspec.Struct, frozen=True, kw_only=True):
    """How this node is on a fabric; one without a usable port is not advertised."""

    name: str
    link_layer: LinkLayer | None = None
    ports: tuple[AttachedPort, ...] = ()
    identities: tuple[str, ...] = ()
    """Those of the usable ports; more than one is two physical fabrics under one name."""
    rate_gbps: float | None = None
    """Of the usable ports together."""
    interface: str | None = None
    """For the bootstrap."""
    address: str | None = None
    """Of that interface."""
    rail_only: bool = False
    unusable: str | None = None
    """Why nothing may be placed over it; None when it may."""
    unusable_code: str = ""
    """The finding's code for that."""

    @property
    def usable_ports(self) -> tuple[AttachedPort, ...]:
        """Return those that carry traffic, in the order of the rails."""
        return tuple(port for port in self.ports if port.usable)


class ProposedPort(msgspec.Struct, frozen=True, kw_only=True):
    """Whether an adapter's port would be in a fabric, and why."""

    name: str
    taken: bool
    reason: str


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """A fabric that nobody declared and that this node's adapters could form."""

    name: str
    ports: tuple[ProposedPort, ...]
    declaration: str
    """What to write into the node's settings for it, as TOML."""
