"""The environment that NCCL and Gloo get for a shard on a fabric: exact names, and nothing left to guess."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from llmgw.core.hardware.fabrics import AttachedPort, Attachment
from llmgw.core.hardware.gpus import Gpu
from llmgw.core.hardware.network import LinkLayer

_NEVER: Final = re.compile(r"lo\d*|docker\d*|virbr\d*|br-\w+|veth\w*|cni\w*|flannel\w*|cali\w*|tailscale\d*")
"""Interfaces that lead to no other node."""


@dataclass(frozen=True, slots=True)
class NoEnvironment:
    """A shard over this fabric would get none here: NCCL would fall back to something slow, or hang."""

    code: ClassVar[str] = "nccl.no-environment"
    fabric: str
    reason: str

    def text(self) -> str:
        """Say it in one line."""
        return f"no shard can use fabric {self.fabric} here: {self.reason}"

    def cure(self) -> str:
        """Say what an operator can do."""
        return "see to the fabric's findings on this node, or name its `interface` in the node's settings"


def environment(fabric: Attachment, gpus: Sequence[Gpu] = ()) -> Mapping[str, str] | NoEnvironment:
    """Return the variables for a shard that holds these cards (NCCL's user guide, environment variables).

    `=` before the adapters makes their names exact; without it NCCL takes `mlx5_1` for a prefix of `mlx5_10`.
    """
    ports = fabric.usable_ports
    if fabric.unusable or not ports:
        return NoEnvironment(fabric.name, fabric.unusable or "it has no usable port")
    interface = fabric.interface or ""
    if not interface or _NEVER.fullmatch(interface):
        return NoEnvironment(fabric.name, f"{interface or 'no interface'} leads to no other node")
    told = {
        "NCCL_IB_HCA": "=" + ",".join(port.name for port in ports),
        "NCCL_SOCKET_IFNAME": f"={interface}",
        "GLOO_SOCKET_IFNAME": interface,
        "NCCL_SOCKET_FAMILY": "AF_INET6" if ":" in (fabric.address or "") else "AF_INET",
    }
    return {**told, **_roce(fabric, ports), **_rails(fabric), **_nvlink(gpus)}


def _roce(fabric: Attachment, ports: Sequence[AttachedPort]) -> dict[str, str]:
    """Name the GID where all ports share its index; else NCCL 2.21 and later chooses by these two."""
    if fabric.link_layer is not LinkLayer.ETHERNET:
        return {}
    indexes = {port.gid_index for port in ports}
    if len(indexes) == 1 and None not in indexes:
        return {"NCCL_IB_GID_INDEX": str(next(iter(indexes)))}
    return {"NCCL_IB_ROCE_VERSION_NUM": "2", "NCCL_IB_ADDR_FAMILY": "AF_INET"}


def _rails(fabric: Attachment) -> dict[str, str]:
    return {"NCCL_CROSS_NIC": "0"} if fabric.rail_only else {}


def _nvlink(gpus: Sequence[Gpu]) -> dict[str, str]:
    """Let NCCL share memory over NVLink with other nodes where all cards are in one such domain, and else not try."""
    domains = {gpu.fabric.domain if gpu.fabric else None for gpu in gpus}
    is_joined = len(domains) == 1 and None not in domains
    return {"NCCL_MNNVL_ENABLE": "1", "NCCL_CUMEM_ENABLE": "1"} if is_joined else {"NCCL_MNNVL_ENABLE": "0"}


WHY: Final[Mapping[str, str]] = {
    "NCCL_IB_HCA": "exactly the ports of this fabric that carry traffic, in the order of the rails",
    "NCCL_SOCKET_IFNAME": "where the ranks first meet; exact",
    "GLOO_SOCKET_IFNAME": "the same for the groups on the CPU; Gloo knows no `=`",
    "NCCL_SOCKET_FAMILY": "the family of that interface's address",
    "NCCL_IB_GID_INDEX": "the RoCE v2 address that all ports have at this index",
    "NCCL_IB_ROCE_VERSION_NUM": "the ports have it at different indexes: NCCL looks for it by itself, from 2.21 on",
    "NCCL_IB_ADDR_FAMILY": "among addresses of this family",
    "NCCL_CROSS_NIC": "only ports of the same number reach each other",
    "NCCL_MNNVL_ENABLE": "whether the cards are in an NVLink domain over several nodes",
    "NCCL_CUMEM_ENABLE": "sharing memory over NVLink between nodes needs it",
}
"""Why each is set as it is."""
