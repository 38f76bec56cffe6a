"""How cards and adapters are joined, from every shape of the matrix and from the kernel's tree."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from llmgw.core.hardware.gpus import FabricState, Gpu, GpuFabric, NvLink, Topology
from llmgw.core.hardware.network import Port
from tests.fakes.machine import FakeMachine
from workers.discovery.nvidia import topology
from workers.discovery.nvidia.topology import distance, nvlink_domains
from workers.ports import ToolResult
from workers.settings import NodeSettings


def parse(text):
    return topology.parse(text)


def find(*args):
    return topology.find(*args)


NEW = """\t\x1b[4mGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m
GPU0\t X \tNV12\tPXB\tSYS\t48-63,176-191\t3\t\tN/A
GPU1\tNV12\t X \tSYS\tPIX\t0-15\t0\t\tN/A
NIC0\tPXB\tSYS\t X \tSYS\t\t\t\t
NIC1\tSYS\tPIX\tSYS\t X \t\t\t\t

Legend:
  X    = Self
NIC Legend:
  NIC0: mlx5_0
  NIC1: mlx5_10
"""
OLD = """        GPU0    GPU1    mlx5_0  CPU Affinity
GPU0     X      NV6     PHB     0-19
GPU1    NV6      X      NODE    0-19
mlx5_0  PHB     NODE     X
"""


def pairs(told):
    return {(pair.a, pair.b): pair.by for pair in told.pairs}


def test_adapters_are_called_by_their_names():
    told = parse(NEW)
    assert pairs(told) == {
        ("GPU0", "GPU1"): "NV12",
        ("GPU0", "mlx5_0"): "PXB",
        ("GPU0", "mlx5_10"): "SYS",
        ("GPU1", "mlx5_0"): "SYS",
        ("GPU1", "mlx5_10"): "PIX",
        ("mlx5_0", "mlx5_10"): "SYS",
    }
    assert (told.cpus, told.numa) == ({"GPU0": "48-63,176-191", "GPU1": "0-15"}, {"GPU0": 3, "GPU1": 0})


def test_older_drivers_name_the_adapters_in_the_head():
    told = parse(OLD)
    assert pairs(told)[("GPU1", "mlx5_0")] == "NODE"
    assert (told.cpus["GPU0"], told.numa) == ("0-19", {})


def test_forty_adapters_fit():
    nics = [f"NIC{number}" for number in range(40)]
    head = "\t".join(["", "GPU0", *nics, "CPU Affinity"])
    row = "\t".join(["GPU0", " X ", *["SYS"] * 39, "PIX", "0-3"])
    told = parse(f"{head}\n{row}\n")
    assert (len(told.pairs), pairs(told)[("GPU0", "NIC39")], told.cpus) == (40, "PIX", {"GPU0": "0-3"})


def test_missing_cells_cost_themselves():
    assert pairs(parse("\tGPU0\tGPU1\nGPU0\t X\nGPU1\tNV4\t X\n")) == {("GPU0", "GPU1"): "NV4"}


def test_what_is_no_matrix_is_none():
    assert parse("") is None
    assert parse("Invalid combination of input arguments.") is None


@given(
    st.lists(st.sampled_from([*NEW.splitlines(), *OLD.splitlines(), "", "GPU0", "GPU9 X X"]), max_size=12),
    st.text(max_size=40),
)
def test_whatever_is_printed_is_read_or_not(lines, noise):
    told = parse("\n".join([*lines, noise]))
    assert told is None or all(pair.a != pair.b for pair in told.pairs)


# --- by the kernel

A, B, C = "0000:16:00.0", "0000:17:00.0", "0000:97:00.0"
TREE = {
    f"/sys/bus/pci/devices/{A}": f"../../../devices/pci0000:15/0000:15:01.0/{A}",
    f"/sys/bus/pci/devices/{B}": f"../../../devices/pci0000:15/0000:15:02.0/{B}",
    f"/sys/bus/pci/devices/{C}": f"../../../devices/pci0000:96/0000:96:01.0/{C}",
}


def test_without_nvidia_smi_the_kernels_tree_tells():
    nodes = {f"/sys/bus/pci/devices/{place}/numa_node": node for place, node in ((A, "0\n"), (B, "0\n"), (C, "-1\n"))}
    machine = FakeMachine(links=TREE, files=nodes)
    gpus = (Gpu(index=0, uuid="GPU-0", pci_address=A), Gpu(index=1, uuid="GPU-1", pci_address=C))
    told, problems = find(machine, NodeSettings(), gpus, (Port(hca="mlx5_0", pci_address=B),))
    assert pairs(told) == {("GPU0", "GPU1"): "SYS", ("GPU0", "mlx5_0"): "PHB", ("GPU1", "mlx5_0"): "SYS"}
    assert (told.numa, problems) == ({"GPU0": 0}, ())


def test_distances_have_nvidia_smis_words():
    switch = ("pci0000:15", "0000:15:01.0", "0000:16:00.0")
    assert distance((*switch, "0000:17:00.0", "a"), (*switch, "0000:17:01.0", "b"), 0, 0) == "PIX"
    assert distance((*switch, "x", "y", "a"), (*switch, "z", "w", "b"), 0, 0) == "PXB"
    assert distance(("pci0", "a"), ("pci0", "b"), 0, 0) == "PHB"
    assert distance(("pci0", "a"), ("pci1", "b"), 0, 0) == "NODE"
    assert distance(("pci0", "a"), ("pci1", "b"), None, None) == "SYS"


def test_a_matrix_that_cannot_be_read_is_a_problem():
    machine = FakeMachine(programs={"nvidia-smi": "nvidia-smi"}, tools={"nvidia-smi": ToolResult(0, "?")})
    two = (Gpu(index=0, uuid="GPU-0"), Gpu(index=1, uuid="GPU-1"))
    told, (problem,) = find(machine, NodeSettings(), two)
    assert (told.pairs, problem.code, problem.literal) == ((), "nvidia-smi.garbage", "?")
    machine.tools = {"nvidia-smi": ToolResult(None, problem="no answer within 20 s")}
    assert find(machine, NodeSettings(), two)[1][0].code == "nvidia-smi.timeout"
    assert find(machine, NodeSettings(), two[:1])[1] == (), "one card is joined with none"


def test_no_card_has_no_topology():
    assert find(FakeMachine(), NodeSettings(), ()) == (None, ())


# --- domains


def card(number, **facts):
    return Gpu(index=number, uuid=f"GPU-{number}", pci_address=f"0000:0{number}:00.0", **facts)


def test_all_that_are_joined_pairwise_are_one_domain():
    matrix = parse("\tGPU0\tGPU1\tGPU2\tGPU3\nGPU0\tX\tNV4\tSYS\tSYS\nGPU2\tSYS\tSYS\tX\tNV4\n")
    assert nvlink_domains([card(n) for n in range(4)], matrix) == (("GPU-0", "GPU-1"), ("GPU-2", "GPU-3"))


def test_cards_on_switches_are_one_domain():
    link = NvLink(number=0, active=True, remote="switch")
    assert nvlink_domains([card(n, nvlinks=(link,)) for n in range(3)], Topology()) == (("GPU-0", "GPU-1", "GPU-2"),)


def test_links_name_the_card_at_their_other_end():
    pair = [card(0, nvlinks=(NvLink(number=0, active=True, remote="gpu", remote_pci_address="0000:01:00.0"),)), card(1)]
    assert nvlink_domains(pair, Topology()) == (("GPU-0", "GPU-1"),)


def test_one_that_is_lost_cut_or_not_well_on_its_fabric_is_in_no_domain():
    link = NvLink(number=0, active=True, remote="switch")
    broken = GpuFabric(state=FabricState.COMPLETED, status="insufficient resources")
    gpus = [card(n, nvlinks=(link,)) for n in range(5)]
    for at, facts in ((1, {"failed": "GPU is lost"}), (2, {"mig_enabled": True}), (3, {"fabric": broken})):
        gpus[at] = msgspec.structs.replace(gpus[at], **facts)
    assert nvlink_domains(gpus, Topology()) == (("GPU-0", "GPU-4"),)
