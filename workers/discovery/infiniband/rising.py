"""Tells how much the counters of ports have risen since the look before: of an error counter only that is news."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from llmgw.core.hardware.network import Port

TELLING: Final = frozenset(
    {
        "symbol_error",
        "link_error_recovery",
        "link_downed",
        "local_link_integrity_errors",
        "port_rcv_errors",
        "port_rcv_remote_physical_errors",
        "port_rcv_constraint_errors",
        "excessive_buffer_overrun_errors",
        "port_xmit_discards",
        "port_xmit_constraint_errors",
        "port_xmit_wait",
        "out_of_sequence",
        "packet_seq_err",
        "local_ack_timeout_err",
        "rnr_nak_retry_err",
        "implied_nak_seq_err",
        "duplicate_request",
        "out_of_buffer",
        "roce_adp_retrans",
    }
)
"""Of cables, congestion and loss."""
_TRAFFIC: Final = frozenset({"port_xmit_data", "port_rcv_data", "port_xmit_packets", "port_rcv_packets"})
"""Where these fall, all were reset, also those that are higher again than before."""


class _Look(NamedTuple):
    counters: Mapping[str, int]
    at: float


class Rising:
    """The counters of the look before."""

    def __init__(self) -> None:
        """Begin with none."""
        self._last: Mapping[tuple[str, str | None], _Look] = {}

    def told(self, ports: Sequence[Port], at: float) -> tuple[Port, ...]:
        """Return the ports of a look, begun at this monotonic moment, with what has risen; keep it for the next one."""
        before = self._last
        self._last = {_whose(port): _Look(port.counters, at) for port in ports}
        return tuple(_risen(port, before.get(_whose(port)), at) for port in ports)


def _whose(port: Port) -> tuple[str, str | None]:
    """Tell an adapter from another one that got its name."""
    return port.name, port.node_guid


def _risen(port: Port, before: _Look | None, at: float) -> Port:
    if before is None or at <= before.at or _were_reset(before.counters, port.counters):
        return port
    since = {name: port.counters[name] - before.counters[name] for name in _common(before.counters, port.counters)}
    telling = {name: by for name, by in since.items() if name in TELLING}
    return msgspec.structs.replace(port, counters_since=telling, counters_since_s=round(at - before.at, 3))


def _were_reset(before: Mapping[str, int], now: Mapping[str, int]) -> bool:
    """Tell whether one has fallen; by how much any has risen since is then not known."""
    return any(now[name] < before[name] for name in _common(before, now) if name in TELLING | _TRAFFIC)


def _common(before: Mapping[str, int], now: Mapping[str, int]) -> list[str]:
    return [name for name in now if name in before]
