"""Asks which subnet manager each InfiniBand port obeys, and which others there are; what is not told is a problem."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from llmgw.core.hardware.findings import Finding, Problem, cut
from llmgw.core.hardware.network import LinkLayer, Port, SubnetManager
from workers import tools
from workers.ports import Machine, ToolResult
from workers.settings import NodeSettings

_MASTER: Final = re.compile(
    r"sm lid ([0-9]{1,9}) sm guid 0x([0-9a-f]{1,16}), "
    r"activity count ([0-9]{1,20}) priority ([0-9]{1,3}) state ([0-9]{1,3})",
    re.IGNORECASE,
)
_FIELD: Final = re.compile(r"^\s*(\S.*?)\.{2,}\s*(.*?)\s*$")
_NO_ANSWER: Final = re.compile(r"failed: query|query failed|timed out|status \S*110|sm query", re.IGNORECASE)
"""How sminfo of several ages says that nobody answers at the manager's LID."""
_DENIED: Final = re.compile(r"open UMAD|failed to open|permission", re.IGNORECASE)
OTHERS: Final = "other subnet managers"
"""What is not known where saquery does not tell."""
_STATES: Final = ("not-active", "discover", "standby", "master")


class Subnets(NamedTuple):
    """The ports with their managers, and what is wrong with these."""

    ports: tuple[Port, ...] = ()
    findings: tuple[Finding, ...] = ()
    problems: tuple[Problem, ...] = ()


def managers(machine: Machine, settings: NodeSettings, ports: Sequence[Port]) -> Subnets:
    """Return the ports with their masters, and with all managers of the subnet, asked once for each master."""
    asked = [_asked(machine, settings, port) for port in ports]
    first = {port.subnet_manager.guid: port for port, _ in reversed(asked) if port.subnet_manager}
    answers = {guid: _listed(machine, settings, port) for guid, port in first.items()}
    told = tuple(_with_others(port, answers) for port, _ in asked)
    unlisted = {problem for guid, port in first.items() if (problem := _unlisted(port, answers[guid]))}
    problems = (*(problem for _, problem in asked if problem), *sorted(unlisted, key=lambda problem: problem.fact))
    return Subnets(told, tuple(_several_masters(told)), problems)


# --- the master ---------------------------------------------------------------------------------------------------


def _asked(machine: Machine, settings: NodeSettings, port: Port) -> tuple[Port, Problem | None]:
    if port.link_layer is not LinkLayer.INFINIBAND or not port.is_active or port.is_software:
        return port, None
    answer = tools.ask(machine, settings, "sminfo", "-C", port.hca, "-P", str(port.port))
    master = parse_master(answer.out)
    if master is not None:
        return msgspec.structs.replace(port, subnet_manager=master), None
    return port, _unknown(port, answer)


def _unknown(port: Port, answer: ToolResult) -> Problem:
    fact = f"port {port.name}: subnet manager"
    why, told = _why(answer, "sminfo")
    if why == "exit" and _NO_ANSWER.search(answer.out + answer.err):
        text = f"{fact} does not answer: existing connections go on, new ones fail; see to the subnet manager"
    else:
        text = f"{fact} is not known: {told}"
    return Problem(code=f"sminfo.{why}", fact=fact, text=text, literal=_literal(answer))


def _why(answer: ToolResult, tool: str) -> tuple[str, str]:
    """Return the end of a problem's code, and the reason in words."""
    if answer.why:
        texts = {"missing": f"{tool} is not installed (infiniband-diags)", "not-allowed": f"{tool} may not be run"}
        return answer.why, texts.get(answer.why, answer.problem)
    if _DENIED.search(answer.out) or _DENIED.search(answer.err):
        return "not-allowed", "/dev/infiniband/umad* may be opened by root alone"
    return "exit", f"{tool} ends with {answer.code}"


def _literal(answer: ToolResult) -> str:
    return "" if answer.problem == "not found" else cut(answer.out or answer.err or answer.problem)


# --- all managers of a subnet -------------------------------------------------------------------------------------


class _Listed(NamedTuple):
    answer: ToolResult
    managers: tuple[SubnetManager, ...]


def _listed(machine: Machine, settings: NodeSettings, port: Port) -> _Listed:
    answer = tools.ask(machine, settings, "saquery", "SMIR", "-C", port.hca, "-P", str(port.port))
    return _Listed(answer, parse_all(answer.out))


def _with_others(port: Port, answers: Mapping[str, _Listed]) -> Port:
    master = port.subnet_manager
    if master is None:
        return port
    others = tuple(each for each in answers[master.guid].managers if each.guid != master.guid)
    return msgspec.structs.replace(port, other_subnet_managers=others)


def _unlisted(port: Port, told: _Listed) -> Problem | None:
    """Say that the managers of a subnet are not all known; a tool that is missing is said once for all subnets."""
    if told.answer.ok and told.managers:
        return None  # the master at least is among them
    why, reason = ("garbage", "saquery tells of none") if told.answer.ok else _why(told.answer, "saquery")
    fact = OTHERS if why == "missing" else f"port {port.name}: {OTHERS}"
    text = f"{fact} are not known, nor {tools.TOOLS['saquery'].costs}: {reason}"
    return Problem(code=f"saquery.{why}", fact=fact, text=text, literal=_literal(told.answer))


def _several_masters(ports: Sequence[Port]) -> Iterator[Finding]:
    """Find subnets that several managers hold for their own; each is told by the first port that is on it."""
    told: set[frozenset[str]] = set()
    for port in ports:
        known = (port.subnet_manager, *port.other_subnet_managers)
        masters = frozenset(manager.guid for manager in known if manager and manager.state == "master")
        if len(masters) > 1 and masters not in told:
            told.add(masters)
            yield Finding(
                "subnet.masters",
                f"port {port.name}: its subnet has {len(masters)} masters: {', '.join(sorted(masters))}",
                about=port.name,
                costs="each sets up paths of its own: connections break or are never made, and NCCL hangs",
                cure="stop all subnet managers but one and its standby, and see whether the fabric was cut in two",
            )


# --- words --------------------------------------------------------------------------------------------------------


def parse_master(text: str) -> SubnetManager | None:
    """Read sminfo, which prints the GUID without leading zeros."""
    found = _MASTER.search(text)
    if found is None:
        return None
    state = int(found[5])
    return SubnetManager(
        guid=_guid(found[2]),
        lid=int(found[1]),
        priority=int(found[4]),
        state=_STATES[state] if state < len(_STATES) else None,
        activity=int(found[3]),
    )


def parse_all(text: str) -> tuple[SubnetManager, ...]:
    """Read the SMInfo records of saquery; what is cut off is left out."""
    found: list[SubnetManager] = []
    facts: dict[str, str] = {}
    for line in [*text.splitlines(), "SMInfoRecord dump:"]:
        if "SMInfoRecord dump" in line:
            if manager := _manager(facts):
                found.append(manager)
            facts = {}
        elif pair := _FIELD.match(line):
            facts[pair[1].lower()] = pair[2]
    return tuple(found)


def _manager(facts: dict[str, str]) -> SubnetManager | None:
    digits = facts.get("guid", "").removeprefix("0x")
    if not re.fullmatch(r"[0-9a-fA-F]{1,16}", digits):
        return None
    state = _number(facts.get("smstate"))
    return SubnetManager(
        guid=_guid(digits),
        lid=_number(facts.get("lid")),
        priority=_number(facts.get("priority")),
        state=_STATES[state] if state is not None and state < len(_STATES) else None,
        activity=_number(facts.get("actcount")),
    )


def _number(word: str | None) -> int | None:
    """Read a number; some tools print it in parentheses behind its name: `MASTER (3)`."""
    found = re.search(r"(?<![0-9])[0-9]{1,20}(?![0-9])", word or "")
    return int(found[0]) if found else None


def _guid(digits: str) -> str:
    return f"0x{digits.lower():0>16}"
