"""Who is asked for the cards, and what is said when it was not the first choice."""

import msgspec
import pytest

from llmgw.core.hardware.gpus import Driver, Gpu
from tests.fakes.machine import FakeMachine
from tests.workers.discovery.nvidia.smi import a_card, a_log, a_machine, listed, uuid
from workers.discovery.nvidia import nvml
from workers.discovery.nvidia.driver import parse
from workers.discovery.nvidia.find import find
from workers.ports import ToolResult
from workers.settings import NodeSettings

ASK = " ".join(nvml.PROGRAM)
ON_PCI = {
    "/sys/bus/pci/devices/0000:01:00.0/vendor": "0x10de\n",
    "/sys/bus/pci/devices/0000:01:00.0/class": "0x030200\n",
}


def printed(*lines):
    return "".join(msgspec.json.encode(line).decode() + "\n" for line in lines)


def answer(*gpus, version="580.95"):
    told = [nvml.Told(gpu) for gpu in gpus]
    return printed(nvml.Begun(Driver(version=version, source="nvml", attached=len(gpus))), *told, nvml.Done())


def look(said, machine=None, **settings):
    machine = machine or a_machine(a_log(a_card(0)), listed((0, "NVIDIA H100 80GB HBM3")))
    machine.tools = {**machine.tools, ASK: said if isinstance(said, ToolResult) else ToolResult(0, said)}
    return find(machine, NodeSettings(id="n1", **settings))


def codes(cards):
    return [problem.code for problem in cards.problems]


def test_nvml_is_asked_first():
    cards = look(answer(Gpu(index=0, uuid="GPU-0", name="NVIDIA L4", memory_total_bytes=23034 << 20)))
    assert [(gpu.uuid, gpu.device_class, gpu.compute_capability) for gpu in cards.gpus] == [("GPU-0", "l4-22g", "8.9")]
    assert (cards.driver.source, cards.problems) == ("nvml", ())


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (printed(nvml.NoAnswer("library-not-found", "cannot open")), "nvml.library-not-found"),
        (printed(nvml.NoAnswer("no-module", "No module")), "nvml.no-module"),
        (ToolResult(-11), "nvml.crashed"),
        (ToolResult(None, problem="no answer within 20 s"), "nvml.timeout"),
    ],
)
def test_otherwise_nvidia_smi_is_asked_and_that_is_said(said, code):
    cards = look(said)
    assert (cards.driver.source, cards.gpus[0].uuid, codes(cards)) == ("nvidia-smi", uuid(0), [code])
    assert cards.problems[0].text.endswith("nvidia-smi is asked instead")


def test_a_mismatch_is_not_asked_about_twice():
    machine = a_machine(a_log(a_card(0)))
    cards = look(printed(nvml.NoAnswer("mismatch", "…")), machine)
    assert (cards.gpus, cards.is_known, codes(cards)) == ((), False, ["nvml.mismatch"])
    assert not [call for call in machine.calls if call[0] == "nvidia-smi"]


def test_nvml_is_left_alone_where_the_settings_say_so():
    assert look(ToolResult(1), nvml="off").driver.source == "nvidia-smi"


def test_a_machine_without_a_driver_has_no_cards():
    cards = find(FakeMachine(), NodeSettings(id="n1"))
    assert (cards.gpus, cards.is_known, codes(cards)) == ((), True, ["driver.absent"])


def test_cards_that_no_driver_has_taken_are_named():
    nouveau = FakeMachine(
        files=ON_PCI, links={"/sys/bus/pci/devices/0000:01:00.0/driver": "../../bus/pci/drivers/nouveau"}
    )
    cards = find(nouveau, NodeSettings(id="n1"))
    assert codes(cards) == ["driver.not-loaded"]
    assert "0000:01:00.0 (nouveau)" in cards.problems[0].text


@pytest.mark.parametrize(("files", "is_known"), [({}, True), (ON_PCI, False)])
def test_a_driver_that_lists_none_is_believed_where_the_bus_has_none(files, is_known):
    cards = look(answer(), a_machine(files=files))
    assert (codes(cards), cards.is_known) == (["nvml.no-devices"], is_known)


def test_the_licence_of_a_virtual_card_is_asked_of_nvidia_smi():
    status = "<license_status>Unlicensed (Restricted)</license_status>"
    block = f"<vgpu_software_licensed_product>{status}</vgpu_software_licensed_product>"
    machine = a_machine(a_log(a_card(0, more=block)))
    cards = look(answer(Gpu(index=0, uuid=uuid(0), name="GRID A100-10C", virtualization="vgpu")), machine)
    assert cards.gpus[0].vgpu_licence == "unlicensed (restricted)"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.161.08  Sat Feb", ("535.161.08", False)),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build", ("580.95.05", True)),
        ("", (None, None)),
    ],
)
def test_the_module_says_its_version_and_kind(text, told):
    assert parse(text) == told
