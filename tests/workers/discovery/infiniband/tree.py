"""The kernel's tree of a made-up adapter."""

import errno

from tests.fakes.machine import FakeMachine

SETUP = {"state": "4: ACTIVE", "phys_state": "5: LinkUp", "rate": "400 Gb/sec (4X NDR)", "link_layer": "InfiniBand"}
SETUP |= {"lid": "0x33bf", "sm_lid": "0x1", "cap_mask": "0xa751e848"}
NIC = {"hca_type": "MT4129", "board_id": "MT_0000000838", "fw_ver": "28.41.1000", "node_guid": "a088:c203:0010:0001"}
LOCAL = "fe80:0000:0000:0000:a088:c203:0010:0001"
ZERO = "0000:0000:0000:0000:0000:0000:0000:0000"


def mapped(a, b, c, d):
    return f"0000:0000:0000:0000:0000:ffff:{a:02x}{b:02x}:{c:02x}{d:02x}"


def a_port(hca, *, pci="0000:1a:00.0", gids=(), counters=None, number=1, **facts):
    """Files and links of one port; `gids` are (GID, type, netdev), None for an entry that is not used."""
    folder, port = f"/sys/class/infiniband/{hca}", f"/sys/class/infiniband/{hca}/ports/{number}"
    files: dict[str, str | OSError] = {f"{folder}/{name}": f"{word}\n" for name, word in NIC.items()}
    files |= {f"{port}/{name}": f"{word}\n" for name, word in {**SETUP, **facts}.items() if word is not None}
    for index, entry in enumerate(gids):
        gid, kind, netdev = entry or (ZERO, None, None)
        unused = OSError(errno.EINVAL, "Invalid argument")
        files |= {f"{port}/gids/{index}": f"{gid}\n"}
        files |= {f"{port}/gid_attrs/types/{index}": f"{kind}\n" if kind else unused}
        files |= {f"{port}/gid_attrs/ndevs/{index}": f"{netdev}\n" if netdev else unused}
        if netdev:
            files |= {f"{folder}/device/net/{netdev}/mtu": "9000\n"}
    files |= {f"{port}/{name}": f"{count}\n" for name, count in (counters or {}).items()}
    return files, {f"{folder}/device": f"../../../{pci}"}


def a_machine(*ports, **more):
    files: dict[str, str | OSError] = {}
    links: dict[str, str] = {}
    for its_files, its_links in ports:
        files |= its_files
        links |= its_links
    return FakeMachine(files=files, links=links | more.pop("links", {}), **more)
