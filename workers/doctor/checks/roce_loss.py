"""Checks of what keeps RoCE's packets from being lost: priorities that pause, trust, congestion marks, pauses."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from llmgw.core.hardware.findings import Severity
from llmgw.core.hardware.network import Port
from llmgw.core.units import counted, duration
from workers import tools
from workers.doctor.checks.adapters import each, nothing, roce_ports
from workers.doctor.entry import Check, Fix, Group, Outcome, Patient, failed, passed, unknown, warned
from workers.doctor.reading.interfaces import FOLDER, members
from workers.doctor.reading.qos import parse_dcb_pfc, parse_mlnx_pfc, parse_mlnx_trust, parse_pauses
from workers.doctor.reading.words import listed, unanswered, whole
from workers.ports import ToolResult

_NO_ROCE: Final = "there is no active RoCE port"
_PRIORITIES: Final = 8
_PAUSES_PER_S: Final = 1000


def _interfaces(patient: Patient) -> tuple[str, ...]:
    """Return the interfaces that RoCE goes over: of a bond, its members."""
    names = [name for port in roce_ports(patient) for name in port.netdevs]
    return tuple(dict.fromkeys(member for name in names for member in members(patient.machine, name)))


def _mlnx_qos(patient: Patient, interface: str) -> ToolResult:
    ask = lambda: tools.ask(patient.machine, patient.settings, "mlnx_qos", "-i", interface)  # noqa: E731
    return patient.once(f"mlnx_qos {interface}", ask)


def _pfc(patient: Patient) -> Iterator[Outcome]:
    for name in _interfaces(patient):
        result = tools.ask(patient.machine, patient.settings, "dcb", "pfc", "show", "dev", name)
        pausing = parse_dcb_pfc(result.out)
        if pausing is None:
            pausing = parse_mlnx_pfc(_mlnx_qos(patient, name).out)
        if pausing is None:
            yield unanswered(f"which priorities of {name} pause", "dcb", result)
        else:
            yield _judge_pfc(name, pausing)
    if not _interfaces(patient):
        yield nothing(patient, _NO_ROCE)


def _judge_pfc(name: str, pausing: tuple[int, ...]) -> Outcome:
    facts = {"priorities": list(pausing)}
    if len(pausing) == 1:
        return passed(f"{name} pauses priority {pausing[0]}", name, **facts)
    if not pausing:
        return warned(f"no priority of {name} pauses: RoCE's packets may be lost", name, **facts)
    if len(pausing) >= _PRIORITIES:
        return failed(f"all priorities of {name} pause: one slow receiver stops everything", name, **facts)
    return warned(f"priorities {listed([str(one) for one in pausing])} of {name} pause, not one", name, **facts)


def _trust(patient: Patient) -> Iterator[Outcome]:
    for name in _interfaces(patient):
        result = _mlnx_qos(patient, name)
        trust = parse_mlnx_trust(result.out)
        if trust is None:
            yield unanswered(f"how {name} tells a packet's priority", "mlnx_qos", result)
        elif trust == "dscp":
            yield passed(f"{name} tells a packet's priority by its DSCP", name)
        else:
            yield warned(f"{name} tells a packet's priority by its {trust.upper()}, which no router keeps", name)
    if not _interfaces(patient):
        yield nothing(patient, _NO_ROCE)


def _marks(patient: Patient, port: Port) -> Outcome:
    ways = [_enabled(patient, name, way) for name in port.netdevs for way in ("roce_np", "roce_rp")]
    if ways and all(ways):
        return passed(f"{port.name} marks congestion and slows down for it", port.name)
    if any(way is False for way in ways):
        return warned(f"{port.name} does not mark congestion, or does not slow down for it", port.name)
    marked = port.counters.get("np_ecn_marked_roce_packets", 0) + port.counters.get("rp_cnp_handled", 0)
    if marked:
        return passed(f"{port.name} has marked or heeded congestion {counted(marked, 'time')}", port.name)
    return unknown(f"whether {port.name} marks congestion is not told by this driver", port.name)


def _enabled(patient: Patient, interface: str, way: str) -> bool | None:
    """Tell whether one half of congestion control is on for any priority; None where the driver has no such switch."""
    folder: Path = FOLDER / interface / "ecn" / way / "enable"
    told = (whole(patient.machine.read_text(folder / name)) for name in patient.machine.names_in(folder))
    states = [state for state in told if state is not None]
    return any(states) if states else None


def _pauses(patient: Patient) -> Iterator[Outcome]:
    for name in _interfaces(patient):
        result = tools.ask(patient.machine, patient.settings, "ethtool", "-S", name)
        counts = parse_pauses(result.out)
        if not counts:
            yield unanswered(f"how often {name} was paused", "ethtool", result)
            continue
        grown = {one: patient.growth(f"interface.{name}.{one}", count) for one, count in counts.items()}
        yield _judge_pauses(patient, name, {one: by for one, by in grown.items() if by is not None})
    if not _interfaces(patient):
        yield nothing(patient, _NO_ROCE)


def _judge_pauses(patient: Patient, name: str, grown: dict[str, int]) -> Outcome:
    if not grown or patient.earlier_at is None:
        return unknown(f"first look at the pauses of {name}; compared at the next run", name)
    seconds = max(1.0, patient.now - patient.earlier_at)
    many = {one: by for one, by in grown.items() if by > _PAUSES_PER_S * seconds or (by and "storm" in one)}
    if many:
        said = listed([f"{one} +{by}" for one, by in sorted(many.items())])
        return warned(f"{name} was paused often in {duration(seconds)}: {said}", name, **many)
    return passed(f"{name} was paused {counted(max(grown.values()), 'time')} at most in {duration(seconds)}", name)


CHECKS: Final[tuple[Check, ...]] = (
    Check(
        id="roce.pfc",
        group=Group.ROCE,
        title="One priority pauses instead of losing packets",
        reads="dcb pfc show dev INTERFACE, else mlnx_qos -i INTERFACE",
        rule="Passes for exactly one priority, warns for none or several, fails for all.",
        costs="Without it packets are lost as soon as several nodes send to one; with all of them a slow receiver "
        "stops everything else too.",
        fix=Fix("Let the priority of RoCE pause, here and on the switches alike: `dcb pfc set dev X prio-pfc 3:on`."),
        judge=_pfc,
    ),
    Check(
        id="roce.trust",
        group=Group.ROCE,
        title="A packet's priority is told by its DSCP",
        reads="mlnx_qos -i INTERFACE",
        rule="Warns for PCP, the priority of a VLAN's tag.",
        costs="Behind a router, or without a VLAN, RoCE's packets are among those that may be lost.",
        fix=Fix("`mlnx_qos -i INTERFACE --trust dscp`, and the same map of DSCP to priority on the switches."),
        judge=_trust,
        worst=Severity.WARN,
    ),
    Check(
        id="roce.ecn",
        group=Group.ROCE,
        title="Congestion is marked, and senders slow down for it",
        reads="/sys/class/net/*/ecn/roce_{np,rp}/enable, hw_counters of marks and answers",
        rule="Warns where either half is off for all priorities.",
        costs="Many senders to one receiver fill the switch, and all of them stall.",
        fix=Fix("Switch both on for the priority of RoCE, and marking (ECN) on the switches."),
        judge=each(roce_ports, _marks, _NO_ROCE),
        worst=Severity.WARN,
    ),
    Check(
        id="roce.pauses",
        group=Group.ROCE,
        title="Ports are not paused all the time",
        reads="ethtool -S INTERFACE",
        rule="By growth: warns above a thousand pauses a second, and for any storm that the adapter counts.",
        costs="What waits behind a paused priority waits too.",
        fix=Fix("Find the slow receiver: a node whose adapter or bus is slower than the others'."),
        judge=_pauses,
        worst=Severity.WARN,
    ),
)
