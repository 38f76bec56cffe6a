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
    beside = [by_name[name] for name in names if name in by_name]
    told = [_port(fabric, rail, name, beside, around) for rail, name in enumerate(names)]
    made = _attachment(fabric, tuple(port for port, _ in told), beside, around)
    return made, [*(finding for _, finding in told if finding), *_findings(fabric, made)]


def _attachment(
    fabric: DeclaredFabric, attached: tuple[AttachedPort, ...], beside: Sequence[Port], around: Interfaces
) -> Attachment:
    usable = [port for port in attached if port.usable]
    layers = {port.link_layer for port in beside} - {None}
    identities = tuple(sorted({port.identity for port in usable if port.identity}))
    interface, address = _meeting(fabric, around.addresses)
    code, why = _verdict(usable, layers, identities, beside)
    return Attachment(
        name=fabric.name,
        link_layer=next(iter(layers)) if len(layers) == 1 else None,
        ports=attached,
        identities=identities,
        rate_gbps=sum(port.rate_gbps for port in usable if port.rate_gbps) or None,
        interface=interface,
        address=address,
        rail_only=fabric.rail_only,
        unusable=why,
        unusable_code=code,
    )


# --- the fabric as a whole ----------------------------------------------------------------------------------------


def _findings(fabric: DeclaredFabric, made: Attachment) -> Iterator[Finding]:
    if fabric.interface and made.address is None:
        yield _no_meeting(fabric)
    networks = [identity for identity in made.identities if identity.startswith(ROCE)]
    if len(networks) > 1 and not fabric.rail_only:
        yield _several_networks(fabric, networks)
    if made.unusable:
        yield _unusable(made)


def _unusable(made: Attachment) -> Finding:
    return Finding(
        made.unusable_code,
        f"fabric {made.name}: {made.unusable}",
        severity=Severity.FAIL,
        about=made.name,
        costs=f"no replica over several nodes is placed on fabric {made.name} here",
        cure="correct `fabrics` in the node's settings, or see to the ports named above",
        excludes=True,
    )


def _verdict(
    usable: Sequence[AttachedPort],
    layers: set[LinkLayer | None],
    identities: tuple[str, ...],
    beside: Sequence[Port],
) -> tuple[str, str | None]:
    """Return why nothing can be placed over a fabric; managers that know of each other are of one subnet.

    Several networks of RoCE may reach each other through a router, and are told by a finding alone.
    """
    if not usable:
        return "fabric.no-port", "none of its ports can be used"
    if len(layers) > 1:
        return "fabric.mixed", "its ports are partly InfiniBand, partly Ethernet, which NCCL refuses"
    if len(identities) > 1 and LinkLayer.INFINIBAND in layers and not _are_one(usable, beside):
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


def _are_one(usable: Sequence[AttachedPort], beside: Sequence[Port]) -> bool:
    """Tell whether the subnets' managers overlap: a standby that took over must not split a fabric in two."""
    names = {port.name for port in usable}
    sets = [managers for port in beside if port.name in names and (managers := _managers(port))]
    return bool(sets) and all(sets[0] & each for each in sets)


def _managers(port: Port) -> set[str]:
    known = (port.subnet_manager, *port.other_subnet_managers)
    return {manager.guid for manager in known if manager}


# --- its ports ----------------------------------------------------------------------------------------------------


def _port(
    fabric: DeclaredFabric, rail: int, name: str, beside: Sequence[Port], around: Interfaces
) -> tuple[AttachedPort, Finding | None]:
    """Return one port of a fabric, and what is wrong with it."""
    port = next((each for each in beside if each.name == name), None)
    told = _why_not(port)
    if told:
        code, why, cure = told
        finding = _finding(code, fabric, name, why, Severity.FAIL, cure)
        return AttachedPort(name=name, usable=False, why=why, rail=rail), finding
    assert port is not None  # noqa: S101 – a port that is not there has a reason
    attached = AttachedPort(
        name=name,
        usable=True,
        rate_gbps=port.rate_gbps,
        gid_index=port.roce_gid_index,
        rail=rail,
        near_gpus=port.near_gpus,
        identity=identity_of(port, around),
    )
    slow = _slow(fabric, port, beside)
    cure = "see to its cable; compare with its peer"
    return attached, _finding("port.slow", fabric, name, slow, Severity.WARN, cure) if slow else None


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


def _slow(fabric: DeclaredFabric, port: Port, beside: Sequence[Port]) -> str | None:
    """Compare with what is declared, else with the fabric's fastest of its kind: a bad lane trains without an error."""
    alike = [each.rate_gbps for each in beside if each.hca_type == port.hca_type and each.rate_gbps]
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
