"""Which network interfaces lead to no other node, told by the names that they are made with."""

import re
from typing import Final

_OF_THIS_HOST: Final = re.compile(
    r"lo\d*|docker.*|podman\d*|virbr.*|vnet\d+|br-[0-9a-f]{4,}|veth.*|lxc.*|lxdbr\d*|dummy\d*|ifb\d*"
    r"|cni.*|flannel.*|cali.*|cilium.*|kube-.*|nodelocaldns|weave.*|tunl\d*|tailscale\d*",
    re.ASCII,
)
"""Loopback, and what containers and virtual machines bring along; `br-` and digits is Docker's, `br-ex` anybody's."""


def is_of_this_host(name: str) -> bool:
    """Tell whether an interface leads to no other node, or to none that a fabric should be reached by."""
    return _OF_THIS_HOST.fullmatch(name) is not None
