"""Asks nvidia-smi for tables of comma-separated values: fewer facts than XML has, but in every version."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final
from xml.etree.ElementTree import Element, SubElement

import msgspec

from llmgw.core.hardware.findings import Problem
from llmgw.core.hardware.gpus import Driver, Gpu
from workers import tools
from workers.discovery.nvidia import words
from workers.discovery.nvidia.cards import Cards
from workers.discovery.nvidia.smi_gpu import read_card
from workers.discovery.pci import canonical
from workers.ports import Machine
from workers.settings import NodeSettings

_FORM: Final = "--format=csv,noheader,nounits"
CORE: Final = ("index", "uuid", "name", "pci.bus_id", "memory.total", "driver_version")
"""Known to every version. One field that a version does not know fails the whole query, so others are asked apart."""
_LINK: Final = "pci/pci_gpu_link_info"
_REASONS: Final = (
    "gpu_idle",
    "applications_clocks_setting",
    "sw_power_cap",
    "hw_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
    "sw_thermal_slowdown",
    "sync_boost",
)
Group = Mapping[str, str]
"""Field → where XML has it. Fields of one group came into being together."""
_OLD: Final[Group] = MappingProxyType(
    {
        "memory.used": "fb_memory_usage/used",
        "memory.free": "fb_memory_usage/free",
        "temperature.gpu": "temperature/gpu_temp",
        "utilization.gpu": "utilization/gpu_util",
        "power.draw": "power_readings/power_draw",
        "power.limit": "power_readings/power_limit",
        "power.default_limit": "power_readings/default_power_limit",
        "clocks.sm": "clocks/sm_clock",
        "clocks.mem": "clocks/mem_clock",
        "pstate": "performance_state",
        "serial": "serial",
        "vbios_version": "vbios_version",
        "persistence_mode": "persistence_mode",
        "compute_mode": "compute_mode",
        "display_active": "display_active",
        "ecc.mode.current": "ecc_mode/current_ecc",
        "ecc.mode.pending": "ecc_mode/pending_ecc",
        "ecc.errors.uncorrected.volatile.total": "ecc_errors/volatile/double_bit/total",
        "ecc.errors.uncorrected.aggregate.total": "ecc_errors/aggregate/double_bit/total",
        "ecc.errors.corrected.volatile.total": "ecc_errors/volatile/single_bit/total",
        "ecc.errors.corrected.aggregate.total": "ecc_errors/aggregate/single_bit/total",
        "retired_pages.single_bit_ecc.count": "retired_pages/single_bit_ecc",
        "retired_pages.double_bit.count": "retired_pages/double_bit_ecc",
        "retired_pages.pending": "retired_pages/pending_retirement",
        "pcie.link.gen.current": f"{_LINK}/pcie_gen/current_link_gen",
        "pcie.link.gen.max": f"{_LINK}/pcie_gen/max_link_gen",
        "pcie.link.width.current": f"{_LINK}/link_widths/current_link_width",
        "pcie.link.width.max": f"{_LINK}/link_widths/max_link_width",
    }
)
_GROUPS: Final[tuple[Group, ...]] = (
    *({field: path} for field, path in _OLD.items()),
    {"mig.mode.current": "mig_mode/current_mig", "mig.mode.pending": "mig_mode/pending_mig"},
    {"memory.reserved": "fb_memory_usage/reserved"},
    {"temperature.gpu.tlimit": "temperature/gpu_temp_tlimit"},
    {"addressing_mode": "addressing_mode"},
    {"fabric.state": "fabric/state", "fabric.status": "fabric/status"},
    {"fabric.cliqueId": "fabric/cliqueid", "fabric.clusterUuid": "fabric/clusteruuid"},
    {f"clocks_event_reasons.{name}": f"clocks_event_reasons/{name}" for name in _REASONS},
    {f"clocks_throttle_reasons.{name}": f"clocks_throttle_reasons/{name}" for name in _REASONS},
)
_UNKNOWN: Final = re.compile(r'Field "([^"]+)" is not a valid field')
_PROCESSES: Final = ("gpu_uuid", "pid", "process_name", "used_memory")
_NAME: Final = 2
"""Which column is a name, and may hold commas."""
_UNREADABLE: Final = "[Unknown Error]"
_INDEX: Final = re.compile(r"[0-9]{1,4}")


def ask(machine: Machine, settings: NodeSettings) -> Cards:
    """Ask for the core of each card, then for what this version knows besides, then for the processes."""
    answer = tools.ask(machine, settings, "nvidia-smi", f"--query-gpu={','.join(CORE)}", _FORM)
    rows = rows_of(answer.out)
    if not rows:
        return Cards(is_known=False)
    elements = {row.uuid: row.element for row in rows if row.uuid}
    for uuid, told in _columns(machine, settings, _GROUPS).items():
        if uuid in elements:
            _fill(elements[uuid], told)
    _add_processes(machine, settings, elements)
    return _cards(rows)


def capabilities(machine: Machine, settings: NodeSettings) -> Mapping[str, str]:
    """Return UUID → compute capability, which no other answer of nvidia-smi has; older ones do not know it."""
    told = _columns(machine, settings, ({"compute_cap": "compute_cap"},))
    found = {uuid: facts.get("compute_cap", "") for uuid, facts in told.items()}
    return {uuid: word for uuid, word in found.items() if re.fullmatch(r"[0-9]{1,2}\.[0-9]", word)}


def parse(text: str) -> Cards:
    """Read the answer to `CORE`."""
    return _cards(rows_of(text))


# --- the core of each card ----------------------------------------------------------------------------------------


class Row(msgspec.Struct):
    """One row of the answer to `CORE`: a card as XML would have told it."""

    index: int | None
    uuid: str | None
    version: str
    element: Element


def rows_of(text: str) -> list[Row]:
    """Read the rows; a bad one is a card without a name, and what has not the form of a row is none."""
    return [row for line in text.splitlines() if (row := _row(_cells(line)))]


def _cells(line: str) -> list[str]:
    """Split a line; a name may hold commas, and then takes what is too much, and of a row too short all has failed."""
    cells = [cell.strip() for cell in line.split(",")]
    if len(cells) < len(CORE):
        is_row = len(cells) > 1 and _INDEX.fullmatch(cells[0])
        return [cells[0], *[_UNREADABLE] * (len(CORE) - 1)] if is_row else []
    spare = len(cells) - len(CORE)
    return [*cells[:_NAME], ", ".join(cells[_NAME : _NAME + 1 + spare]), *cells[_NAME + 1 + spare :]]


def _row(cells: list[str]) -> Row | None:
    if not cells:
        return None
    number, uuid, name, address, memory, version = cells
    is_number = _INDEX.fullmatch(number) is not None
    if not (is_number or _tells_nothing(number)) or not _may_be_uuid(uuid):
        return None
    element = Element("gpu", {"id": address} if canonical(address) else {})
    _fill(element, {"uuid": uuid, "product_name": name, "fb_memory_usage/total": memory})
    return Row(int(number) if is_number else None, uuid if uuid.startswith("GPU-") else None, version, element)


def _tells_nothing(cell: str) -> bool:
    """Tell whether there is a word in place of a value: then a card is there all the same."""
    return bool(cell) and not isinstance(words.read(cell), str)


def _may_be_uuid(cell: str) -> bool:
    return cell.startswith("GPU-") or not isinstance(words.read(cell), str)


def _cards(rows: Sequence[Row]) -> Cards:
    read = [_card(row, place) for place, row in enumerate(rows)]
    version = next((known for row in rows if (known := words.known(row.version))), None)
    driver = Driver(version=version, source="nvidia-smi") if read else None
    return Cards(driver, tuple(gpu for gpu, _ in read), tuple(bad for _, some in read for bad in some), bool(read))


def _card(row: Row, place: int) -> tuple[Gpu, tuple[Problem, ...]]:
    index = place if row.index is None else row.index
    gpu, problems = read_card(row.element, f"gpu {index}")
    return msgspec.structs.replace(gpu, index=index), problems


# --- more columns -------------------------------------------------------------------------------------------------


def _columns(machine: Machine, settings: NodeSettings, groups: Sequence[Group]) -> dict[str, dict[str, str]]:
    """Ask for all groups at once, and then without those that this version does not know.

    Returns UUID → place in XML → text.
    """
    found: dict[str, dict[str, str]] = {}
    waiting = [tuple(groups)]
    while waiting:
        asked = waiting.pop()
        paths = {field: path for group in asked for field, path in group.items()}
        answer = tools.ask(machine, settings, "nvidia-smi", f"--query-gpu=uuid,{','.join(paths)}", _FORM)
        if answer.problem:
            break
        rows = dict(_told(answer.out, list(paths.values())))
        for uuid, told in rows.items():
            found.setdefault(uuid, {}).update(told)
        waiting += [] if rows or len(asked) == 1 else _without_unknown(asked, f"{answer.out}\n{answer.err}")
    return found


def _without_unknown(asked: tuple[Group, ...], said: str) -> list[tuple[Group, ...]]:
    """Return what to ask next: what was not said to be unknown, else each group alone."""
    unknown = set(_UNKNOWN.findall(said))
    known = tuple(group for group in asked if not unknown & set(group))
    return [known] if known and len(known) < len(asked) else [(group,) for group in asked]


def _told(text: str, paths: Sequence[str]) -> Iterator[tuple[str, dict[str, str]]]:
    for line in text.splitlines():
        uuid, *cells = (cell.strip() for cell in line.split(","))
        if uuid.startswith("GPU-") and len(cells) == len(paths):
            yield uuid, dict(zip(paths, cells, strict=True))


def _fill(card: Element, told: Mapping[str, str]) -> None:
    for path, text in told.items():
        _element_at(card, path.split("/")).text = text


def _element_at(card: Element, tags: Iterable[str]) -> Element:
    for tag in tags:
        found = card.find(tag)
        card = SubElement(card, tag) if found is None else found
    return card


# --- processes ----------------------------------------------------------------------------------------------------


def _add_processes(machine: Machine, settings: NodeSettings, cards: Mapping[str, Element]) -> None:
    """Tell each card its processes, and that it has none only where the question was understood."""
    answer = tools.ask(machine, settings, "nvidia-smi", f"--query-compute-apps={','.join(_PROCESSES)}", _FORM)
    lines = [line for line in answer.out.splitlines() if line.strip()]
    rows = [row for line in lines if (row := _process(line))]
    if not answer.ok or len(rows) < len(lines):
        return
    blocks = {uuid: SubElement(card, "processes") for uuid, card in cards.items()}
    for uuid, pid, name, memory in rows:
        if uuid in blocks:
            info = SubElement(blocks[uuid], "process_info")
            _fill(info, {"pid": pid, "type": "C", "process_name": name, "used_memory": memory})


def _process(line: str) -> tuple[str, str, str, str] | None:
    """Split a row; a name may hold commas."""
    cells = [cell.strip() for cell in line.split(",")]
    if len(cells) < len(_PROCESSES) or not cells[0].startswith(("GPU-", "MIG-")):
        return None
    return cells[0], cells[1], ", ".join(cells[2:-1]), cells[-1]
