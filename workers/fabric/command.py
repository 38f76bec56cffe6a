"""`llmgw-node fabric-test`: one end of a bandwidth test; the server ends with its time limit, whoever came or not."""

import argparse
import sys
from collections.abc import Sequence

import msgspec

from llmgw.core.hardware.network import LinkLayer, Port
from workers.fabric.bandwidth import BandwidthResult, result
from workers.ports import Machine, ToolResult

DONE, FAILED, BAD_USAGE = 0, 1, 2
_TOOL = "ib_write_bw"
_SETUP_S = 15.0
"""Beyond the measured time: to connect, and to set up both ends."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    parser.add_argument(
        "server", nargs="?", metavar="ADDRESS", help="of the other node; without it this end is the server"
    )
    parser.add_argument(
        "--port", required=True, metavar="HCA[:PORT]", help="the port of this node to test, such as mlx5_0:1"
    )
    parser.add_argument("--gid-index", type=int, metavar="N", help="for RoCE; chosen by rule without it")
    parser.add_argument("--duration-s", type=int, default=5, metavar="S", help="how long to measure (%(default)s)")
    parser.add_argument("--wait-s", type=float, default=60.0, metavar="S", help="how long a server waits (%(default)s)")
    parser.add_argument(
        "--tcp-port", type=int, default=18515, metavar="N", help="where the two ends meet (%(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(arguments: argparse.Namespace, machine: Machine, ports: Sequence[Port]) -> int:
    """Run one end; 0 for a good figure, 1 for any other, 2 for a port that cannot be tested."""
    wanted = arguments.port if ":" in arguments.port else f"{arguments.port}:1"
    port = next((port for port in ports if port.name == wanted), None)
    if wrong := _wrong(arguments, wanted, port, ports):
        print(f"llmgw-node: {wrong}", file=sys.stderr)
        return BAD_USAGE
    told = _measured(arguments, machine, port)
    if arguments.json:
        print(msgspec.json.format(msgspec.json.encode(told)).decode())
    else:
        print(f"{told.code}: {told.text}" + (f"\n{told.literal}" if told.literal else ""))
    return DONE if told.code == "bandwidth.good" else FAILED


def _wrong(arguments: argparse.Namespace, wanted: str, port: Port | None, ports: Sequence[Port]) -> str | None:
    if not 1 <= arguments.duration_s <= 600 or not 1 <= arguments.tcp_port <= 65535 or arguments.wait_s <= 0:
        return "--duration-s takes 1 to 600, --tcp-port 1 to 65535, --wait-s more than 0"
    if port is None:
        names = ", ".join(each.name for each in ports) or "none"
        return f"there is no port {wanted} on this node; there are: {names}"
    if not port.is_active:
        return f"port {wanted} is {port.state or 'in no known state'}, only an active one can be tested"
    return None


def _measured(arguments: argparse.Namespace, machine: Machine, port: Port | None) -> BandwidthResult:
    program = machine.which(_TOOL)
    if program is None or port is None:
        return result(ToolResult(None, problem="not found"), None)
    waits = 0.0 if arguments.server else arguments.wait_s
    answer = machine.output(
        (program, *_arguments(arguments, port), *([arguments.server] if arguments.server else [])),
        arguments.duration_s + _SETUP_S + waits,
    )
    return result(answer, port.rate_gbps)


def _arguments(arguments: argparse.Namespace, port: Port) -> list[str]:
    """Both ends must be told the same (perftest's usage: -D, --report_gbits, -p)."""
    told = ["-d", port.hca, "-i", str(port.port), "-p", str(arguments.tcp_port), "-D", str(arguments.duration_s)]
    gid = arguments.gid_index if arguments.gid_index is not None else port.roce_gid_index
    if port.link_layer is LinkLayer.ETHERNET and gid is not None:
        told += ["-x", str(gid)]
    return [*told, "--report_gbits", "-F"]
