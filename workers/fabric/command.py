"""`llmgw-node fabric-test`: one end of a bandwidth test, which is gone with its time limit or with this process."""

import argparse
import os
import re
import sys
from collections.abc import Mapping, Sequence
from ipaddress import IPv6Address, ip_address, ip_interface
from typing import Final

import msgspec

from llmgw.core.hardware.bandwidth import BandwidthResult, Role, Verdict
from llmgw.core.hardware.network import LinkLayer, Port
from workers import tools
from workers.fabric.bandwidth import failed, judged
from workers.fabric.failures import Failure
from workers.ports import Machine, ToolResult
from workers.settings import NodeSettings

DONE, FAILED, BAD_USAGE = 0, 1, 2
TOOL: Final = "ib_write_bw"
LEASH: Final = "workers.fabric.leash"
_SETUP_S: Final = 15.0
"""Beyond the measured time: to connect, and to set up both ends."""
_HELP_S: Final = 5.0
_HOST: Final = re.compile(r"[A-Za-z0-9:][A-Za-z0-9._:%-]*")
_USAGE: Final = frozenset({"bandwidth.usage", "bandwidth.no-such-port", "bandwidth.no-such-gid"})
"""Codes of what cannot be meant like this."""


def add_arguments(parser: argparse.ArgumentParser) -> tuple[argparse.ArgumentParser, ...]:
    """Say what the command takes; returns the parsers of its two roles, for what all commands of a node take."""
    roles = parser.add_subparsers(dest="role", required=True)
    server = roles.add_parser(Role.SERVER, help="wait for the client; start it first")
    client = roles.add_parser(Role.CLIENT, help="measure to a server that waits")
    client.add_argument("peer", metavar="ADDRESS", help="of the node where the server waits")
    for each in (server, client):
        _add_common(each)
    server.add_argument("--bind", metavar="ADDRESS", help="the address of this node to wait at; all, without it")
    server.add_argument("--wait", type=float, metavar="S", help="seconds to wait for the client (the tool's limit: 60)")
    return server, client


def _add_common(role: argparse.ArgumentParser) -> None:
    role.add_argument("--device", required=True, metavar="HCA", help="the adapter of this node to test, such as mlx5_0")
    role.add_argument("--port", type=int, default=1, metavar="N", help="its port (%(default)s)")
    role.add_argument(
        "--gid-index", default="auto", metavar="N|auto", help="this node's address for RoCE (%(default)s: by rule)"
    )
    role.add_argument("--duration", type=int, default=5, metavar="S", help="seconds to measure (%(default)s)")
    role.add_argument(
        "--listen-port", type=int, default=18515, metavar="P", help="TCP port where the server waits (%(default)s)"
    )
    role.add_argument("--qps", type=int, default=1, metavar="N", help="queue pairs; a fast port needs 4 (%(default)s)")
    role.add_argument("--json", action="store_true", help="print the result as JSON")


def run(arguments: argparse.Namespace, machine: Machine, settings: NodeSettings, ports: Sequence[Port]) -> int:
    """Run one end: 0 for a figure that is good or slow, 1 for any other and for none, 2 for what cannot be meant."""
    try:
        told = run_fabric_test(arguments, machine, settings, ports)
    except KeyboardInterrupt:
        print(f"llmgw-node: interrupted, {TOOL} is ended", file=sys.stderr)
        return FAILED
    if arguments.json:
        print(msgspec.json.format(msgspec.json.encode(told)).decode())
    else:
        print("\n".join(_lines(told)), file=sys.stderr if told.code in _USAGE else sys.stdout)
    if told.code in _USAGE:
        return BAD_USAGE
    return FAILED if told.verdict is Verdict.FAILED else DONE


def run_fabric_test(
    arguments: argparse.Namespace, machine: Machine, settings: NodeSettings, ports: Sequence[Port]
) -> BandwidthResult:
    """Run one end and return what it came to; raises nothing."""
    name = arguments.device if ":" in arguments.device else f"{arguments.device}:{arguments.port}"
    port = next((port for port in ports if port.name == name), None)
    asked = _asked(arguments, machine, port, name)
    wrong = _meaning(arguments, machine) or _fitness(arguments, port, name, ports)
    if wrong or port is None:
        return failed(asked, wrong or _no_such_port(name, ports))
    program = machine.which(TOOL)
    if program is None:
        cure = f"install {tools.TOOLS[TOOL].package}, or name its folder by --tools"
        return failed(asked, Failure("bandwidth.missing", f"{TOOL} is not installed", cure))
    addressed = _addressed(arguments, machine, program)
    return judged(asked, _measured(arguments, machine, settings, [program, *_arguments(arguments, port), *addressed]))


def _asked(arguments: argparse.Namespace, machine: Machine, port: Port | None, name: str) -> BandwidthResult:
    return BandwidthResult(
        code="",
        verdict=Verdict.FAILED,
        role=Role(arguments.role),
        port=name,
        peer=getattr(arguments, "peer", None),
        gid_index=_gid_index(arguments, port),
        duration_s=arguments.duration,
        at=machine.now(),
        expected_gbps=port.rate_gbps if port else None,
    )


# --- what cannot be tested ----------------------------------------------------------------------------------------


def _meaning(arguments: argparse.Namespace, machine: Machine) -> Failure | None:
    """Find what can be meant on no node."""
    wait, bind, peer = (getattr(arguments, name, None) for name in ("wait", "bind", "peer"))
    ranges: Mapping[str, bool] = {
        "--duration takes 1 to 600 seconds": 1 <= arguments.duration <= 600,
        "--listen-port takes 1 to 65535": 1 <= arguments.listen_port <= 65535,
        "--qps takes 1 to 64": 1 <= arguments.qps <= 64,
        "--wait takes more than 0 seconds, up to an hour": wait is None or 0 < wait <= 3600,
        "--gid-index takes a number or auto": re.fullmatch(r"auto|\d{1,3}", arguments.gid_index) is not None,
        f"{peer} is no host name and no IP address": peer is None or _HOST.fullmatch(peer) is not None,
        f"--bind takes an address of this node, which {bind} is not": bind is None or _is_ours(bind, machine),
    }
    return next(
        (Failure("bandwidth.usage", text, "see --help") for text, is_right in ranges.items() if not is_right), None
    )


def _is_ours(address: str, machine: Machine) -> bool:
    try:
        wanted = ip_address(address)
        return any(ip_interface(own).ip == wanted for each in machine.addresses().values() for own in each)
    except ValueError:
        return False


def _fitness(arguments: argparse.Namespace, port: Port | None, name: str, ports: Sequence[Port]) -> Failure | None:
    """Find what keeps this port from being tested."""
    if port is None:
        return _no_such_port(name, ports)
    if not port.is_active:
        text = f"port {name} is {port.state or 'in no known state'}, only an active one can be tested"
        return Failure("bandwidth.port-down", text, "see to the cable and the subnet manager: `llmgw-node doctor`")
    if port.link_layer is LinkLayer.ETHERNET and _gid_index(arguments, port) is None:
        text = f"port {name} has no RoCE v2 address that reaches other nodes"
        return Failure("bandwidth.no-gid", text, "give its interface an IPv4 address, or name one by --gid-index")
    indexes = [gid.index for gid in port.gids]
    if arguments.gid_index != "auto" and indexes and int(arguments.gid_index) not in indexes:
        text = f"port {name} has no address at index {arguments.gid_index}; there are: {', '.join(map(str, indexes))}"
        return Failure("bandwidth.no-such-gid", text, "leave --gid-index out, or name one of these")
    return None


def _no_such_port(name: str, ports: Sequence[Port]) -> Failure:
    names = ", ".join(each.name for each in ports) or "none"
    return Failure(
        "bandwidth.no-such-port", f"there is no port {name} on this node; there are: {names}", "name another"
    )


# --- the run ------------------------------------------------------------------------------------------------------


def _measured(
    arguments: argparse.Namespace, machine: Machine, settings: NodeSettings, argv: Sequence[str]
) -> ToolResult:
    """Run the tool on a leash, so that it ends with this process, however that ends."""
    wait = getattr(arguments, "wait", None) or tools.limit(TOOL, settings)
    waits_s = wait if arguments.role == Role.SERVER else 0.0
    leashed = (sys.executable, "-m", LEASH, str(os.getpid()), *argv)
    return machine.output(leashed, arguments.duration + _SETUP_S + waits_s)


def _arguments(arguments: argparse.Namespace, port: Port) -> list[str]:
    """Both ends must be told the same duration, queue pairs and unit (perftest's usage)."""
    told = ["-d", port.hca, "-i", str(port.port), "-p", str(arguments.listen_port), "-D", str(arguments.duration)]
    gid = _gid_index(arguments, port)
    told += ["-x", str(gid)] if gid is not None else []
    told += ["-q", str(arguments.qps)] if arguments.qps > 1 else []
    return [*told, "--report_gbits", "-F"]


def _addressed(arguments: argparse.Namespace, machine: Machine, program: str) -> list[str]:
    """Say where to meet; the flags for that have changed their names, so the tool is asked for those it knows."""
    bind, peer = getattr(arguments, "bind", None), getattr(arguments, "peer", None)
    is_six = _is_six(bind or peer)
    usage = machine.output((program, "--help"), _HELP_S) if bind or is_six else ToolResult(0)
    known = usage.out + usage.err
    six = "--ipv6" if "--ipv6 " in known and "--ipv6-addr" not in known else "--ipv6-addr"
    source = "--source_ip" if re.search(r"--source_ip\b", known) else "--bind_source_ip"
    return [*([six] if is_six else []), *([f"{source}={bind}"] if bind else []), *([peer] if peer else [])]


def _gid_index(arguments: argparse.Namespace, port: Port | None) -> int | None:
    """Return the index that is told, else the one chosen by rule; InfiniBand needs none."""
    if arguments.gid_index.isdecimal():
        return int(arguments.gid_index)
    return port.roce_gid_index if port and port.link_layer is LinkLayer.ETHERNET else None


def _is_six(address: str | None) -> bool:
    try:
        return isinstance(ip_address(address or ""), IPv6Address)
    except ValueError:
        return False


# --- text ---------------------------------------------------------------------------------------------------------


def _lines(told: BandwidthResult) -> list[str]:
    where = f"{told.port} to {told.peer}" if told.peer else told.port
    if told.code in _USAGE:
        return [f"llmgw-node: {told.text} – {told.cure}"]
    lines = [f"{where}: {told.verdict}: {told.text}" + (f" ({told.code})" if told.verdict is Verdict.FAILED else "")]
    lines += [f"  cure: {told.cure}"] if told.cure else []
    return lines + [f"  {TOOL} said: {line}" for line in told.literal.splitlines() if line.strip()]
