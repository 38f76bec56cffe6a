"""IMEX, by which cards of several nodes share memory over NVLink: the service, its domain, and the channel devices."""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from llmgw.core.hardware.findings import Finding, Problem, Severity, cut
from llmgw.core.hardware.gpus import Gpu, Imex, ImexNode
from workers import tools
from workers.discovery import systemd
from workers.ports import Machine, ToolResult
from workers.settings import NodeSettings

UNIT: Final = "nvidia-imex.service"
CONFIG: Final = "/etc/nvidia-imex/config.cfg"
CHANNELS: Final = Path("/dev/nvidia-caps-imex-channels")
_TOOL: Final = "nvidia-imex-ctl"
_NODE: Final = re.compile(
    r"^[ \t]*Node #(\d+)[ \t]*(\*)?[ \t]*-[ \t]*(\S+)[ \t]*(?:\*[ \t]*)?-[ \t]*([A-Z_]+)"
    r"(?:[ \t]*-[ \t]*Version:[ \t]*(\S+))?",
    re.MULTILINE,
)
_DOMAIN: Final = re.compile(r"Domain State:\s*(\w+)")
_ROW: Final = re.compile(r"^[ \t]*(\d+)((?:[ \t]+[A-Z*])+)[ \t\r]*$", re.MULTILINE)
_STATE: Final = re.compile(r"^[ \t]*([A-Z][A-Z_]+)[ \t\r]*$", re.MULTILINE)
_CHANNEL: Final = re.compile(r"channel(\d+)")
_MAJOR: Final = re.compile(r"^[ \t]*(\d+)[ \t]+nvidia-caps-imex-channels[ \t]*$", re.MULTILINE)


def find(machine: Machine, settings: NodeSettings, gpus: Sequence[Gpu]) -> tuple[Imex | None, tuple[Problem, ...]]:
    """Ask where a card is in an NVLink domain over several nodes, or the service is there; else there is nothing."""
    is_member = any(gpu.fabric and gpu.fabric.domain for gpu in gpus)
    service = systemd.service(machine, settings, UNIT) if gpus else None
    is_there = service is not None and service.state not in {None, "not-found"}
    if not is_member and not is_there:
        return None, ()
    own = tools.ask(machine, settings, _TOOL, "-c", CONFIG, "-q")
    whole = tools.ask(machine, settings, _TOOL, "-c", CONFIG, "-N")
    told = parse_domain(whole.out)
    problems = () if told else (_unknown(whole),)
    told = told or Imex()
    return (
        Imex(
            service=service,
            state=parse_state(own.out),
            domain_state=told.domain_state,
            nodes=told.nodes,
            unconnected=told.unconnected,
            channels=_channels(machine),
            channel_major=_major(machine),
        ),
        problems,
    )


def _unknown(answer: ToolResult) -> Problem:
    why = f": {answer.problem}" if answer.problem else " does not tell it"
    text = f"the state of the IMEX domain is not known: {_TOOL} -N{why}"
    said = cut(answer.out or answer.err)
    return Problem(code=f"{_TOOL}.{answer.why or 'garbage'}", fact="imex domain", text=text, literal=said)


def parse_state(text: str) -> str | None:
    """Read `-q`: the state of this node."""
    found = _STATE.search(text)
    return found[1] if found else None


def parse_domain(text: str) -> Imex | None:
    """Read `-N`, with or without versions, as text or as JSON; None for what is neither."""
    if text.lstrip().startswith("{"):
        return _from_json(text)
    nodes = tuple(ImexNode(address=found[3], state=found[4], version=found[5]) for found in _NODE.finditer(text))
    domain = _DOMAIN.search(text)
    if not nodes and domain is None:
        return None
    return Imex(domain_state=domain[1] if domain else None, nodes=nodes, unconnected=tuple(_unconnected(text)))


def _unconnected(text: str) -> Iterator[tuple[int, int]]:
    """Read the table: a row's node sees a column's; every pair must be connected both ways."""
    table = text.partition("From\\To")[2]
    for row in _ROW.finditer(table):
        for other, cell in enumerate(row[2].split()):
            if cell != "C":
                yield int(row[1]), other


def _from_json(text: str) -> Imex | None:
    try:
        told = json.loads(text)
        nodes = told.get("nodes") or {}
        listed = list(nodes.values()) if isinstance(nodes, dict) else list(nodes)
        return Imex(
            domain_state=_text(told.get("status") or told.get("domainState")),
            nodes=tuple(
                ImexNode(
                    address=str(node.get("host") or node.get("hostName") or "?"),
                    state=str(node.get("status") or "?"),
                    version=_text(node.get("version")),
                )
                for node in listed
            ),
            unconnected=tuple(_json_unconnected(listed)),
        )
    except (ValueError, AttributeError, TypeError):
        return None


def _json_unconnected(nodes: Sequence[dict[str, object]]) -> Iterator[tuple[int, int]]:
    for index, node in enumerate(nodes):
        others = node.get("connections") or {}
        pairs = others.items() if isinstance(others, dict) else enumerate(others if isinstance(others, list) else ())
        for other, connection in pairs:
            status = connection.get("status") if isinstance(connection, dict) else connection
            if status != "CONNECTED" and str(other).isdecimal():
                yield index, int(other)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _channels(machine: Machine) -> tuple[int, ...]:
    found = (_CHANNEL.fullmatch(name) for name in machine.names_in(CHANNELS))
    return tuple(sorted(int(each[1]) for each in found if each))


def _major(machine: Machine) -> int | None:
    """Read the major number that the kernel gave; it differs from node to node, and may after each boot."""
    found = _MAJOR.search(machine.read_text(Path("/proc/devices")) or "")
    return int(found[1]) if found else None


def findings(imex: Imex | None, gpus: Sequence[Gpu], machine: Machine) -> Iterator[Finding]:
    """Say what keeps cards from sharing memory with those of other nodes; within this node they work all the same."""
    if imex is None or not any(gpu.fabric and gpu.fabric.domain for gpu in gpus):
        return
    if imex.state is None:
        cure = "install nvidia-imex and start it; where it is there, see why `nvidia-imex-ctl` does not answer"
        yield _finding("imex.down", "whether IMEX runs here is not known", cure)
    elif imex.state != "READY":
        yield _finding("imex.down", f"IMEX is {imex.state} here", "`systemctl restart nvidia-imex`")
    if imex.domain_state not in {"UP", None}:
        late = [f"{node.address} ({node.state})" for node in imex.nodes if node.state != "READY"]
        who = f": {', '.join(late[:8])}" if late else ""
        text = f"the IMEX domain is {imex.domain_state}{who}"
        yield _finding("imex.degraded", text, "see to the members that are not READY: `nvidia-imex-ctl -N`")
    if imex.unconnected:
        pairs = ", ".join(f"{a}→{b}" for a, b in imex.unconnected[:8])
        cure = "see to firewalls between them, and that nodes_config.cfg is the same on all"
        yield _finding("imex.unconnected", f"members of the IMEX domain are not connected: {pairs}", cure)
    versions = sorted({node.version for node in imex.nodes if node.version})
    if len(versions) > 1:
        yield _finding("imex.versions", f"IMEX runs in versions {', '.join(versions)}", "install one version on all")
    yield from _channel_findings(imex, machine)


def _channel_findings(imex: Imex, machine: Machine) -> Iterator[Finding]:
    if not imex.channels:
        cure = f"`mknod {CHANNELS}/channel0 c {imex.channel_major or '<major>'} 0`, in a unit that runs at boot"
        yield _finding("imex.no-channel", "there is no IMEX channel device", cure)
        return
    node = machine.device_node(CHANNELS / f"channel{imex.channels[0]}")
    if node and imex.channel_major and node.major != imex.channel_major:
        text = f"the IMEX channel device has major number {node.major}, the kernel's is {imex.channel_major}"
        yield _finding("imex.stale-channel", text, "delete it and make it anew: it is of an earlier boot")


def _finding(code: str, text: str, cure: str) -> Finding:
    costs = "engines over several nodes of this NVLink domain end with an error of NCCL (MNNVL)"
    return Finding(code, text, severity=Severity.WARN, costs=costs, cure=cure)
