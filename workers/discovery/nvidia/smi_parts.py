"""The parts of a card that nvidia-smi tells of: its instances, and the processes on it."""

from collections.abc import Iterator
from types import MappingProxyType
from typing import Final
from xml.etree.ElementTree import Element

from llmgw.core.hardware.findings import Problem
from llmgw.core.hardware.gpus import MigInstance, Process
from workers.discovery.nvidia import words
from workers.discovery.nvidia.smi_sheet import FB, UNCORRECTED, Sheet
from workers.discovery.nvidia.smi_tree import text_at
from workers.discovery.nvidia.words import count


def instances_of(element: Element, called: str, problems: list[Problem]) -> Iterator[MigInstance]:
    """Read the instances of a card in MIG mode; their profiles, and most times their UUIDs, stand in `-L` alone."""
    seen: set[int] = set()
    for part in element.iter("mig_device"):
        slot = count(text_at(part, "index"))
        if slot is not None and slot not in seen:
            seen.add(slot)
            yield _instance(part, slot, f"{called}/mig{slot}", problems)


def _instance(part: Element, slot: int, called: str, problems: list[Problem]) -> MigInstance:
    sheet = Sheet(part, called)
    told = MigInstance(
        slot=slot,
        uuid=sheet.one("uuid", words.instance_uuid, "uuid", "mig_uuid"),
        gpu_instance_id=sheet.one("gpu instance", words.whole, "gpu_instance_id"),
        compute_instance_id=sheet.one("compute instance", words.whole, "compute_instance_id"),
        memory_total_bytes=sheet.one("memory_total_bytes", words.amount, f"{FB}/total"),
        memory_used_bytes=sheet.one("memory_used_bytes", words.amount, f"{FB}/used"),
        memory_free_bytes=sheet.one("memory_free_bytes", words.amount, f"{FB}/free"),
        multiprocessors=sheet.one(
            "multiprocessors",
            words.whole,
            "device_attributes/shared/multiprocessor_count",
        ),
        ecc_uncorrected_volatile=_instance_errors(sheet),
    )
    problems.extend(sheet.problems)
    return told


def _instance_errors(sheet: Sheet) -> int | None:
    for path in ("ecc_error_count/volatile_count", "ecc_errors/volatile"):
        if (told := sheet.total("ecc errors", path, UNCORRECTED, "double_bit")) is not None:
            return told
    return None


_KINDS: Final = MappingProxyType({"C": "compute", "G": "graphics", "C+G": "both", "M+C": "compute"})


def processes_of(element: Element) -> tuple[Process, ...] | None:
    """Read who holds memory of a card; None where the driver does not tell."""
    block = element.find("processes")
    if block is None:
        return None
    if len(block) == 0:
        return () if words.lower(block.text or "") in {"", "none"} else None
    return tuple(dict.fromkeys((*_xml_processes(block), *_text_processes(block))))


def _xml_processes(block: Element) -> Iterator[Process]:
    for info in block.iter("process_info"):
        instance, compute = text_at(info, "gpu_instance_id"), text_at(info, "compute_instance_id")
        yield from _process(info, text_at(info, "pid"), instance, compute)


def _text_processes(block: Element) -> Iterator[Process]:
    """Read the text form: the instance stands above each process, and its facts below it."""
    instance = compute = None
    for each in block:
        if each.tag == "gpu_instance_id":
            instance = each.text
        elif each.tag == "compute_instance_id":
            compute = each.text
        elif each.tag == "process_id":
            yield from _process(each, each.text, instance, compute)


def _process(info: Element, pid: str | None, instance: str | None, compute: str | None) -> Iterator[Process]:
    number = count(pid)
    if number is None:
        return
    sheet = Sheet(info, "")  # nobody needs to hear that a process has just ended
    memory = sheet.one("memory", words.amount, "used_memory", "used_gpu_memory")
    yield Process(
        pid=number,
        name=sheet.one("name", str, "process_name", "name"),
        memory_bytes=memory,
        kind=_KINDS.get((text_at(info, "type") or "").strip(), "compute"),
        gpu_instance_id=count(instance),
        compute_instance_id=count(compute),
    )
