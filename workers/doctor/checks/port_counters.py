"""Checks of ports' error counters, by how much they have risen since the doctor's last run on this boot."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from llmgw.core.hardware.findings import Severity
from llmgw.core.hardware.network import Port
from llmgw.core.units import counted, duration
from workers.doctor.checks.adapters import Judge, hardware_ports, nothing
from workers.doctor.entry import Check, Fix, Group, Outcome, Patient, failed, passed, unknown, warned
from workers.doctor.reading.words import listed

_HOUR_S: Final = 3600.0
_DAY_S: Final = 86400.0
_DOWNS_PER_DAY: Final = 2
_ERRORS_PER_HOUR: Final = 10
_RETRIES_PER_S: Final = 1
_DISCARDS_PER_S: Final = 1
_WAITS_PER_S: Final = 10_000_000
"""The unit of `port_xmit_wait` is the adapter's own; a healthy port waits now and then, one that is held up always."""


@dataclass(frozen=True, slots=True)
class Rise:
    """How some counters of one port have risen."""

    port: Port
    by: Mapping[str, int]
    """Counter → by how much; those that did not rise are left out."""
    seconds: float

    @property
    def total(self) -> int:
        return sum(self.by.values())

    def per(self, seconds: float) -> float:
        """Return the rise in such a time; a shorter time than that is counted as one, so that one error stays one."""
        return self.total * seconds / max(self.seconds, seconds)


Grave = Callable[[Rise], bool]


def _judge(names: tuple[str, ...], is_bad: Grave, is_worth_saying: Grave = lambda rise: rise.total > 0) -> Judge:
    """Make a check that warns of ports whose counters rise, and fails those that are bad."""

    def judge(patient: Patient) -> Iterator[Outcome]:
        ports = [port for port in hardware_ports(patient) if any(name in port.counters for name in names)]
        rises = [rise for port in ports if (rise := _rise(patient, port, names))]
        told = [rise for rise in rises if is_bad(rise) or is_worth_saying(rise)]
        for rise in told:
            yield (failed if is_bad(rise) else warned)(_words(rise), rise.port.name, **rise.by)
        yield from _rest(patient, ports, rises, told)

    return judge


def _rise(patient: Patient, port: Port, names: tuple[str, ...]) -> Rise | None:
    """Note the counters for the next run and return how they rose; None where nothing can be compared."""
    grown = {
        name: patient.growth(f"port.{port.name}.{name}", port.counters[name]) for name in names if name in port.counters
    }
    known = {name: growth for name, growth in sorted(grown.items()) if growth is not None}
    if not known or patient.earlier_at is None:
        return None
    return Rise(port, {name: by for name, by in known.items() if by}, max(0.0, patient.now - patient.earlier_at))


def _rest(patient: Patient, ports: list[Port], rises: list[Rise], told: list[Rise]) -> Iterator[Outcome]:
    new = [port.name for port in ports if port.name not in {rise.port.name for rise in rises}]
    quiet = len(rises) - len(told)
    if new:
        yield unknown(f"first look at {listed(new)}; compared at the next run", ports=new)
    if quiet:
        since = duration(rises[0].seconds)
        yield passed(f"{counted(quiet, 'port')} without such errors in {since}")
    if not ports and hardware_ports(patient):
        yield unknown("the adapters do not tell these counters")
    elif not ports:
        yield nothing(patient, "there is no InfiniBand or RoCE adapter")


def _words(rise: Rise) -> str:
    each_one = ", ".join(f"{name} +{by}" for name, by in rise.by.items())
    return f"{rise.port.name}: {each_one} in {duration(rise.seconds)}"


def _never(_: Rise) -> bool:
    return False


def _many(rise: Rise) -> bool:
    return rise.per(_HOUR_S) > _ERRORS_PER_HOUR


def _flaps(rise: Rise) -> bool:
    return rise.per(_DAY_S) >= _DOWNS_PER_DAY


def _is_steady(rise: Rise) -> bool:
    return rise.seconds > 0 and rise.total / rise.seconds > _RETRIES_PER_S


def _is_congested(rise: Rise) -> bool:
    limits = {"port_xmit_discards": _DISCARDS_PER_S, "port_xmit_wait": _WAITS_PER_S}
    return any(by > limits[name] * rise.seconds for name, by in rise.by.items())


def _counters(*names: str) -> str:
    return f"/sys/class/infiniband/*/ports/*/*counters/{{{','.join(names)}}}" if len(names) > 1 else names[0]


_LOSS: Final = (
    "local_ack_timeout_err",
    "packet_seq_err",
    "out_of_sequence",
    "rnr_nak_retry_err",
    "implied_nak_seq_err",
)

CHECKS: Final[tuple[Check, ...]] = (
    Check(
        id="port.link-downed",
        group=Group.PORTS,
        title="No link has gone down since the last run",
        reads=_counters("link_downed"),
        rule="By growth: once warns, twice a day or more fails.",
        costs="A link that flaps ends the collective operations that are under way on it.",
        fix=Fix("Change the cable or the optics, unless the far end was restarted."),
        judge=_judge(("link_downed",), _flaps),
    ),
    Check(
        id="port.symbol-errors",
        group=Group.PORTS,
        title="No symbol errors, recoveries or integrity errors since the last run",
        reads=_counters("symbol_error", "link_error_recovery", "local_link_integrity_errors"),
        rule="By growth: any warns, more than 10 an hour fail.",
        costs="Packets are sent again: the rail is slow, and soon down.",
        fix=Fix("Clean or change the cable or the optics."),
        judge=_judge(("symbol_error", "link_error_recovery", "local_link_integrity_errors"), _many),
    ),
    Check(
        id="port.remote-errors",
        group=Group.PORTS,
        title="No packet that a bad link further away has marked",
        reads=_counters("port_rcv_remote_physical_errors"),
        rule="By growth: any warns.",
        costs="A link one hop on is bad; this node's own cable is not.",
        fix=Fix("Ask those who run the switches to look at the links beside this port's switch."),
        judge=_judge(("port_rcv_remote_physical_errors",), _never),
        worst=Severity.WARN,
    ),
    Check(
        id="port.receive-errors",
        group=Group.PORTS,
        title="No bad packets received and no buffers overrun since the last run",
        reads=_counters("port_rcv_errors", "excessive_buffer_overrun_errors"),
        rule="By growth: any warns, more than 10 an hour fail.",
        costs="Packets are sent again.",
        fix=Fix("Change the cable; bring the adapter's firmware up to date."),
        judge=_judge(("port_rcv_errors", "excessive_buffer_overrun_errors"), _many),
    ),
    Check(
        id="port.congestion",
        group=Group.PORTS,
        title="Packets leave every port without being held up",
        reads=_counters("port_xmit_discards", "port_xmit_wait"),
        rule="By growth: warns above one discarded packet a second, or ten million ticks of waiting a second.",
        costs="The fabric is full, or a receiver is slow.",
        fix=Fix("Look at the routing of the fabric, and for a slow receiver among the nodes of the same job."),
        judge=_judge(("port_xmit_discards", "port_xmit_wait"), _never, _is_congested),
        worst=Severity.WARN,
    ),
    Check(
        id="port.partition-errors",
        group=Group.PORTS,
        title="No packet was refused for its partition",
        reads=_counters("port_xmit_constraint_errors", "port_rcv_constraint_errors"),
        rule="By growth: any warns.",
        costs="Nodes of different partitions, or two limited members of one, try to talk to each other.",
        fix=Fix("Compare the partitions of the ports (`port.partition`) and the subnet manager's partitions.conf."),
        judge=_judge(("port_xmit_constraint_errors", "port_rcv_constraint_errors"), _never),
        worst=Severity.WARN,
    ),
    Check(
        id="port.retries",
        group=Group.PORTS,
        title="No message had to be sent again",
        reads=_counters(*_LOSS),
        rule="By growth: any warns, more than one a second fails.",
        costs="Packets are lost; with RoCE that is mostly a network that is not lossless.",
        fix=Fix("RoCE: the checks of the group `roce`. InfiniBand: cables."),
        judge=_judge(_LOSS, _is_steady),
    ),
)
