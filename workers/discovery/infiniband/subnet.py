"""Asks which subnet manager each InfiniBand port obeys; what cannot be asked is kept as a problem of that port."""

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from llmgw.core.hardware.findings import Problem, cut
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
_STATES: Final = ("not-active", "discover", "standby", "master")


def managers(
    machine: Machine, settings: NodeSettings, ports: Sequence[Port]
) -> tuple[tuple[Port, ...], tuple[Problem, ...]]:
    """Return the ports with their masters, and with all managers of the subnet, asked once for each master."""
    asked = [_asked(machine, settings, port) for port in ports]
    problems = tuple(problem for _, problem in asked if problem)
    found: dict[str, tuple[SubnetManager, ...]] = {}
    told: list[Port] = []
    for port, _ in asked:
        master = port.subnet_manager
        if master is not None and master.guid not in found:
            answer = tools.ask(machine, settings, "saquery", "SMIR", "-C", port.hca, "-P", str(port.port))
            found[master.guid] = parse_all(answer.out)
        others = tuple(each for each in found[master.guid] if each.guid != master.guid) if master else ()
        told.append(msgspec.structs.replace(port, other_subnet_managers=others))
    return tuple(told), problems


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
    said = answer.out or answer.err or answer.problem
    if answer.problem == "not found":
        text = f"{fact} is not known: sminfo is not installed (infiniband-diags)"
        return Problem(code="sminfo.missing", fact=fact, text=text)
    if answer.problem:
        why = "held-up" if answer.problem.startswith("held up") else "timeout"
        return Problem(
            code=f"sminfo.{why}", fact=fact, text=f"{fact} is not known: {answer.problem}", literal=cut(said)
        )
    denied = re.search(r"open UMAD|failed to open|permission", said, re.IGNORECASE)
    if denied:
        text = f"{fact} is not known: /dev/infiniband/umad* may be opened by root alone"
        return Problem(code="sminfo.not-allowed", fact=fact, text=text, literal=cut(said))
    text = f"{fact} does not answer: existing connections go on, new ones fail; see to the subnet manager"
    return Problem(code="sminfo.exit", fact=fact, text=text, literal=cut(said))


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
