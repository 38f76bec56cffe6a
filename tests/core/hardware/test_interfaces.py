"""Interfaces that lead to other nodes, and those that only sound as if they did not."""

import pytest

from llmgw.core.hardware.interfaces import is_of_this_host

HERE = [
    "lo",
    "docker0",
    "docker_gwbridge",
    "br-1a2b3c4d5e6f",
    "veth12ab34c",
    "virbr0",
    "virbr0-nic",
    "vnet3",
    "cni0",
    "cni-podman0",
    "flannel.1",
    "cali1a2b3c4d5e6",
    "cilium_host",
    "kube-ipvs0",
    "tunl0",
    "tailscale0",
    "dummy0",
]
ELSEWHERE = [
    "lom1",
    "login0",
    "lo-rail",
    "br0",
    "br-ex",
    "br-data",
    "eth0",
    "eno1",
    "bond0.100",
    "ibp13s0",
    "enp1s0f0np0",
    "mycni0",
    "xveth0",
]


@pytest.mark.parametrize("name", HERE)
def test_what_containers_bring_along_is_of_this_host(name):
    assert is_of_this_host(name)


@pytest.mark.parametrize("name", ELSEWHERE)
def test_what_only_sounds_alike_leads_to_other_nodes(name):
    assert not is_of_this_host(name)
