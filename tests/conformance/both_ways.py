"""One machine with one driver that can be asked for its cards in both ways."""

import os

import msgspec

from tests.fakes import nvml as fake_nvml
from tests.workers.discovery.nvidia.smi import bus, uuid
from workers.discovery.nvidia.find import find
from workers.settings import NodeSettings
from workers.system import RealMachine

SMI = """#!/bin/sh
case "$*" in
  "-q -x") cat {folder}/xml; test ! -e {folder}/dead || {{ cat {folder}/dead; exit 15; }} ;;
  "-q -x -i "*) cat {folder}/xml-$4 2>/dev/null || {{ cat {folder}/dead; exit 15; }} ;;
  "-L") cat {folder}/list ;;
  "--query-gpu=uuid,compute_cap "*) cat {folder}/capabilities ;;
  "nvlink --status") cat {folder}/links ;;
  "nvlink -e") cat {folder}/errors ;;
  *) echo 'Invalid combination of input arguments.'; exit 2 ;;
esac
"""


class Both:
    """A machine with one driver that is asked by NVML and by nvidia-smi."""

    def __init__(self, folder, library):
        self.folder, self.library = folder, library
        (folder / "sys").mkdir()
        (folder / "proc").mkdir()

    def described(self, cards, xml, listing="", capabilities="", links=""):
        fake_nvml.described(self.folder, driver="535.161.08", cuda=12020, cards=cards)
        told = {"xml": xml, "list": listing, "capabilities": capabilities, "links": links, "errors": ""}
        for name, text in told.items():
            (self.folder / name).write_text(text, "utf-8")
        tool = self.folder / "nvidia-smi"
        tool.write_text(SMI.format(folder=self.folder), "utf-8")
        tool.chmod(0o755)

    def in_kernel(self, *numbers):
        """Write what the kernel module has written down of the cards that it took."""
        for number in numbers:
            folder = self.folder / "proc/driver/nvidia/gpus" / f"0000:{number + 1:02x}:00.0"
            folder.mkdir(parents=True)
            text = f"Model: \t NVIDIA H100 80GB HBM3\nGPU UUID: \t {uuid(number)}\nBus Location: \t {bus(number + 1)}\n"
            (folder / "information").write_text(text, "utf-8")

    def cards(self, nvml):
        settings = NodeSettings(id="n1", nvml=nvml, nvidia_smi=str(self.folder / "nvidia-smi"))
        environment = {**os.environ, "FAKE_NVML": str(self.folder / "nvml.txt")}
        machine = RealMachine(environment, sysfs=self.folder / "sys", proc=self.folder / "proc")
        return find(machine, settings)

    def same(self):
        """The cards, once both ways agreed on them."""
        by_library, by_tool = self.cards(str(self.library)), self.cards("off")
        assert [msgspec.to_builtins(comparable(gpu)) for gpu in by_library.gpus] == [
            msgspec.to_builtins(gpu) for gpu in by_tool.gpus
        ]
        assert (by_library.driver.source, by_tool.driver.source) == ("nvml", "nvidia-smi")
        assert msgspec.structs.replace(by_library.driver, source="") == msgspec.structs.replace(
            by_tool.driver, source=""
        )
        assert {problem.fact for problem in by_library.problems} == {problem.fact for problem in by_tool.problems}
        return by_tool


def comparable(gpu):
    """Without what nvidia-smi never tells."""
    links = gpu.nvlinks and tuple(
        msgspec.structs.replace(link, remote=None, remote_pci_address=None) for link in gpu.nvlinks
    )
    return msgspec.structs.replace(gpu, nvlinks=links)


def nvml_card(number, **facts):
    """What NVML says of the card that `a_card` makes."""
    told = {"uuid": uuid(number), "name": "NVIDIA H100 80GB HBM3", "pci": bus(number + 1), "minor": number}
    told |= {
        "total": 81559,
        "used": 4,
        "reserved": 550,
        "free": 0,
        "temperature": 36,
        "utilization": 3,
        "sm_clock": 1410,
    }
    told |= {"persistence": 1, "compute_mode": 0, "compute": "", "graphics": ""}
    return {name: value for name, value in {**told, **facts}.items() if value is not None}
