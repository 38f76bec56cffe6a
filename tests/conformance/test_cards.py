"""Both ways to ask for the cards tell the same of the same machine."""

import os

import msgspec
import pytest

from llmgw.core.hardware.gpus import FabricState
from llmgw.core.units import GIB, MIB
from tests.fakes import nvml as fake_nvml
from tests.workers.discovery.nvidia.smi import a_card, a_log, bus, fb, listed, mig_uuid, uuid
from workers.discovery.nvidia.find import find
from workers.settings import NodeSettings
from workers.system import RealMachine

SMI = """#!/bin/sh
case "$*" in
  "-q -x") cat {folder}/xml ;;
  "-L") cat {folder}/list ;;
  "--query-gpu=uuid,compute_cap "*) cat {folder}/capabilities ;;
  "nvlink --status") cat {folder}/links ;;
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
        for name, text in (("xml", xml), ("list", listing), ("capabilities", capabilities), ("links", links)):
            (self.folder / name).write_text(text, "utf-8")
        tool = self.folder / "nvidia-smi"
        tool.write_text(SMI.format(folder=self.folder), "utf-8")
        tool.chmod(0o755)

    def cards(self, nvml):
        settings = NodeSettings(id="n1", nvml=nvml, nvidia_smi=str(self.folder / "nvidia-smi"))
        environment = {**os.environ, "FAKE_NVML": str(self.folder / "nvml.txt")}
        machine = RealMachine(environment, sysfs=self.folder / "sys", proc=self.folder / "proc")
        return find(machine, settings)

    def same(self):
        """The cards, once both ways agreed on them."""
        by_library, by_tool = self.cards(str(self.library)), self.cards("off")
        assert [msgspec.to_builtins(gpu) for gpu in by_library.gpus] == [
            msgspec.to_builtins(gpu) for gpu in by_tool.gpus
        ]
        assert (by_library.driver.source, by_tool.driver.source) == ("nvml", "nvidia-smi")
        assert msgspec.structs.replace(by_library.driver, source="") == msgspec.structs.replace(
            by_tool.driver, source=""
        )
        assert {problem.fact for problem in by_library.problems} == {problem.fact for problem in by_tool.problems}
        return by_tool


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    return fake_nvml.compiled(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def both(tmp_path, library):
    return Both(tmp_path, library)


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


def test_eight_cards_on_a_fabric(both):
    fabric = (
        "<fabric><state>Completed</state><status>Success</status><cliqueId>2</cliqueId>"
        "<clusterUuid>dc6e40c4-d722-4357-9ba6-5291dd461278</clusterUuid></fabric>"
        "<gpu_recovery_action>None</gpu_recovery_action><pci><replay_counter>7</replay_counter></pci>"
    )
    facts = {"fabric": "3,0,2,dc6e40c4d72243579ba65291dd461278", "field.230": 0, "replays": 7, "capability": "9.0"}
    both.described(
        [nvml_card(n, **facts, **{"field.91": 2, "link.0": 1, "link.1": 0}) for n in range(8)],
        a_log(*[a_card(n, more=fabric) for n in range(8)]),
        listed(*[(n, "NVIDIA H100 80GB HBM3") for n in range(8)]),
        "".join(f"{uuid(n)}, 9.0\n" for n in range(8)),
        "".join(
            f"GPU {n}: NVIDIA H100 80GB HBM3 (UUID: {uuid(n)})\n\t Link 0: 26.562 GB/s\n\t Link 1: <inactive>\n"
            for n in range(8)
        ),
    )
    gpus = both.same().gpus
    assert len(gpus) == 8
    assert {(gpu.device_class, gpu.compute_capability) for gpu in gpus} == {("h100-80g", "9.0")}
    assert gpus[0].fabric.domain == "dc6e40c4-d722-4357-9ba6-5291dd461278.2"
    assert [link.active for link in gpus[0].nvlinks] == [True, False]


def test_instances_with_a_hole(both):
    name = "NVIDIA A100-SXM4-80GB"
    parts = {
        slot: {
            "uuid": mig_uuid(slot),
            "name": f"{name} MIG 3g.40gb",
            "gi": slot + 3,
            "ci": 0,
            "total": 40192,
            "used": 0,
            "free": 0,
        }
        for slot in (0, 2)
    }
    device = (
        "<mig_device><index>{0}</index><gpu_instance_id>{1}</gpu_instance_id>"
        "<compute_instance_id>0</compute_instance_id>{2}</mig_device>"
    )
    mig = (
        "<mig_mode><current_mig>Enabled</current_mig><pending_mig>Enabled</pending_mig></mig_mode><mig_devices>"
        + "".join(device.format(slot, slot + 3, fb(40192)) for slot in (0, 2))
        + "</mig_devices>"
    )
    both.described(
        [nvml_card(0, name=name, mig="1,1", total=81920, parts=parts)],
        a_log(a_card(0, name=name, mig=mig, memory=fb(81920, 4, 550))),
        listed((0, name, "3g.40gb", "", "3g.40gb")),
    )
    (gpu,) = both.same().gpus
    assert [(part.slot, part.uuid, part.profile) for part in gpu.instances] == [
        (0, mig_uuid(0), "3g.40gb"),
        (2, mig_uuid(2), "3g.40gb"),
    ]


def test_an_old_card_with_retired_pages(both):
    pages = (
        "<retired_pages><multiple_single_bit_retirement><retired_count>2</retired_count></multiple_single_bit_retirement>"
        "<double_bit_retirement><retired_count>1</retired_count></double_bit_retirement>"
        "<pending_retirement>Yes</pending_retirement></retired_pages>"
        "<ecc_mode><current_ecc>Enabled</current_ecc><pending_ecc>Enabled</pending_ecc></ecc_mode>"
        "<ecc_errors><volatile><sram_uncorrectable>0</sram_uncorrectable><dram_uncorrectable>3</dram_uncorrectable></volatile></ecc_errors>"
    )
    facts = {"retired.0": 2, "retired.1": 1, "retired.pending": 1, "ecc": 1, "errors.1.0": 3}
    both.described(
        [nvml_card(0, name="Tesla T4", total=15360, reserved=400, **facts)],
        a_log(a_card(0, name="Tesla T4", memory=fb(15360, 4, 400), more=pages)),
    )
    (gpu,) = both.same().gpus
    assert (gpu.retired_pages.pending, gpu.ecc.uncorrected_volatile, gpu.compute_capability) == (True, 3, "7.5")


def test_a_container_that_may_not_read_the_parents_memory(both):
    denied = "<fb_memory_usage><total>Insufficient Permissions</total></fb_memory_usage>"
    both.described([nvml_card(0, total="!4", used=None, reserved=None, free=None)], a_log(a_card(0, memory=denied)))
    cards = both.same()
    assert cards.gpus[0].memory_total_bytes is None
    assert {problem.code for problem in cards.problems} == {"nvidia-smi.not-allowed"}


def test_a_card_without_memory_of_its_own(both):
    none = "<fb_memory_usage><total>Not Supported</total><used>N/A</used></fb_memory_usage>"
    both.described(
        [nvml_card(0, name="NVIDIA GB10", total=None, used=None, reserved=None, free=None)],
        a_log(a_card(0, name="NVIDIA GB10", memory=none)),
    )
    (gpu,) = both.same().gpus
    assert (gpu.memory_is_unified, gpu.compute_capability) == (True, "12.1")


def test_processes_and_their_memory(both):
    told = {"pid": 42, "type": "C", "process_name": "python", "used_memory": "100 MiB"}
    info = f"<process_info>{''.join(f'<{tag}>{word}</{tag}>' for tag, word in told.items())}</process_info>"
    card = a_card(0).replace("<processes>\n    </processes>", f"<processes>{info}</processes>")
    fake = nvml_card(0, compute="42,100")
    both.described([fake], a_log(card))
    with (both.folder / "nvml.txt").open("a", encoding="utf-8") as more:
        more.write("process.42=python\n")
    (gpu,) = both.same().gpus
    assert [(p.pid, p.name, p.memory_bytes, p.kind) for p in gpu.processes] == [(42, "python", 100 * MIB, "compute")]


def test_a_fabric_that_is_being_joined(both):
    block = "<fabric><state>In Progress</state><status>N/A</status><clusterUuid>N/A</clusterUuid></fabric>"
    both.described([nvml_card(0, fabric="2,0,0,0")], a_log(a_card(0, more=block)))
    assert both.same().gpus[0].fabric.state is FabricState.IN_PROGRESS


def test_the_library_alone_tells_of_a_card_that_is_lost(both):
    both.described([nvml_card(0), {"handle": "!15"}, nvml_card(2)], "")
    folder = both.folder / "proc/driver/nvidia/gpus"
    for number in range(3):
        (folder / f"0000:0{number + 1}:00.0").mkdir(parents=True)
        text = f"Model: \t NVIDIA H100\nGPU UUID: \t {uuid(number)}\n"
        (folder / f"0000:0{number + 1}:00.0/information").write_text(text, "utf-8")
    gpus = both.cards(str(both.library)).gpus
    assert [(gpu.index, gpu.uuid, gpu.failed) for gpu in gpus] == [
        (0, uuid(0), None),
        (1, uuid(1), "GPU is lost"),
        (2, uuid(2), None),
    ]
    assert gpus[0].memory_total_bytes < 80 * GIB
