"""Tells news in an inventory from mere fluctuation, and says news in words for the log."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from llmgw.core.hardware.findings import Finding, Problem, Severity
from llmgw.core.hardware.gpus import Ecc, Gpu, MigInstance, NvLink
from llmgw.core.hardware.network import Port, SubnetManager
from llmgw.core.units import GIB, Bytes
from llmgw.core.wire import Inventory
from llmgw.core.world import Device

_SHARE: Final = 0.05
_MOVING: Final = (
    "memory_used_bytes",
    "memory_reserved_bytes",
    "memory_free_bytes",
    "temperature_celsius",
    "temperature_margin_celsius",
    "power_watts",
    "clock_sm_mhz",
    "clock_memory_mhz",
    "utilization_percent",
    "performance_state",
    "throttle_reasons",
    "pcie_generation",  # both drop when a card is idle; what stays low is a finding
    "pcie_width",
    "pcie_replays",
    "processes",
)
_NUMBER: Final = re.compile(r"\d+(\.\d+)?")


def matters(before: Inventory, after: Inventory) -> bool:
    """Tell whether the control plane should hear of it: free memory and disk only by a twentieth and a GiB.

    Readings and counters are no news: one that means something has become a finding.
    """
    if _fixed(before) != _fixed(after):
        return True
    return _moved(before.memory_available, after.memory_available, after.memory_total) or _moved(
        before.disk_free, after.disk_free, after.disk_total
    )


def lasting(gpu: Gpu) -> Gpu:
    """Return what holds of a card for longer than a moment."""
    rows, pages, links = gpu.remapped_rows, gpu.retired_pages, gpu.nvlinks
    return msgspec.structs.replace(
        gpu,
        **dict.fromkeys(_MOVING),
        ecc=_lasting_ecc(gpu.ecc),
        remapped_rows=rows and msgspec.structs.replace(rows, corrected=None, uncorrected=None),
        retired_pages=pages and msgspec.structs.replace(pages, single_bit=None, double_bit=None),
        nvlinks=links and tuple(_lasting_link(link) for link in links),
        instances=tuple(_lasting_instance(instance) for instance in gpu.instances),
    )


def _lasting_ecc(ecc: Ecc) -> Ecc:
    counts = ("uncorrected_volatile", "corrected_volatile", "uncorrected_aggregate", "corrected_aggregate")
    return msgspec.structs.replace(ecc, **dict.fromkeys(counts))


def _lasting_link(link: NvLink) -> NvLink:
    return msgspec.structs.replace(link, errors=None)


def _lasting_instance(instance: MigInstance) -> MigInstance:
    moving = ("memory_used_bytes", "memory_free_bytes", "ecc_uncorrected_volatile", "processes")
    return msgspec.structs.replace(instance, **dict.fromkeys(moving))


def _lasting_port(port: Port) -> Port:
    return msgspec.structs.replace(
        port,
        counters={},
        counters_since=None,
        counters_since_s=None,
        subnet_manager=port.subnet_manager and _lasting_manager(port.subnet_manager),
        other_subnet_managers=tuple(_lasting_manager(other) for other in port.other_subnet_managers),
    )


def _lasting_manager(manager: SubnetManager) -> SubnetManager:
    return msgspec.structs.replace(manager, activity=None)


def _lasting_device(device: Device) -> Device:
    return msgspec.structs.replace(device, unhealthy=device.unhealthy and _without_numbers(device.unhealthy))


def _lasting_finding(finding: Finding) -> Finding:
    return msgspec.structs.replace(finding, text=_without_numbers(finding.text), literal="")


def _lasting_problem(problem: Problem) -> Problem:
    return msgspec.structs.replace(problem, text=_without_numbers(problem.text), literal="")


def _without_numbers(text: str) -> str:
    """Take out what may rise at each look."""
    return _NUMBER.sub("#", text)


def _fixed(inventory: Inventory) -> Inventory:
    return msgspec.structs.replace(
        inventory,
        memory_available=None,
        disk_free=None,
        devices=tuple(map(_lasting_device, inventory.devices)),
        gpus=tuple(map(lasting, inventory.gpus)),
        ports=tuple(map(_lasting_port, inventory.ports)),
        findings=tuple(map(_lasting_finding, inventory.findings)),
        problems=tuple(map(_lasting_problem, inventory.problems)),
    )


def _moved(before: Bytes | None, after: Bytes | None, total: Bytes | None) -> bool:
    if before is None or after is None:
        return before != after
    return abs(after - before) > max(GIB, _SHARE * (total or 0))


# --- in words -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class News:
    """One line for the log."""

    is_warning: bool
    event: str
    facts: Mapping[str, str]


def told(before: Inventory | None, after: Inventory) -> tuple[News, ...]:
    """Say what is new since the look before, each thing once; before the first look nothing was known."""
    return (*_source(before, after), *_findings(before, after), *_problems(before, after))


def _source(before: Inventory | None, after: Inventory) -> Iterator[News]:
    was = before.driver.source if before and before.driver else None
    now = after.driver.source if after.driver else None
    if now == "nvidia-smi" and was != now:
        of_nvml = (problem for problem in after.problems if problem.code.startswith("nvml."))
        why = next((problem.text for problem in of_nvml if problem.fact == "gpus"), "as the settings say")
        yield News(is_warning=was is not None, event="cards are told by nvidia-smi instead of NVML", facts={"why": why})
    elif now == "nvml" and was == "nvidia-smi":
        yield News(is_warning=False, event="cards are told by NVML again", facts={})


def _findings(before: Inventory | None, after: Inventory) -> Iterator[News]:
    was, now = _by_subject(before.findings if before else ()), _by_subject(after.findings)
    for key in now.keys() - was.keys():
        found = now[key]
        facts = {"text": found.text, "code": found.code, "about": found.about, "cure": found.cure}
        yield News(found.severity is not Severity.INFO, "finding", facts)
    for key in was.keys() - now.keys():
        yield News(is_warning=False, event="finding is gone", facts={"code": was[key].code, "about": was[key].about})


def _by_subject(findings: Iterable[Finding]) -> dict[tuple[str, str], Finding]:
    return {(finding.code, finding.about): finding for finding in findings}


def _problems(before: Inventory | None, after: Inventory) -> Iterator[News]:
    was = {(problem.code, problem.fact) for problem in (before.problems if before else ())}
    for problem in after.problems:
        if (problem.code, problem.fact) not in was:
            facts = {"text": problem.text, "code": problem.code, "literal": problem.literal}
            yield News(is_warning=False, event="not known", facts=facts)


class Masters:
    """The subnet manager that each port obeyed last: one that is taken over from may not answer for some looks."""

    def __init__(self) -> None:
        """Begin with none."""
        self._last: dict[str, str] = {}

    def told(self, after: Inventory) -> tuple[News, ...]:
        """Say from which to which a port's manager has changed, and keep it for the next look."""
        now = {port.name: port.subnet_manager.guid for port in after.ports if port.subnet_manager}
        was, self._last = self._last, self._last | now
        return tuple(
            News(is_warning=True, event="subnet manager changed", facts={"port": name, "from": was[name], "to": guid})
            for name, guid in now.items()
            if was.get(name, guid) != guid
        )
