"""The outside tools that a node asks: each found by name or path, each with a time limit of its own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from workers.ports import Machine, ToolResult
from workers.settings import NodeSettings


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool."""

    name: str
    limit_s: float
    """How long one call may take unless the settings (`tool_limits_s`) say otherwise."""
    package: str = ""
    """Of Debian and of Fedora, where both name it alike; what to install for it."""
    costs: str = ""
    """What is not known without it."""


_KNOWN: Final = (
    Tool("nvml", 20, "", "everything of the NVIDIA cards, where nvidia-smi cannot tell it either"),
    Tool("nvidia-smi", 20, "", "the NVIDIA cards where NVML does not answer"),
    Tool("cuda", 30, "", "whether CUDA starts"),
    Tool("sminfo", 5, "infiniband-diags", "which subnet manager a port obeys, so two fabrics may pass for one"),
    Tool("saquery", 10, "infiniband-diags", "whether a fabric has several masters, or no standby"),
    Tool("ibnetdiscover", 120, "infiniband-diags", "the graph of an InfiniBand fabric"),
    Tool("ibstat", 10, "infiniband-diags", "whether programs see the ports as the kernel does"),
    Tool("ib_write_bw", 60, "perftest", "the bandwidth between two nodes"),
    Tool("nvidia-imex-ctl", 10, "", "the state of the IMEX domain"),
    Tool("nv-fabricmanager", 10, "", "the fabric manager's version"),
    Tool("systemctl", 10, "systemd", "the state of services"),
    Tool("lspci", 10, "pciutils", "whether bridges keep cards and adapters apart (ACS)"),
    Tool("dmesg", 10, "util-linux", "Xid errors and what else the kernel said"),
    Tool("apt-get", 300, "", "diagnostic packages are not installed by themselves"),
    Tool("dnf", 300, "", "diagnostic packages are not installed by themselves"),
    Tool("journalctl", 15, "systemd", "the kernel's log where dmesg may not be read"),
)
TOOLS: Final[Mapping[str, Tool]] = MappingProxyType({tool.name: tool for tool in _KNOWN})
_OTHER_S: Final = 10.0


def name_of(argv: Sequence[str]) -> str:
    """Return what a tool is called, by its command line; a module that Python runs is called by its own name."""
    is_module = len(argv) > 2 and argv[1] == "-m"
    return argv[2].rpartition(".")[2] if is_module else argv[0].rpartition("/")[2]


def limit(name: str, settings: NodeSettings) -> float:
    """Return how many seconds one call of a tool may take."""
    known = TOOLS.get(name)
    return settings.tool_limits_s.get(name, known.limit_s if known else _OTHER_S)


def ask(machine: Machine, settings: NodeSettings, name: str, *arguments: str) -> ToolResult:
    """Run a tool, wherever it is; one that is not there is answered with the problem `not found`."""
    program = machine.which(settings.nvidia_smi if name == "nvidia-smi" else name)
    if program is None:
        return ToolResult(None, problem="not found")
    return machine.output((program, *arguments), limit(name, settings))
