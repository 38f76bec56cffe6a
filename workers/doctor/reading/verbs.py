"""Reads how programs reach RDMA adapters: which device node is whose, and what `ibv_devinfo` says of the ports."""

import re
from pathlib import Path
from typing import Final

from workers.doctor.reading.words import whole
from workers.ports import Machine

_KINDS: Final = {"uverbs": Path("/sys/class/infiniband_verbs"), "umad": Path("/sys/class/infiniband_mad")}
_NODES: Final = Path("/dev/infiniband")


def node_of(machine: Machine, kind: str, hca: str, port: int | None = None) -> Path | None:
    """Return the device node of an adapter (`uverbs`) or of one of its ports (`umad`); None when there is none."""
    folder = _KINDS[kind]
    for name in machine.names_in(folder):
        is_its = name.startswith(kind) and (machine.read_text(folder / name / "ibdev") or "").strip() == hca
        if is_its and (port is None or whole(machine.read_text(folder / name / "port")) == port):
            return _NODES / name
    return None


def parse_active_mtus(text: str) -> dict[str, int]:
    """Read `ibv_devinfo`: `mlx5_0:1` → the MTU in bytes that the port uses."""
    found: dict[str, int] = {}
    hca, port = "", ""
    for name, value in re.findall(r"^\s*(hca_id|port|active_mtu):\s*(\S+)", text, re.MULTILINE):
        if name == "hca_id":
            hca = value
        elif name == "port":
            port = value
        elif (mtu := whole(value)) is not None and hca and port:
            found[f"{hca}:{port}"] = mtu
    return found
