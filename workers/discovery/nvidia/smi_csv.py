"""Asks nvidia-smi for tables of comma-separated values: few fields, but the same in every version."""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec

from llmgw.core.hardware.findings import Problem, cut
from llmgw.core.hardware.gpus import Driver, Gpu
from workers import tools
from workers.discovery.nvidia import words
from workers.discovery.nvidia.cards import Cards
from workers.discovery.nvidia.words import Failed
from workers.discovery.pci import canonical
from workers.ports import Machine
from workers.settings import NodeSettings

_FORM: Final = "--format=csv,noheader,nounits"
CORE: Final = ("index", "uuid", "name", "pci.bus_id", "memory.total", "driver_version")
"""Known to every version. One field that a version does not know fails the whole query, so others are asked apart."""
_MORE: Final[Mapping[str, tuple[str, Callable[[str], Any]]]] = MappingProxyType(
    {
        "memory.used": ("memory_used_bytes", words.amount),
        "memory.free": ("memory_free_bytes", words.amount),
        "mig.mode.current": ("mig_enabled", words.flag),
        "mig.mode.pending": ("mig_enabled_pending", words.flag),
        "temperature.gpu": ("temperature_celsius", words.whole),
        "power.draw": ("power_watts", words.number),
        "utilization.gpu": ("utilization_percent", words.whole),
    }
)


def ask(machine: Machine, settings: NodeSettings) -> Cards:
    """Ask for the core of each card, then for each further field alone."""
    answer = tools.ask(machine, settings, "nvidia-smi", f"--query-gpu={','.join(CORE)}", _FORM)
    cards = parse(answer.out)
    if not cards.gpus:
        return cards
    gpus = {gpu.uuid: gpu for gpu in cards.gpus}
    for field, (name, read) in _MORE.items():
        for uuid, value in _column(machine, settings, field, read).items():
            if uuid in gpus:
                gpus[uuid] = msgspec.structs.replace(gpus[uuid], **{name: value})
    return Cards(
        cards.driver, tuple(gpus.get(gpu.uuid, gpu) if gpu.uuid else gpu for gpu in cards.gpus), cards.problems
    )


def capabilities(machine: Machine, settings: NodeSettings) -> Mapping[str, str]:
    """Return UUID → compute capability, which no other answer of nvidia-smi has; older ones do not know it."""
    return _column(machine, settings, "compute_cap", lambda word: word if _is_capability(word) else Failed(word))


def parse(text: str) -> Cards:
    """Read the answer to `CORE`; a row of another shape is one unnamed card that cannot be used."""
    rows = [row for line in text.splitlines() if (row := _cells(line))]
    read = [_row(row, place) for place, row in enumerate(rows)]
    version = next((row[5] for row in rows if len(row) == len(CORE) and isinstance(words.read(row[5]), str)), None)
    driver = Driver(version=version, source="nvidia-smi") if read else None
    return Cards(driver, tuple(gpu for gpu, _ in read), tuple(bad for _, some in read for bad in some), bool(read))


def _cells(line: str) -> list[str]:
    """Split a line of at least as many cells as there are; a name may hold commas, and then takes the rest."""
    cells = [cell.strip() for cell in line.split(",")]
    if len(cells) < len(CORE):
        return []
    spare = len(cells) - len(CORE)
    return [*cells[:2], ", ".join(cells[2 : 3 + spare]), *cells[3 + spare :]]


def _row(row: list[str], place: int) -> tuple[Gpu, tuple[Problem, ...]]:
    number, uuid, name, address, memory, _ = row
    lost = words.LOST.search(", ".join(row))
    index = int(number) if number.isdigit() else place
    size = words.read(memory)
    total = words.amount(size) if isinstance(size, str) and not isinstance(size, Failed) else size
    failed = [cell for cell in (uuid, name, memory) if isinstance(words.read(cell), Failed)]
    gpu = Gpu(
        index=index,
        uuid=uuid if uuid.startswith("GPU-") else None,
        name=name if isinstance(words.read(name), str) else None,
        pci_address=canonical(address),
        memory_total_bytes=total if isinstance(total, int) else None,
        failed=lost[0] if lost else (failed[0] if len(failed) > 1 else None),
    )
    return gpu, tuple(_problems(gpu, total))


def _problems(gpu: Gpu, memory: Any) -> Iterator[Problem]:
    if isinstance(memory, Failed) and not gpu.failed:
        fact = f"gpu {gpu.index}: memory_total"
        yield Problem(
            code="nvidia-smi.field-failed",
            fact=fact,
            text=f"{fact}: the driver failed to tell it",
            literal=cut(memory.words),
        )


def _column(machine: Machine, settings: NodeSettings, field: str, read: Callable[[str], Any]) -> Mapping[str, Any]:
    answer = tools.ask(machine, settings, "nvidia-smi", f"--query-gpu=uuid,{field}", _FORM)
    pairs = (line.partition(",") for line in answer.out.splitlines()) if answer.ok else ()
    told = {uuid.strip(): words.read(value) for uuid, _, value in pairs if uuid.strip().startswith("GPU-")}
    known = {uuid: read(word) for uuid, word in told.items() if isinstance(word, str) and not isinstance(word, Failed)}
    return {uuid: value for uuid, value in known.items() if not isinstance(value, Failed)}


def _is_capability(word: str) -> bool:
    major, dot, minor = word.partition(".")
    return bool(dot) and major.isdigit() and minor.isdigit()
