"""Nodes for the checks to look at: small builders, and one whole node that is well."""

from llmgw.core.hardware.fabrics import DeclaredFabric
from llmgw.core.hardware.gpus import Driver, Gpu
from llmgw.core.hardware.network import Gid, LinkLayer, Port, PortState
from llmgw.core.units import GIB, Bytes, Seconds
from llmgw.core.wire import Inventory
from tests.fakes.machine import FakeMachine
from workers.doctor.entry import Patient
from workers.ports import DeviceNode, ToolResult
from workers.settings import NodeSettings

NOW = 1_000_000.0
OPEN = DeviceNode(231, 0, readable=True, writable=True)
SHUT = DeviceNode(231, 0, readable=False, writable=False)


OF_MACHINE = ("files", "links", "nodes", "interfaces", "environ", "disk_space", "modules", "at", "boot")


def a_patient(*, settings=None, earlier=None, ago=3600.0, tools=None, programs=(), **told):
    """A node: facts of its machine and of its inventory by name.

    `tools`: a command line, or its first word → what it prints, or a ToolResult; `ago`: seconds since the last run.
    """
    answers = {
        line: said if isinstance(said, ToolResult) else ToolResult(0, said) for line, said in (tools or {}).items()
    }
    installed = {line.split(" ")[0] for line in answers} | set(programs)
    facts = {"at": NOW, **{name: told.pop(name) for name in OF_MACHINE if name in told}}
    machine = FakeMachine(tools=answers, programs={name: name for name in installed}, **facts)
    return Patient(
        machine,
        settings or NodeSettings(id="n1"),
        Inventory(**{"devices": (), "cpu_count": 8, "memory_total": Bytes(64 * GIB), **told}),
        Seconds(NOW),
        earlier=earlier or {},
        earlier_at=Seconds(NOW - ago) if earlier is not None else None,
    )


def a_port(name="mlx5_0", **more):
    """A healthy InfiniBand port."""
    hca, _, port = name.partition(":")
    facts = {
        "hca": hca,
        "port": int(port or 1),
        "link_layer": LinkLayer.INFINIBAND,
        "state": PortState.ACTIVE,
        "physical_state": "link-up",
        "rate_gbps": 400.0,
        "width": 4,
        "speed": "NDR",
        "lid": 17,
        "subnet_manager_lid": 1,
        "hca_type": "MT4129",
        "board": "MT_0000000838",
        "firmware": "28.41.1000",
    }
    return Port(**{**facts, **more})


def a_roce_port(name="mlx5_0", netdev="eth2", address="10.1.0.5", **more):
    """A healthy RoCE port."""
    gid = "0000:0000:0000:0000:0000:ffff:0a01:0005"
    facts = {
        "link_layer": LinkLayer.ETHERNET,
        "lid": 0,
        "subnet_manager_lid": 0,
        "netdevs": (netdev,),
        "gids": (Gid(index=3, gid=gid, kind="roce-v2", netdev=netdev, ipv4=address),),
        "roce_gid_index": 3,
    }
    return a_port(name, **{**facts, **more})


def a_down_port(name="mlx5_0", physical="polling", **more):
    return a_port(name, state=PortState.DOWN, physical_state=physical, **more)


def a_gpu(index=0, **more):
    facts = {"index": index, "uuid": f"GPU-{index}", "name": "NVIDIA H100 80GB HBM3", "memory_total_bytes": 80 * GIB}
    return Gpu(**{**facts, **more})


def a_driver(**more):
    return Driver(**{"version": "570.124.06", "is_open": True, **more})


def declared(name="compute", *ports, **more):
    return NodeSettings(id="n1", fabrics=(DeclaredFabric(name=name, ports=ports, **more),))


def outcomes(checks, check_id, patient):
    """Run one check of a catalogue."""
    (check,) = (check for check in checks if check.id == check_id)
    return list(check.judge(patient))


def verdicts(checks, check_id, patient):
    """Return what one check comes to, each once."""
    return sorted({str(outcome.verdict) for outcome in outcomes(checks, check_id, patient)})


def only(checks, check_id, patient):
    """Return the one outcome of a check."""
    (outcome,) = outcomes(checks, check_id, patient)
    return outcome
