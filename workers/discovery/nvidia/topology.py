"""How cards and adapters are joined inside a machine, and which cards reach each other by NVLink alone."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Final

from llmgw.core.hardware.findings import Problem, cut
from llmgw.core.hardware.gpus import Gpu, Pair, Topology
from llmgw.core.hardware.network import Port
from workers import tools
from workers.discovery.nvidia.pci_cards import DEVICES
from workers.ports import Machine, ToolResult
from workers.settings import NodeSettings

_ANSI: Final = re.compile(r"\x1b\[[0-9;]*m")
_NODE: Final = re.compile(r"(?:GPU|NIC)\d+|mlx\d+_\S+|(?:ib|roce|ibp|rdma)\w*\d\w*")
_CELL: Final = re.compile(r"X|NV\d+|PIX|PXB|PHB|NODE|SYS|SOC|N/A|-")
_LINKED: Final = re.compile(r"NV\d+")
_CPUS: Final = re.compile(r"\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*")
_LEGEND: Final = re.compile(r"^\s*(NIC\d+):\s*(\S+)\s*$")


def find(
    machine: Machine, settings: NodeSettings, gpus: Sequence[Gpu], ports: Sequence[Port] = ()
) -> tuple[Topology | None, tuple[Problem, ...]]:
    """Ask nvidia-smi for the matrix; where it does not tell, read the kernel's tree of PCI devices."""
    if not gpus:
        return None, ()
    answer = tools.ask(machine, settings, "nvidia-smi", "topo", "-m")
    told = parse(answer.out) if answer.ok else None
    problems: tuple[Problem, ...] = ()
    if told is None:
        told = Topology(pairs=tuple(_by_kernel(machine, gpus, ports)), numa=_numa(machine, gpus))
        is_missed = len(gpus) > 1 and not told.pairs and answer.problem != "not found"
        problems = (_unknown(answer),) if is_missed else ()
    domains = nvlink_domains(gpus, told)
    return Topology(pairs=told.pairs, cpus=told.cpus, numa=told.numa, nvlink_domains=domains), problems


def _unknown(answer: ToolResult) -> Problem:
    why = f": {answer.problem}" if answer.problem else " does not tell it"
    text = f"how the cards are joined is not known: nvidia-smi topo -m{why}"
    return Problem(code=f"nvidia-smi.{answer.why or 'garbage'}", fact="topology", text=text, literal=cut(answer.out))


# --- the matrix ---------------------------------------------------------------------------------------------------


def parse(text: str) -> Topology | None:
    """Read `topo -m`, whose columns differ by version; None for what has no such matrix.

    The head names first the columns of the matrix, then those of affinity; rows of adapters end with the matrix, cells
    may be missing, and colours may be in between.
    """
    lines = [_ANSI.sub("", line) for line in text.splitlines()]
    head = next((at for at, line in enumerate(lines) if _NODE.match(line.strip()) and "GPU" in line), None)
    if head is None:
        return None
    columns = [word for word in lines[head].split() if _NODE.fullmatch(word)]
    called = {found[1]: found[2] for line in lines if (found := _LEGEND.match(line))}
    rows = [words for line in lines[head + 1 :] if (words := line.split()) and words[0] in columns]
    pairs = {frozenset(pair[:2]): pair for row in rows for pair in _cells(row, columns)}
    return Topology(
        pairs=tuple(Pair(a=called.get(a, a), b=called.get(b, b), by=by) for a, b, by in pairs.values()),
        cpus={row[0]: cpus for row in rows if (cpus := _affinity(row, columns))},
        numa={row[0]: node for row in rows if (node := _node(row, columns)) is not None},
    )


def _cells(row: Sequence[str], columns: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Return the row's cells as pairs, the one that stands first in the head first."""
    for other, cell in zip(columns, row[1 : 1 + len(columns)], strict=False):
        if not _CELL.fullmatch(cell):
            return
        if other != row[0] and cell not in {"X", "N/A", "-"}:
            a, b = sorted((row[0], other), key=columns.index)
            yield a, b, cell


def _affinity(row: Sequence[str], columns: Sequence[str]) -> str | None:
    rest = row[1 + len(columns) :]
    return rest[0] if rest and row[0].startswith("GPU") and _CPUS.fullmatch(rest[0]) else None


def _node(row: Sequence[str], columns: Sequence[str]) -> int | None:
    rest = row[2 + len(columns) :]
    return int(rest[0]) if rest and row[0].startswith("GPU") and rest[0].isdecimal() else None


# --- by the kernel ------------------------------------------------------------------------------------------------


def _by_kernel(machine: Machine, gpus: Sequence[Gpu], ports: Sequence[Port]) -> Iterator[Pair]:
    """Tell how far two devices are apart by what their places in the tree of PCI devices share."""
    named = {f"GPU{gpu.index}": gpu.pci_address for gpu in gpus}
    named |= {port.hca: port.pci_address for port in ports}
    places = {name: place for name, address in named.items() if (place := place_of(machine, address))}
    nodes = {name: numa_of(machine, named[name]) for name in places}
    for a, b in combinations(places, 2):
        yield Pair(a=a, b=b, by=distance(places[a], places[b], nodes[a], nodes[b]))


def place_of(machine: Machine, address: str | None) -> tuple[str, ...]:
    """Return the bridges above a device and the device itself: `("pci0000:15", "0000:15:01.0", "0000:16:00.0")`."""
    link = machine.link(DEVICES / address) if address else None
    return tuple(part for part in (link or "").split("/") if ":" in part)


def numa_of(machine: Machine, address: str | None) -> int | None:
    """Return a device's NUMA node; None where the kernel does not know it, which it writes as -1."""
    text = (machine.read_text(DEVICES / address / "numa_node") or "").strip() if address else ""
    return int(text) if text.isdecimal() else None


def distance(a: Sequence[str], b: Sequence[str], node_a: int | None, node_b: int | None) -> str:
    """Say it in the words of nvidia-smi: PIX one bridge, PXB several, PHB the host bridge, NODE, SYS."""
    shared = next((at for at, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    if shared == 0:
        return "NODE" if node_a is not None and node_a == node_b else "SYS"
    if shared == 1:
        return "PHB"
    bridges = max(len(a), len(b)) - shared - 1
    return "PIX" if bridges <= 1 else "PXB"


def _numa(machine: Machine, gpus: Sequence[Gpu]) -> dict[str, int]:
    found = {f"GPU{gpu.index}": numa_of(machine, gpu.pci_address) for gpu in gpus}
    return {name: node for name, node in found.items() if node is not None}


# --- NVLink domains -----------------------------------------------------------------------------------------------


def nvlink_domains(gpus: Sequence[Gpu], topology: Topology) -> tuple[tuple[str, ...], ...]:
    """Return the UUIDs of cards that reach each other by NVLink alone; one that is broken, cut or alone is in none."""
    well = [gpu for gpu in gpus if gpu.uuid and not gpu.failed and not gpu.mig_enabled and _is_joined(gpu)]
    linked = _linked(well, topology)
    domains: list[list[Gpu]] = []
    for gpu in well:
        home = next(
            (domain for domain in domains if all(frozenset((gpu.uuid, each.uuid)) in linked for each in domain)), None
        )
        if home is None:
            domains.append([gpu])
        else:
            home.append(gpu)
    return tuple(tuple(gpu.uuid or "" for gpu in domain) for domain in domains if len(domain) > 1)


def _is_joined(gpu: Gpu) -> bool:
    fabric = gpu.fabric
    return fabric is None or fabric.state is None or fabric.state != "completed" or fabric.status in {"success", None}


def _linked(gpus: Sequence[Gpu], topology: Topology) -> set[frozenset[str | None]]:
    """Return the pairs that are joined by NVLink: as the cards tell, and as the matrix does."""
    by_name: Mapping[str, str | None] = {f"GPU{gpu.index}": gpu.uuid for gpu in gpus}
    matrix = {
        frozenset((by_name[pair.a], by_name[pair.b]))
        for pair in topology.pairs
        if pair.a in by_name and pair.b in by_name and _LINKED.fullmatch(pair.by)
    }
    by_address = {gpu.pci_address: gpu.uuid for gpu in gpus if gpu.pci_address}
    direct = {
        frozenset((gpu.uuid, by_address[link.remote_pci_address]))
        for gpu in gpus
        for link in gpu.nvlinks or ()
        if link.active and link.remote_pci_address in by_address
    }
    switched = [gpu.uuid for gpu in gpus if any(link.active and link.remote == "switch" for link in gpu.nvlinks or ())]
    return matrix | direct | {frozenset(pair) for pair in combinations(switched, 2)}
