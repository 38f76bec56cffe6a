"""Checks the fabrics that are declared against the ports that there are, or proposes one where none is declared."""

from collections.abc import Iterator, Mapping, Sequence
from ipaddress import ip_interface
from typing import Final, NamedTuple

from llmgw.core.hardware.fabrics import AttachedPort, Attachment, DeclaredFabric, Proposal, ProposedPort
from llmgw.core.hardware.findings import Finding, Severity
from llmgw.core.hardware.interfaces import is_of_this_host
from llmgw.core.hardware.network import LinkLayer, Port, PortState
from workers.discovery.infiniband.gids import is_link_local
from workers.discovery.infiniband.identity import ROCE, Interfaces, network_of
from workers.discovery.infiniband.identity import of as identity_of

_SLOW: Final = 0.99


class Attached(NamedTuple):
    """What the declarations come to on this node."""

    attachments: tuple[Attachment, ...] = ()
    findings: tuple[Finding, ...] = ()
    proposals: tuple[Proposal, ...] = ()


def attach(declared: Sequence[DeclaredFabric], ports: Sequence[Port], around: Interfaces) -> Attached:
    """Return each declared fabric as its adapters bear it out, with every problem named; a proposal without any."""
    if not declared:
        return Attached(proposals=tuple(_proposals(ports)))
    made = [_attach(fabric, ports, around) for fabric in declared]
    return Attached(tuple(each for each, _ in made), tuple(finding for _, found in made for finding in found))


def _attach(fabric: DeclaredFabric, ports: Sequence[Port], around: Interfaces) -> tuple[Attachment, list[Finding]]:
    by_name = {port.name: port for port in ports}
    names = [name if ":" in name else f"{name}:1" for name in fabric.ports]
    layers = {by_name[name].link_layer for name in names if name in by_name} - {None}
    findings: list[Finding] = []
    attached = [
        _port(fabric, rail, name, by_name.get(name), ports, around, findings) for rail, name in enumerate(names)
    ]
    usable = [port for port in attached if port.usable]
    identities = tuple(sorted({port.identity for port in usable if port.identity}))
    interface, address = _meeting(fabric, around.addresses)
    if fabric.interface and address is None:
        findings.append(_no_meeting(fabric))
    if len(networks := [each for each in identities if each.startswith(ROCE)]) > 1 and not fabric.rail_only:
        findings.append(_several_networks(fabric, networks))
    code, why = _verdict(usable, layers, identities, by_name)
    if why:
        costs = f"no replica over several nodes is placed on fabric {fabric.name} here"
        cure = "correct `fabrics` in the node's settings, or see to the ports named above"
        findings.append(
            Finding(
                code,
                f"fabric {fabric.name}: {why}",
                severity=Severity.FAIL,
                about=fabric.name,
                costs=costs,
                cure=cure,
                excludes=True,
            )
        )
    rates = [port.rate_gbps for port in usable if port.rate_gbps]
    return (
        Attachment(
            name=fabric.name,
            link_layer=next(iter(layers)) if len(layers) == 1 else None,
            ports=tuple(attached),
            identities=identities,
            rate_gbps=sum(rates) or None,
            interface=interface,
            address=address,
            rail_only=fabric.rail_only,
            unusable=why,
            unusable_code=code if why else "",
        ),
        findings,
    )


def _verdict(
    usable: Sequence[AttachedPort],
    layers: set[LinkLayer | None],
    identities: tuple[str, ...],
    by_name: Mapping[str, Port],
) -> tuple[str, str | None]:
    """Return why nothing can be placed over a fabric; managers that know of each other are of one subnet.

    Several networks of RoCE may reach each other through a router, and are told by a finding alone.
    """
    if not usable:
        return "fabric.no-port", "none of its ports can be used"
    if len(layers) > 1:
        return "fabric.mixed", "its ports are partly InfiniBand, partly Ethernet, which NCCL refuses"
    if len(identities) > 1 and LinkLayer.INFINIBAND in layers and not _are_one(usable, by_name):
        return "fabric.identity", f"its ports are on different subnets under one name: {', '.join(identities)}"
    return "", None


def _several_networks(fabric: DeclaredFabric, networks: Sequence[str]) -> Finding:
    told = ", ".join(map(network_of, networks))
    return Finding(
        "fabric.identity",
        f"fabric {fabric.name}: its RoCE ports are in different networks under one name: {told}",
        about=fabric.name,
        costs="where no router joins these networks, NCCL hangs and ends with error 12",
        cure="set `rail_only` of the fabric if each rail is a network of its own; declare two fabrics if it is two",
    )


def _are_one(usable: Sequence[AttachedPort], by_name: Mapping[str, Port]) -> bool:
    """Tell whether the subnets' managers overlap: a standby that took over must not split a fabric in two."""
    sets = [_managers(by_name[port.name]) for port in usable if _managers(by_name[port.name])]
    return bool(sets) and all(sets[0] & each for each in sets)


def _managers(port: Port) -> set[str]:
    known = (port.subnet_manager, *port.other_subnet_managers)
    return {manager.guid for manager in known if manager}


def _port(
    fabric: DeclaredFabric,
    rail: int,
    name: str,
    port: Port | None,
    ports: Sequence[Port],
    around: Interfaces,
    findings: list[Finding],
) -> AttachedPort:
    told = _why_not(port)
    if told:
        code, why, cure = told
        findings.append(_finding(code, fabric, name, why, Severity.FAIL, cure))
        return AttachedPort(name=name, usable=False, why=why, rail=rail)
    assert port is not None  # noqa: S101 – a port that is not there has a reason
    if slow := _slow(fabric, port, ports):
        findings.append(
            _finding("port.slow", fabric, name, slow, Severity.WARN, "see to its cable; compare with its peer")
        )
    return AttachedPort(
        name=name,
        usable=True,
        rate_gbps=port.rate_gbps,
        gid_index=port.roce_gid_index,
        rail=rail,
        near_gpus=port.near_gpus,
        identity=identity_of(port, around),
    )


def _why_not(port: Port | None) -> tuple[str, str, str] | None:
    """Return code, reason and cure for a port that carries nothing."""
    if port is None:
        return (
            "port.missing",
            "there is no such port on this node",
            "see `llmgw-node inventory` for those that there are",
        )
    if port.is_software:
        return "port.software", "is made of software", "name an adapter"
    if not port.is_active:
        return _inactive(port)
    if port.link_layer is LinkLayer.ETHERNET and port.roce_gid_index is None:
        return "port.gid", f"has no RoCE v2 address{_but_local(port)}", "give its interface an IPv4 address"
    if port.link_layer is LinkLayer.INFINIBAND and port.lid == 0:
        return "port.no-subnet-manager", "has no LID: no subnet manager has set it up", "see to the subnet manager"
    return None


def _but_local(port: Port) -> str:
    local = [gid.ipv4 or "a link-local one" for gid in port.gids if gid.kind == "roce-v2" and is_link_local(gid.gid)]
    assigned = next((address for address in local if address[0].isdigit()), None)
    if assigned:
        return f" but {assigned}, which an interface gives itself where nobody gives it one"
    return " but a link-local one" if local else ""


def _inactive(port: Port) -> tuple[str, str, str]:
    if port.state in {PortState.INIT, PortState.ARMED} and port.physical_state == "link-up":
        why = f"is {port.state}: the link is up and no subnet manager has set it up"
        return "port.no-subnet-manager", why, "start or repair the subnet manager"
    if port.physical_state == "polling":
        return "port.down", "is down: it sees no light", "see to the cable, and to the port at its other end"
    if port.physical_state == "disabled":
        return "port.down", "is down: it was switched off", "`ip link set … up`, or ibportstate"
    return "port.down", f"is {port.state or 'in no known state'}", "see to the cable and the adapter"


def _slow(fabric: DeclaredFabric, port: Port, ports: Sequence[Port]) -> str | None:
    """Compare with what is declared, else with the fabric's fastest of its kind: a bad lane trains without an error."""
    names = {name if ":" in name else f"{name}:1" for name in fabric.ports}
    alike = [
        each.rate_gbps for each in ports if each.name in names and each.hca_type == port.hca_type and each.rate_gbps
    ]
    wanted = fabric.rate_gbps or max(alike, default=None)
    if wanted is None or port.rate_gbps is None or port.rate_gbps >= wanted * _SLOW:
        return None
    return f"runs at {port.rate_gbps:g} Gb/s, {wanted:g} were to be expected"


def _finding(code: str, fabric: DeclaredFabric, name: str, why: str, severity: Severity, cure: str) -> Finding:
    costs = (
        f"fabric {fabric.name} has one port less"
        if severity is Severity.FAIL
        else "it slows down all that goes over it"
    )
    return Finding(code, f"port {name}: {why}", severity=severity, about=name, costs=costs, cure=cure)


# --- where processes of several nodes first meet -------------------------------------------------------------------


def _meeting(fabric: DeclaredFabric, addresses: Mapping[str, Sequence[str]]) -> tuple[str | None, str | None]:
    """Return the interface and its address: the declared one, else the first that leads to other nodes."""
    names = (
        [fabric.interface] if fabric.interface else [name for name in sorted(addresses) if not is_of_this_host(name)]
    )
    for name in names:
        usable = [told for text in addresses.get(name, ()) if (told := _reachable(text))]
        if usable:
            return name, next((each for each in usable if ":" not in each), usable[0])
    return (fabric.interface, None) if fabric.interface in addresses else (None, None)


def _no_meeting(fabric: DeclaredFabric) -> Finding:
    return Finding(
        "fabric.interface",
        f"fabric {fabric.name}: its interface {fabric.interface} is not there, or has no address that others reach",
        severity=Severity.FAIL,
        about=fabric.name,
        costs="processes of several nodes cannot meet, so no shard gets an environment for it here",
        cure="correct `interface` in the node's settings, or give it an address",
    )


def _reachable(text: str) -> str | None:
    try:
        address = ip_interface(text).ip
    except ValueError:
        return None
    return None if address.is_loopback or address.is_link_local else str(address)


# --- a proposal ---------------------------------------------------------------------------------------------------


def _proposals(ports: Sequence[Port]) -> Iterator[Proposal]:
    real = [port for port in ports if not port.is_software]
    if not real:
        return
    active = [port for port in real if port.is_active and not port.is_virtual_function]
    layers = [port.link_layer for port in active]
    layer = LinkLayer.INFINIBAND if LinkLayer.INFINIBAND in layers else LinkLayer.ETHERNET
    fastest = max((port.rate_gbps or 0 for port in active if port.link_layer is layer), default=0)
    told = [_proposed(port, layer, fastest) for port in real]
    taken = [f'"{port.name}"' for port in told if port.taken]
    declaration = f"[fabrics.compute]\nports = [{', '.join(taken)}]\n" if taken else ""
    yield Proposal(name="compute", ports=tuple(told), declaration=declaration)


def _proposed(port: Port, layer: LinkLayer, fastest: float) -> ProposedPort:
    reason = _left_out(port, layer, fastest)
    rate = f"{port.rate_gbps:g} Gb/s" if port.rate_gbps else "of unknown rate"
    return ProposedPort(name=port.name, taken=not reason, reason=reason or f"{layer.value}, active, {rate}")


def _left_out(port: Port, layer: LinkLayer, fastest: float) -> str:
    if port.is_virtual_function:
        return "is a virtual function"
    if (why := _why_not(port)) is not None:
        return why[1]
    if port.link_layer is not layer:
        return f"speaks {port.link_layer.value if port.link_layer else 'nothing known'}, others {layer.value}"
    if (port.rate_gbps or 0) < fastest * _SLOW:
        return f"runs at {port.rate_gbps or 0:g} Gb/s, others at {fastest:g}"
    return ""
