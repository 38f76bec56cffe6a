"""Which ports the checks of adapters and fabrics look at, and which of them are alike."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from llmgw.core.hardware.fabrics import DeclaredFabric
from llmgw.core.hardware.network import LinkLayer, Port
from workers.doctor.entry import Outcome, Patient, not_here, unknown

Ports = Callable[[Patient], tuple[Port, ...]]
Judge = Callable[[Patient], Iterable[Outcome]]
_FIRST_PORT: Final = ":1"


def hardware_ports(patient: Patient) -> tuple[Port, ...]:
    """Return what fabrics are made of: no port of software, and a guest's part of an adapter only when declared."""
    return tuple(
        port
        for port in patient.inventory.ports
        if not port.is_software and (not port.is_virtual_function or fabric_of(patient, port))
    )


def active_ports(patient: Patient) -> tuple[Port, ...]:
    """Return those of them that carry traffic."""
    return tuple(port for port in hardware_ports(patient) if port.is_active)


def infiniband_ports(patient: Patient) -> tuple[Port, ...]:
    """Return those that carry InfiniBand."""
    return tuple(port for port in active_ports(patient) if port.link_layer is LinkLayer.INFINIBAND)


def roce_ports(patient: Patient) -> tuple[Port, ...]:
    """Return those that carry Ethernet."""
    return tuple(port for port in active_ports(patient) if port.link_layer is LinkLayer.ETHERNET)


def fabric_of(patient: Patient, port: Port) -> DeclaredFabric | None:
    """Return the fabric that the settings say a port is on."""
    fabrics = patient.settings.fabrics
    return next((fabric for fabric in fabrics if port.name in map(full_name, fabric.ports)), None)


def full_name(declared: str) -> str:
    """Return `mlx5_0:1` for the declared `mlx5_0`."""
    return declared if ":" in declared else declared + _FIRST_PORT


def is_wanted(patient: Patient, port: Port) -> bool:
    """Tell whether work is to go over a port; where nothing is declared, over each one whose like is in use."""
    if patient.settings.fabrics:
        return fabric_of(patient, port) is not None
    return any(other.is_active for other in alike(patient, port))


def alike(patient: Patient, port: Port) -> tuple[Port, ...]:
    """Return the other ports that it should equal: of its fabric, else undeclared ones of its kind and network."""
    fabric = fabric_of(patient, port)
    others = (other for other in hardware_ports(patient) if other.name != port.name)
    return tuple(other for other in others if fabric_of(patient, other) == fabric and (fabric or _same(port, other)))


def _same(port: Port, other: Port) -> bool:
    kind = (port.hca_type, port.board, port.link_layer)
    mine, its = port.subnet_manager, other.subnet_manager
    is_elsewhere = mine is not None and its is not None and mine.guid != its.guid
    return kind == (other.hca_type, other.board, other.link_layer) and not is_elsewhere


def each(ports: Ports, one: Callable[[Patient, Port], Outcome | None], otherwise: str) -> Judge:
    """Make a check of one that is made for each port; `otherwise` is said where there is none that it concerns."""

    def judge(patient: Patient) -> Iterator[Outcome]:
        outcomes = [outcome for port in ports(patient) if (outcome := one(patient, port))]
        yield from outcomes or [nothing(patient, otherwise)]

    return judge


def nothing(patient: Patient, text: str) -> Outcome:
    """Say that there is nothing to look at; where the ports could not be read, that it is not known."""
    unread = next((problem for problem in patient.inventory.problems if problem.fact == "ports"), None)
    return unknown(f"the ports could not be read: {unread.text}") if unread else not_here(text)
