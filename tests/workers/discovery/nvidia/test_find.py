"""Who is asked for the cards, and what is said when it was not the first choice."""

import msgspec
import pytest

from llmgw.core.hardware.gpus import Driver, Gpu, MigInstance, Process
from tests.fakes.machine import FakeMachine
from tests.workers.discovery.nvidia.smi import a_card, a_log, a_machine, listed, uuid
from workers.discovery.nvidia import nvml
from workers.discovery.nvidia.driver import parse
from workers.discovery.nvidia.find import find
from workers.discovery.nvidia.nvml_lines import Begun, Done, NoAnswer, Told
from workers.ports import DeviceNode, ToolResult
from workers.settings import NodeSettings

ASK = " ".join(nvml.PROGRAM)
TAKEN = {"/sys/bus/pci/devices/0000:01:00.0/driver": "../../../../bus/pci/drivers/nvidia"}
ON_PCI = {
    "/sys/bus/pci/devices/0000:01:00.0/vendor": "0x10de\n",
    "/sys/bus/pci/devices/0000:01:00.0/class": "0x030200\n",
}


def printed(*lines):
    return "".join(msgspec.json.encode(line).decode() + "\n" for line in lines)


def answer(*gpus, version="580.95"):
    told = [Told(gpu) for gpu in gpus]
    return printed(Begun(Driver(version=version, source="nvml", attached=len(gpus))), *told, Done())


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
        (printed(NoAnswer("library-not-found", "cannot open")), "nvml.library-not-found"),
        (printed(NoAnswer("no-module", "No module")), "nvml.no-module"),
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
    cards = look(printed(NoAnswer("mismatch", "…")), machine)
    assert (cards.gpus, cards.is_known, codes(cards)) == ((), False, ["nvml.mismatch"])
    assert not [call for call in machine.calls if call[0] == "nvidia-smi"]


def broken_off(told, attached=3):
    return printed(Begun(Driver(version="580.95", source="nvml", attached=attached)), *map(Told, told))


ONE = Gpu(index=0, uuid=uuid(0), name="NVIDIA L4", memory_total_bytes=23034 << 20)


def test_where_nvml_breaks_off_nvidia_smi_is_believed_if_it_knows_them_all():
    machine = a_machine(a_log(*map(a_card, range(3))), listed(*[(n, "NVIDIA H100 80GB HBM3") for n in range(3)]))
    cards = look(ToolResult(-11, broken_off([ONE])), machine)
    assert [(gpu.uuid, gpu.failed) for gpu in cards.gpus] == [(uuid(n), None) for n in range(3)]
    assert (cards.driver.source, codes(cards)) == ("nvidia-smi", ["nvml.crashed"])


def test_what_nvml_told_before_it_hung_is_kept_where_nvidia_smi_hangs_too():
    hangs = ToolResult(None, broken_off([ONE]), problem="no answer within 20 s")
    machine = FakeMachine(
        programs={"nvidia-smi": "nvidia-smi"}, tools={"nvidia-smi": ToolResult(None, problem="no answer within 20 s")}
    )
    cards = look(hangs, machine)
    assert [(gpu.index, gpu.uuid, gpu.failed) for gpu in cards.gpus] == [
        (0, uuid(0), None),
        (1, None, nvml.UNANSWERED),
        (2, None, nvml.UNANSWERED),
    ]
    assert (cards.driver.source, codes(cards), cards.is_known) == ("nvml", ["nvml.timeout"], True)


def test_a_card_or_instance_without_a_uuid_is_named():
    cut = Gpu(index=1, uuid="GPU-1", mig_enabled=True, instances=(MigInstance(slot=2),))
    cards = look(answer(Gpu(index=0, name="NVIDIA L4"), cut))
    assert [(problem.code, problem.fact) for problem in cards.problems] == [
        ("gpu.nameless", "gpu 0: uuid"),
        ("gpu.nameless", "gpu 1/mig2: uuid"),
    ]


def test_processes_of_an_instance_are_told_of_both_the_card_and_it():
    parts = (MigInstance(slot=0, uuid="MIG-0", gpu_instance_id=3, compute_instance_id=0, processes=(Process(pid=7),)),)
    by_part = look(answer(Gpu(index=0, uuid="GPU-0", mig_enabled=True, processes=(), instances=parts))).gpus[0]
    process = Process(pid=7, gpu_instance_id=3, compute_instance_id=0)
    bare = (msgspec.structs.replace(parts[0], processes=None),)
    by_card = look(answer(Gpu(index=0, uuid="GPU-0", mig_enabled=True, processes=(process,), instances=bare))).gpus[0]
    assert by_part == by_card
    assert by_card.instances[0].processes == (process,)


@pytest.mark.parametrize(("told", "node"), [("1\n", 1), ("-1\n", None), ("", None)])
def test_the_kernel_says_which_numa_node_a_card_is_near(told, node):
    machine = a_machine(files={**ON_PCI, "/sys/bus/pci/devices/0000:01:00.0/numa_node": told}, links=TAKEN)
    assert look(answer(Gpu(index=0, uuid="GPU-0", pci_address="0000:01:00.0")), machine).gpus[0].numa_node == node


def test_nvml_is_left_alone_where_the_settings_say_so():
    assert look(ToolResult(1), nvml="off").driver.source == "nvidia-smi"


def test_a_machine_without_a_driver_has_no_cards():
    cards = find(FakeMachine(), NodeSettings(id="n1"))
    assert (cards.gpus, cards.is_known, codes(cards)) == ((), True, ["driver.absent"])


def taken_by(driver):
    return {"/sys/bus/pci/devices/0000:01:00.0/driver": f"../../bus/pci/drivers/{driver}"} if driver else {}


@pytest.mark.parametrize(
    ("driver", "said", "is_known"),
    [
        ("nouveau", "0000:01:00.0 (nouveau) – install NVIDIA's driver, keep nouveau from loading", False),
        (None, "0000:01:00.0 (no driver) – install the driver, or build its module", False),
        ("vfio-pci", "0000:01:00.0 (vfio-pci) – it is kept for virtual machines", True),
    ],
)
def test_cards_that_no_driver_of_nvidias_has_taken_are_named(driver, said, is_known):
    cards = find(FakeMachine(files=ON_PCI, links=taken_by(driver)), NodeSettings(id="n1"))
    assert (codes(cards), cards.is_known) == (["driver.not-loaded"], is_known)
    assert said in cards.problems[0].text


@pytest.mark.parametrize("driver", ["vfio-pci", None])
def test_one_that_another_driver_has_taken_is_named_beside_those_that_are_well(driver):
    cards = look(
        answer(Gpu(index=0, uuid="GPU-0", pci_address="0000:02:00.0")), a_machine(files=ON_PCI, links=taken_by(driver))
    )
    assert [gpu.uuid for gpu in cards.gpus] == ["GPU-0"]
    assert [(problem.code, problem.fact) for problem in cards.problems] == [("driver.not-taken", "gpu 0000:01:00.0")]


def test_the_answer_that_no_driver_is_loaded_is_believed_where_nothing_of_one_is_there():
    not_loaded = printed(NoAnswer("driver-not-loaded", "Driver Not Loaded"))
    bare = FakeMachine(tools={f"{ASK} /lib/nvml.so": ToolResult(0, not_loaded)})
    assert find(bare, NodeSettings(id="n1", nvml="/lib/nvml.so")).is_known
    bare.files = ON_PCI
    assert not find(bare, NodeSettings(id="n1", nvml="/lib/nvml.so")).is_known


@pytest.mark.parametrize(("files", "is_known"), [({}, True), (ON_PCI, False)])
def test_a_driver_that_lists_none_is_believed_where_the_bus_has_none(files, is_known):
    cards = look(answer(), a_machine(files=files, links=TAKEN))
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


def taken(number, minor):
    folder = f"/proc/driver/nvidia/gpus/0000:{number + 1:02x}:00.0"
    return {f"{folder}/information": f"Model: \t\t NVIDIA L4\nGPU UUID: \t {uuid(number)}\nDevice Minor: \t {minor}\n"}


def an_l4(number):
    address = f"0000:{number + 1:02x}:00.0"
    memory = 23034 << 20
    return Gpu(
        index=number,
        uuid=uuid(number),
        name="NVIDIA L4",
        memory_total_bytes=memory,
        pci_address=address,
        minor_number=number,
    )


def test_a_card_that_the_kernel_has_and_nvml_does_not_count_is_told_as_failed():
    machine = a_machine(a_log(a_card(0)))
    machine.files = {**machine.files, **taken(0, 0), **taken(1, 1)}
    lost = look(answer(an_l4(0)), machine).gpus[1]
    assert (lost.uuid, lost.pci_address, lost.index) == (uuid(1), "0000:02:00.0", None)
    assert lost.failed is not None
    assert "kernel log" in lost.failed


def test_a_card_that_the_container_may_not_open_is_not_lost():
    machine = a_machine(a_log(a_card(0)))
    machine.files = {**machine.files, **taken(0, 0), **taken(1, 1)}
    machine.nodes = {"/dev/nvidia0": DeviceNode(195, 0, readable=True, writable=True)}
    assert [gpu.uuid for gpu in look(answer(an_l4(0)), machine).gpus] == [uuid(0)]
