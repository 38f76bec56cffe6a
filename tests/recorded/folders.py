"""Writes a made-up machine into a folder as a recording."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.recorded import adapters as ib
from tests.recorded import cards as nvidia
from tests.recorded.adapters import Adapter
from tests.recorded.cards import Card
from workers.recording import form

GIB = 1024**3
AT = 1_796_112_000.0


@dataclass
class Recording:
    """What is written; tools by command line, files by path."""

    facts: dict[str, object] = field(default_factory=dict)
    tools: dict[str, str] = field(default_factory=dict)
    calls: dict[str, dict[str, object]] = field(default_factory=dict)
    """What is to be said of calls besides their output, by command line."""
    files: dict[str, str] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    nodes: dict[str, dict[str, int]] = field(default_factory=dict)
    settings: str = ""

    def fails(self, line: str, code: int | None, out: str = "", err: str = "", problem: str = "") -> None:
        """Have a call end badly."""
        self.tools[line] = out
        self.calls[line] = {"code": code, "problem": problem, "err": err}

    # --- what every machine has

    def host(self, *, cpus: int, memory_gib: int, system: str, kernel: str, arch: str = "x86_64") -> None:
        """Say what is around the cards."""
        kib = memory_gib * 1024**2
        self.facts |= {
            "version": form.VERSION,
            "at": AT,
            "boot_id": nvidia.made_up_uuid(f"boot {kernel} {cpus}"),
            "cpu_count": cpus,
            "disks": {"/": {"total_bytes": 3500 * GIB, "free_bytes": 2800 * GIB}},
            "interfaces": {"lo": ["127.0.0.1/8", "::1/128"], "eno1": ["192.168.40.21/24"]},
        }
        self.files |= {
            "/etc/os-release": f'PRETTY_NAME="{system}"',
            "/proc/meminfo": f"MemTotal:       {kib} kB\nMemAvailable:   {kib - kib // 32} kB",
            "/proc/sys/kernel/osrelease": kernel,
            "/proc/sys/kernel/arch": arch,
            "/proc/self/cgroup": "0::/system.slice/llmgw-node.service",
        }

    # --- what cards bring

    def driver(self, version: str, cuda: str, cards: Iterable[Card], *, is_open: bool = False) -> None:
        """Say that the kernel module is loaded and has taken these cards."""
        kind = "NVIDIA UNIX Open Kernel Module for x86_64" if is_open else "NVIDIA UNIX x86_64 Kernel Module"
        self.files["/proc/driver/nvidia/version"] = f"NVRM version: {kind}  {version}  Release Build"
        for name, minor in (("nvidiactl", 255), ("nvidia-modeset", 254)):
            self.nodes[f"/dev/{name}"] = {"major": 195, "minor": minor}
        self.nodes["/dev/nvidia-uvm"] = {"major": 511, "minor": 0}
        for card in cards:
            self._kernel_card(card)

    def _kernel_card(self, card: Card) -> None:
        self.nodes[f"/dev/nvidia{card.index}"] = {"major": 195, "minor": card.index}
        self.files[f"/proc/driver/nvidia/gpus/{card.bus}/information"] = (
            f"Model: \t\t {card.name}\nIRQ:   \t\t 180\nGPU UUID: \t {card.uuid}\nVideo BIOS: \t 96.00.61.00.01\n"
            f"Bus Type: \t PCIe\nBus Location: \t {card.bus}\nDevice Minor: \t {card.index}\nGPU Excluded:\t No"
        )
        self.pci_card(card)

    def pci_card(self, card: Card, driver: str = "nvidia") -> None:
        """Have a card on the bus."""
        base = f"/sys/bus/pci/devices/{card.bus}"
        told = {"vendor": "0x10de", "device": "0x2330", "class": "0x030200", "numa_node": str(card.numa)}
        told |= {"current_link_speed": "32.0 GT/s PCIe", "max_link_speed": "32.0 GT/s PCIe"}
        told |= {"current_link_width": "16", "max_link_width": "16", "enable": "1"}
        self.files |= {f"{base}/{name}": text for name, text in told.items()}
        self.links[base] = f"../../../devices/{bridge_of(card.numa, card.index)}/{card.bus}"
        self.links[f"{base}/driver"] = f"../../../../bus/pci/drivers/{driver}"

    def smi(self, cards: list[Card], driver: str, cuda: str, *, dtd: str = "nvsmi_device_v12.dtd") -> None:
        """Have nvidia-smi tell of these cards."""
        self.tools |= {
            "nvidia-smi -q -x": nvidia.xml(cards, driver, cuda, dtd),
            "nvidia-smi -L": nvidia.listing(cards),
            f"nvidia-smi --query-gpu=uuid,compute_cap {nvidia.CSV}": nvidia.column(cards, "capability"),
            "nvidia-smi nvlink --status": nvidia.links(cards),
            "nvidia-smi nvlink -e": nvidia.link_errors(cards),
        }

    # --- what adapters bring

    def adapters(self, adapters: Iterable[Adapter]) -> None:
        """Have these adapters."""
        for adapter in adapters:
            self.files |= dict(ib.files(adapter))
            self.links |= ib.links(adapter)
            if adapter.ipv4:
                interfaces = self.facts["interfaces"]
                assert isinstance(interfaces, dict)
                interfaces[adapter.netdev] = [f"{adapter.ipv4}/24"]

    # --- writing

    def write(self, folder: Path) -> None:
        """Write it all; what is in the folder already and is not of this machine stays."""
        for path, text in self.rendered().items():
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, "utf-8")

    def rendered(self) -> Mapping[str, str]:
        """Return every file of the folder: path below it → text."""
        rendered = {form.FACTS: _json(self.facts | {"links": self.links, "nodes": self.nodes})}
        rendered[form.LINES] = "".join(_lines(self.files))
        calls = {}
        for line, out in self.tools.items():
            name = form.call_name(line)
            told = {key: value for key, value in self.calls.get(line, {}).items() if value != ""}
            rendered[f"{form.TOOLS}/{name}"] = out
            if err := told.pop("err", ""):
                rendered[f"{form.TOOLS}/{name}{form.ERRORS}"] = str(err)
            calls[name] = {"line": line} | told
        if calls:
            rendered[f"{form.TOOLS}/{form.CALLS}"] = _json(calls)
        return rendered | ({form.SETTINGS: self.settings} if self.settings else {})


def bridge_of(numa: int, number: int) -> str:
    """Name the PCI bridges above the card and the adapter of one number."""
    bus = 0x10 + 4 * number
    return f"pci0000:{bus:02x}/0000:{bus:02x}:01.0/0000:{bus + 1:02x}:00.0"


def _lines(files: Mapping[str, str]) -> Iterator[str]:
    for path, text in sorted(files.items()):
        yield from (f"{path}\t{line}\n" for line in text.split("\n"))


def _json(value: object) -> str:
    return json.dumps(value, indent=1, sort_keys=True) + "\n"
