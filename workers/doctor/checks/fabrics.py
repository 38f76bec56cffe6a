"""Checks of the fabrics that this node is on: who manages them, and whether one name is one physical fabric."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from llmgw.core.hardware.fabrics import Attachment
from llmgw.core.hardware.findings import Problem, Severity
from llmgw.core.hardware.network import Port, SubnetManager
from llmgw.core.units import counted
from workers.discovery.infiniband.identity import ROCE, network_of
from workers.discovery.infiniband.subnet import OTHERS
from workers.doctor.checks.adapters import each, fabric_of, hardware_ports, infiniband_ports, nothing
from workers.doctor.entry import Check, Fix, Group, Outcome, Patient, failed, passed, unknown, warned
from workers.doctor.reading.words import listed

_NO_INFINIBAND: Final = "there is no active InfiniBand port"
_NOT_DECLARED: Final = "no fabric is declared"
_UNASKED: Final = frozenset({"missing", "not-allowed", "timeout", "held-up", "garbage"})
"""Ends of a problem's code that tell of the tool, and not of the fabric."""
_SETTLED_S: Final = 5.0
"""A living manager counts at least once in that time."""
_DEFAULT_PREFIX: Final = "fe80:0000:0000:0000"
_HOSTNAME: Final = Path("/proc/sys/kernel/hostname")

# --- subnet managers --------------------------------------------------------------------------------------------------


def _answers(patient: Patient, port: Port) -> Outcome:
    manager = port.subnet_manager
    if manager is None:
        return _silent(patient, port)
    text = f"the subnet manager of {port.name}, {manager.guid}, answers as {manager.state or 'manager'}"
    return passed(text, port.name) if manager.state in {"master", None} else warned(text, port.name)


def _silent(patient: Patient, port: Port) -> Outcome:
    problem = _problem(patient, port, "sminfo")
    if problem is None:
        return unknown(f"the subnet manager of {port.name} was not asked", port.name)
    if problem.code.rpartition(".")[2] in _UNASKED:
        return unknown(problem.text, port.name, literal=problem.literal)
    return failed(f"no subnet manager answers {port.name}: {problem.text}", port.name, literal=problem.literal)


def _problem(patient: Patient, port: Port, tool: str) -> Problem | None:
    """Return why a tool did not tell something of a port."""
    about = (problem for problem in patient.inventory.problems if problem.fact.startswith(f"port {port.name}: "))
    return next((problem for problem in about if problem.code.startswith(f"{tool}.")), None)


def _alive(patient: Patient) -> Iterator[Outcome]:
    managers = {
        _key(port.subnet_manager): port.subnet_manager for port in infiniband_ports(patient) if port.subnet_manager
    }
    for key, manager in sorted(managers.items()):
        if manager.activity is None:
            yield unknown(f"subnet manager {manager.guid} does not tell its activity")
        else:
            yield _activity(patient, manager.guid, patient.growth(f"sm.{key}.activity", manager.activity))
    if not managers:
        yield unknown("no subnet manager answers") if infiniband_ports(patient) else nothing(patient, _NO_INFINIBAND)


def _activity(patient: Patient, guid: str, growth: int | None) -> Outcome:
    if growth is None or patient.earlier_at is None:
        return unknown(f"first look at subnet manager {guid}; compared at the next run")
    if growth:
        return passed(f"subnet manager {guid} is at work: its activity rose by {growth}")
    if patient.now - patient.earlier_at < _SETTLED_S:
        return unknown(f"the last look at subnet manager {guid} is too short ago to compare")
    return failed(f"the activity of subnet manager {guid} has stood still since the last run")


def _key(manager: SubnetManager) -> str:
    """Return a GUID as tools that print no leading zeros and those that do would both have it."""
    return manager.guid.lower().removeprefix("0x").lstrip("0")


Subnets = Mapping[str, Sequence[Port]]


def _subnets(patient: Patient) -> Subnets:
    """Return the ports by the manager that they obey."""
    found: dict[str, list[Port]] = {}
    for port in infiniband_ports(patient):
        if port.subnet_manager:
            found.setdefault(_key(port.subnet_manager), []).append(port)
    return found


def _managers(ports: Sequence[Port]) -> dict[str, SubnetManager]:
    told = [manager for port in ports for manager in (*port.other_subnet_managers, port.subnet_manager) if manager]
    return {_key(manager): manager for manager in told}


def _about(patient: Patient, ports: Sequence[Port]) -> str:
    fabric = fabric_of(patient, ports[0])
    return fabric.name if fabric else ports[0].name


def _unlisted(patient: Patient, ports: Sequence[Port]) -> Outcome | None:
    """Say why the managers of a subnet could not be listed; it is asked once, by one of its ports."""
    for_all = [problem for problem in patient.inventory.problems if problem.fact == OTHERS]
    problems = [*for_all, *filter(None, (_problem(patient, port, "saquery") for port in ports))]
    return unknown(problems[0].text, _about(patient, ports), literal=problems[0].literal) if problems else None


def _one_master(patient: Patient) -> Iterator[Outcome]:
    for ports in _subnets(patient).values():
        masters = sorted(one.guid for one in _managers(ports).values() if one.state == "master")
        about = _about(patient, ports)
        if len(masters) > 1:
            yield failed(f"{listed(masters)} are all master of one subnet", about, masters=masters)
        else:
            text = f"{listed(masters) or 'no manager that says so'} is the only master that {ports[0].name} knows of"
            yield _unlisted(patient, ports) or passed(text, about)
    yield from _no_subnets(patient)


def _standby(patient: Patient) -> Iterator[Outcome]:
    for ports in _subnets(patient).values():
        spare = sorted(one.guid for one in _managers(ports).values() if one.state == "standby")
        about = _about(patient, ports)
        if spare:
            yield passed(f"{counted(len(spare), 'subnet manager')} on standby: {listed(spare)}", about)
        else:
            yield _unlisted(patient, ports) or warned(f"no subnet manager stands by for {ports[0].name}", about)
    yield from _no_subnets(patient)


def _no_subnets(patient: Patient) -> Iterator[Outcome]:
    if not _subnets(patient):
        yield unknown("no subnet manager answers") if infiniband_ports(patient) else nothing(patient, _NO_INFINIBAND)


def _expected(patient: Patient) -> Iterator[Outcome]:
    seen = {key: one for ports in _subnets(patient).values() for key, one in _managers(ports).items()}
    known = {name for name in patient.earlier if name.startswith("sm.") and name.endswith(".seen")}
    patient.counters.update({f"sm.{key}.seen": 1 for key in seen})
    ours = [port.name for port in hardware_ports(patient) if port.is_subnet_manager]
    new = [one.guid for key, one in sorted(seen.items()) if known and f"sm.{key}.seen" not in known]
    if ours:
        yield warned(f"this node itself runs a subnet manager, on {listed(ours)}", ports=ours)
    if new:
        yield warned(f"{listed(new)} manages the fabric and was not there at the last run", managers=new)
    if not ours and not new:
        names = listed(sorted(one.guid for one in seen.values()))
        yield passed(f"the fabric's managers are {names}") if seen else next(_no_subnets(patient))


# --- one name, one fabric ---------------------------------------------------------------------------------------------


def _usable(patient: Patient) -> Iterator[Outcome]:
    for fabric in patient.inventory.fabrics:
        yield _attachment(fabric)
    if not patient.inventory.fabrics:
        yield nothing(patient, _NOT_DECLARED)


def _attachment(fabric: Attachment) -> Outcome:
    lost = {port.name: port.why for port in fabric.ports if not port.usable}
    many = f"{len(fabric.usable_ports)} of {counted(len(fabric.ports), 'port')}"
    if fabric.unusable:
        return failed(f"fabric {fabric.name} cannot be used here: {fabric.unusable}", fabric.name, lost=lost)
    if lost:
        why = listed([f"{name} ({reason})" for name, reason in sorted(lost.items())])
        return failed(f"fabric {fabric.name} has lost {why}: {many} left here", fabric.name, lost=lost)
    return passed(f"fabric {fabric.name} has {many} of this node", fabric.name)


def _one_identity(patient: Patient) -> Iterator[Outcome]:
    for fabric in patient.inventory.fabrics:
        identities = sorted(fabric.identities)
        by_port = {port.name: port.identity for port in fabric.ports}
        if len(identities) > 1:
            yield _several(fabric, identities, by_port)
        elif identities:
            yield passed(f"fabric {fabric.name} is {identities[0]}", fabric.name, ports=by_port)
        else:
            yield unknown(f"which physical fabric {fabric.name} is could not be found out", fabric.name)
    if not patient.inventory.fabrics:
        yield nothing(patient, _NOT_DECLARED)


def _several(fabric: Attachment, identities: Sequence[str], by_port: Mapping[str, str | None]) -> Outcome:
    """Judge several networks of RoCE mildly: a router may join them, and rails often are networks of their own."""
    if not all(identity.startswith(ROCE) for identity in identities):
        text = f"fabric {fabric.name} is {len(identities)} physical ones: {listed(identities)}"
        return failed(text, fabric.name, ports=by_port)
    text = f"fabric {fabric.name} is in {len(identities)} networks: {listed([network_of(each) for each in identities])}"
    if fabric.rail_only:
        return passed(f"{text}, and its rails are declared to be apart", fabric.name, ports=by_port)
    return warned(text, fabric.name, ports=by_port)


def _prefix(patient: Patient) -> Iterator[Outcome]:
    for ports in _subnets(patient).values():
        prefixes = {port.name: gid.gid[: len(_DEFAULT_PREFIX)] for port in ports for gid in port.gids if gid.index == 0}
        told = sorted(set(prefixes.values()))
        about = _about(patient, ports)
        if len(told) == 1:
            kind = "the default one" if told == [_DEFAULT_PREFIX] else "one of its own"
            yield passed(f"prefix {told[0]}, {kind}, on {counted(len(ports), 'port')} of one subnet", about)
        elif told:
            yield failed(f"ports of one subnet have several prefixes: {listed(told)}", about, prefixes=prefixes)
        else:
            yield unknown(f"the GIDs of {listed([port.name for port in ports])} could not be read", about)
    yield from _no_subnets(patient)


def _addresses(patient: Patient) -> Iterator[Outcome]:
    wrong = [*_doubles(patient), *_without_guid(patient)]
    yield from wrong
    if not wrong:
        ports = infiniband_ports(patient)
        yield passed("each port has a GUID and a LID of its own") if ports else nothing(patient, _NO_INFINIBAND)


def _doubles(patient: Patient) -> Iterator[Outcome]:
    for ports in _subnets(patient).values():
        by_lid: dict[int, list[str]] = {}
        for port in ports:
            if port.lid:
                by_lid.setdefault(port.lid, []).append(port.name)
        for lid, names in sorted(by_lid.items()):
            if len(names) > 1:
                yield failed(f"{listed(names)} have one LID, {lid}, on one subnet", names[0], ports=names)
    by_guid: dict[str, list[str]] = {}
    for port in infiniband_ports(patient):
        if port.port_guid:
            by_guid.setdefault(port.port_guid, []).append(port.name)
    for guid, names in sorted(by_guid.items()):
        if len(names) > 1:
            yield failed(f"{listed(names)} have one GUID, {guid}", names[0], ports=names)


def _without_guid(patient: Patient) -> Iterator[Outcome]:
    for port in infiniband_ports(patient):
        if port.node_guid is not None and not port.node_guid.removeprefix("0x").strip("0:"):
            yield failed(f"{port.name} has no GUID: it is all zeros", port.name)


def _description(patient: Patient) -> Iterator[Outcome]:
    host = (patient.machine.read_text(_HOSTNAME) or "").strip().partition(".")[0]
    for hca in sorted({port.hca for port in infiniband_ports(patient)}):
        told = (patient.machine.read_text(Path("/sys/class/infiniband") / hca / "node_desc") or "").strip()
        if not told or not host:
            yield unknown(f"what {hca} calls itself in the fabric could not be read", hca)
        elif host.lower() in told.lower():
            yield passed(f"{hca} calls itself {told!r} in the fabric", hca)
        else:
            yield warned(f"{hca} calls itself {told!r} in the fabric, without this host's name", hca)
    if not infiniband_ports(patient):
        yield nothing(patient, _NO_INFINIBAND)


_OLD_PATHS: Final = "What is connected goes on; no new path is found, and a node that restarts stays outside."

CHECKS: Final[tuple[Check, ...]] = (
    Check(
        id="fabric.usable",
        group=Group.FABRICS,
        title="Every declared fabric can be used with all its ports",
        reads="the inventory's fabrics: the declaration against the ports",
        rule="Fails where a declared port carries nothing, the more so where none does.",
        costs="Nothing that spans nodes is placed over it, or it has fewer rails.",
        fix=Fix("See the checks of the ports; or correct the declaration in the node's settings."),
        judge=_usable,
    ),
    Check(
        id="fabric.one-identity",
        group=Group.FABRICS,
        title="The ports under one fabric's name are on one physical fabric",
        reads="sminfo (the master's GUID); RoCE: VLAN and subnet of the GID",
        rule="Fails where the ports obey different masters; warns where RoCE ports are in different networks and the "
        "fabric is not declared `rail_only`.",
        costs="Two fabrics under one name: NCCL hangs and ends with error 12.",
        fix=Fix("Declare two fabrics; device names, LIDs and the default prefix are alike on fabrics that are not."),
        judge=_one_identity,
    ),
    Check(
        id="fabric.prefix",
        group=Group.FABRICS,
        title="The ports of one subnet have one prefix",
        reads="/sys/class/infiniband/*/ports/*/gids/0",
        rule="Fails where the upper 64 bits differ among ports that obey one manager.",
        costs="Several subnets without a router between them do not reach each other.",
        fix=Fix("Set subnet_prefix in the subnet manager's configuration."),
        judge=_prefix,
    ),
    Check(
        id="fabric.addresses",
        group=Group.FABRICS,
        title="This node's ports have GUIDs and LIDs of their own",
        reads="/sys/class/infiniband/*/{node_guid,ports/*/lid,ports/*/gids/0}",
        rule="Fails where two ports share a LID on one subnet or a GUID, and where a GUID is all zeros.",
        costs="Traffic goes to the wrong port.",
        fix=Fix("Give virtual functions GUIDs; restart the subnet manager where LIDs collide."),
        judge=_addresses,
    ),
    Check(
        id="fabric.node-description",
        group=Group.FABRICS,
        title="Every adapter says in the fabric which host it is in",
        reads="/sys/class/infiniband/*/node_desc",
        rule="Warns where the host's name is not in it.",
        costs="Reports of the fabric cannot be read: all nodes have the product's name.",
        fix=Fix(
            "Run rdma-ndd, of rdma-core.", "systemctl enable --now rdma-ndd", undo="systemctl disable --now rdma-ndd"
        ),
        judge=_description,
        worst=Severity.WARN,
    ),
    Check(
        id="sm.answers",
        group=Group.FABRICS,
        title="The subnet manager of every active port answers",
        reads="sminfo -C HCA -P PORT",
        rule="Fails where none answers; warns where the one that answers is on standby.",
        costs=_OLD_PATHS,
        fix=Fix("Restart the fabric's subnet manager, on the switch or where opensm runs."),
        judge=each(infiniband_ports, _answers, _NO_INFINIBAND),
    ),
    Check(
        id="sm.alive",
        group=Group.FABRICS,
        title="The subnet manager is at work",
        reads="sminfo: the activity count, against the last run",
        rule="Fails where it has stood still.",
        costs="The manager hangs: the fabric is not looked after.",
        fix=Fix("Restart the fabric's subnet manager."),
        judge=_alive,
    ),
    Check(
        id="sm.one-master",
        group=Group.FABRICS,
        title="A subnet has one master",
        reads="saquery SMIR",
        rule="Fails where two or more managers say that they are master.",
        costs="Each gives out LIDs of its own: connections break at every sweep.",
        fix=Fix("Give the managers different priorities; stop the opensm that somebody started on a host."),
        judge=_one_master,
    ),
    Check(
        id="sm.standby",
        group=Group.FABRICS,
        title="A second subnet manager stands by",
        reads="saquery SMIR",
        rule="Warns where there is none.",
        costs="When the only one stops, nothing new can connect.",
        fix=Fix("Start a second one, with a lower priority."),
        judge=_standby,
        worst=Severity.WARN,
    ),
    Check(
        id="sm.expected",
        group=Group.FABRICS,
        title="No stranger manages the fabric, and this node does not",
        reads="saquery SMIR against the last run; the ports' capability masks",
        rule="Warns where this node runs a manager, and where one has appeared since the last run.",
        costs="Whoever can start opensm can take a fabric over.",
        fix=Fix("Stop it where it is not meant to be; protect the fabric with an M_Key."),
        judge=_expected,
        worst=Severity.WARN,
    ),
)
NOT_YET: Final[tuple[tuple[str, str, str], ...]] = (
    ("fabric.duplicates", "No LID and no GUID is there twice in the whole fabric", "needs a scan of the whole fabric"),
    ("fabric.path-rates", "No link on the way is slower than the ports", "needs a scan of the whole fabric"),
    ("fabric.rails", "Ports of one number are on one leaf on all nodes", "needs scans from several nodes, compared"),
    ("fabric.bandwidth", "Each pair of nodes reaches the ports' rate", "needs two drained nodes; see `fabric-test`"),
    ("fabric.gpu-bandwidth", "Memory of a card is sent as fast as main memory", "needs two drained nodes with cards"),
    ("fabric.nccl", "NCCL reaches its bandwidth over two nodes", "needs two drained nodes and NCCL's own tests"),
)
