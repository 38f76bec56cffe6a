"""Cards as nvidia-smi tells them: every generation of drivers, instances, dead cards, and nothing but an excuse."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.core.hardware.gpus import FabricState
from llmgw.core.units import GIB, MIB
from tests.fakes.machine import FakeMachine
from tests.workers.discovery.nvidia.smi import (
    SETTINGS,
    a_card,
    a_log,
    a_machine,
    bus,
    fb,
    listed,
    mig_uuid,
    uuid,
)
from workers.discovery.nvidia import smi, smi_list, smi_tree
from workers.ports import ToolResult

H100 = "NVIDIA H100 80GB HBM3"
A100 = "NVIDIA A100-SXM4-80GB"


def ask(*machine, **more):
    return smi.ask(a_machine(*machine, **more), SETTINGS)


def one(more="", **card):
    (gpu,) = ask(a_log(a_card(0, more=more, **card))).gpus
    return gpu


def codes(cards):
    return [problem.code for problem in cards.problems]


# --- a healthy machine


def test_every_card_is_told_with_its_facts():
    cards = ask(a_log(*[a_card(n) for n in range(8)]), listed(*[(n, H100) for n in range(8)]))
    assert [(gpu.index, gpu.uuid, gpu.pci_address) for gpu in cards.gpus] == [
        (n, uuid(n), f"0000:{n + 1:02x}:00.0") for n in range(8)
    ]
    gpu = cards.gpus[0]
    assert (gpu.memory_total_bytes, gpu.memory_used_bytes, gpu.memory_reserved_bytes) == (
        81559 * MIB,
        4 * MIB,
        550 * MIB,
    )
    assert (gpu.temperature_celsius, gpu.utilization_percent, gpu.clock_sm_mhz) == (36, 3, 1410)
    assert (gpu.persistence_mode, gpu.compute_mode, gpu.processes, gpu.mig_enabled) == (True, "default", (), None)
    assert (cards.driver.version, cards.driver.cuda_version, cards.driver.source) == (
        "535.161.08",
        "12.2",
        "nvidia-smi",
    )
    assert (cards.problems, cards.is_known) == ((), True)


@pytest.mark.parametrize(
    ("block", "watts"),
    [
        ("<power_readings><power_draw>66.92 W</power_draw></power_readings>", 66.92),
        ("<gpu_power_readings><power_draw>20.1 W</power_draw></gpu_power_readings>", 20.1),
        ("<gpu_power_readings><average_power_draw>5 W</average_power_draw></gpu_power_readings>", 5.0),
        ("<gpu_power_readings><power_draw>N/A</power_draw></gpu_power_readings>", None),
    ],
)
def test_power_is_found_where_each_generation_has_it(block, watts):
    assert one(block).power_watts == watts


@pytest.mark.parametrize("block", ["clocks_throttle_reasons", "clocks_event_reasons"])
def test_reasons_for_slow_clocks_have_had_two_names(block):
    reason = f"{block.removesuffix('s')}_hw_thermal_slowdown"
    assert one(f"<{block}><{reason}>Active</{reason}></{block}>").throttle_reasons == ("hw-thermal",)


def volatile(**counts):
    told = "".join(f"<{name}>{count}</{name}>" for name, count in counts.items())
    return f"<ecc_errors><volatile>{told}</volatile></ecc_errors>"


@pytest.mark.parametrize(
    ("block", "errors"),
    [
        (volatile(sram_uncorrectable=1, dram_uncorrectable=2), 3),
        (volatile(sram_uncorrectable_parity=1, sram_uncorrectable_secded=4, dram_uncorrectable=2), 7),
        (volatile(sram_uncorrectable="N/A", dram_uncorrectable=2), 2),
        (volatile(sram_uncorrectable="N/A", dram_uncorrectable="N/A"), None),
        ("<ecc_errors><volatile><double_bit><total>9</total></double_bit></volatile></ecc_errors>", 9),
        ("", None),
    ],
)
def test_uncorrected_errors_are_added_up_and_unknown_is_not_none_of_them(block, errors):
    assert one(block).ecc.uncorrected_volatile == errors


def test_remapped_rows_and_retired_pages():
    rows = "<remapped_rows><remapped_row_pending>Yes</remapped_row_pending></remapped_rows>"
    assert one(rows).remapped_rows.pending is True
    assert one("<remapped_rows>N/A</remapped_rows>").remapped_rows is None
    for tag in ("pending_retirement", "pending_blacklist"):
        assert one(f"<retired_pages><{tag}>Yes</{tag}></retired_pages>").retired_pages.pending is True


def test_what_a_reset_is_asked_by_has_had_two_names():
    assert one("<gpu_recovery_action>GPU Reset</gpu_recovery_action>").recovery_action == "gpu-reset"
    old = "<gpu_reset_status><reset_required>Yes</reset_required></gpu_reset_status>"
    assert one(old).recovery_action == "gpu-reset"
    assert one("<gpu_recovery_action>None</gpu_recovery_action>").recovery_action == "none"


@pytest.mark.parametrize(
    ("state", "status", "cluster", "domain", "meant"),
    [
        ("Completed", "Success", "00000000-0000-0000-0000-000000000000", None, FabricState.COMPLETED),
        ("Completed", "Success", "dc6e-1", "dc6e-1.2", FabricState.COMPLETED),
        ("Completed", "Insufficient Resources", "dc6e-1", None, FabricState.COMPLETED),
        ("In Progress", "N/A", "N/A", None, FabricState.IN_PROGRESS),
        ("Not Supported", "Success", "N/A", None, FabricState.NOT_SUPPORTED),
    ],
)
def test_the_fabric_is_read_by_state_and_status(state, status, cluster, domain, meant):
    told = {"state": state, "status": status, "cliqueId": 2, "clusterUuid": cluster}
    fabric = one(f"<fabric>{''.join(f'<{tag}>{word}</{tag}>' for tag, word in told.items())}</fabric>").fabric
    assert (fabric.state, fabric.domain) == (meant, domain)
    assert one("<fabric><state>N/A</state><status>N/A</status></fabric>").fabric is None


# --- single fields that fail


def test_an_odd_field_costs_itself():
    cards = ask(a_log(a_card(0, more="<addressing_mode>Unknown Error</addressing_mode>")))
    assert (cards.gpus[0].failed, cards.gpus[0].addressing_mode) == (None, None)
    (problem,) = cards.problems
    assert (problem.code, problem.fact, problem.literal) == (
        "nvidia-smi.field-failed",
        "gpu 0: addressing_mode",
        "Unknown Error",
    )


def test_a_container_may_not_read_the_parents_memory():
    memory = "<fb_memory_usage><total>Insufficient Permissions</total><used>N/A</used></fb_memory_usage>"
    cards = ask(a_log(a_card(0, memory=memory)))
    assert cards.gpus[0].memory_total_bytes is None
    assert codes(cards) == ["nvidia-smi.not-allowed"]


@pytest.mark.parametrize("words", ["GPU is lost", "GPU requires reset", "[GPU is lost]"])
def test_a_card_that_says_so_can_do_nothing(words):
    gpu = one(memory=f"<fb_memory_usage><total>{words}</total></fb_memory_usage>")
    assert gpu.failed == words.strip("[]")


def test_a_card_of_which_the_core_fails_has_failed():
    assert (
        one(name="ERR!", memory="<fb_memory_usage><total>ERR!</total></fb_memory_usage>", who="ERR!").failed == "ERR!"
    )


# --- instances


def mig(*parts, pending="Enabled"):
    devices = "".join(
        f"<mig_device><index>{slot}</index><gpu_instance_id>{slot + 3}</gpu_instance_id>"
        f"<compute_instance_id>0</compute_instance_id>{fb(memory)}</mig_device>"
        for slot, memory in parts
    )
    mode = f"<mig_mode><current_mig>Enabled</current_mig><pending_mig>{pending}</pending_mig></mig_mode>"
    return f"{mode}<mig_devices>{devices or 'None'}</mig_devices>"


def test_instances_have_their_memory_from_one_answer_and_their_names_from_another():
    log = a_log(a_card(0, name=A100, mig=mig((0, 40192), (2, 19968))))
    (gpu,) = ask(log, listed((0, A100, "3g.40gb", "", "2g.20gb"))).gpus
    assert [
        (part.slot, part.uuid, part.profile, part.memory_total_bytes, part.gpu_instance_id) for part in gpu.instances
    ] == [
        (0, mig_uuid(0), "3g.40gb", 40192 * MIB, 3),
        (2, mig_uuid(2), "2g.20gb", 19968 * MIB, 5),
    ]


def test_instances_without_the_other_answer_are_still_there():
    (gpu,) = ask(a_log(a_card(0, mig=mig((0, 40192))))).gpus
    assert [(part.slot, part.uuid, part.profile) for part in gpu.instances] == [(0, None, None)]
    (gpu,) = ask(a_log(a_card(0, mig=mig())), listed((0, A100, "1g.10gb+me"))).gpus
    assert [(part.profile, part.memory_total_bytes) for part in gpu.instances] == [("1g.10gb+me", None)]


def test_nothing_carved_is_no_instance():
    (gpu,) = ask(a_log(a_card(0, mig=mig(pending="Disabled"))), listed((0, A100))).gpus
    assert (gpu.mig_enabled, gpu.mig_enabled_pending, gpu.instances) == (True, False, ())


def test_a_list_alone_tells_that_a_card_is_cut():
    (gpu,) = ask(tools={"nvidia-smi -L": listed((0, A100, "1g.10gb"))}).gpus
    assert (gpu.mig_enabled, [part.profile for part in gpu.instances]) == (True, ["1g.10gb"])


def test_both_spellings_of_an_instance_are_taken():
    old = f"GPU 3: {A100} (UUID: {uuid(3)})\n  MIG 1g.5gb Device 0: (UUID: MIG-{uuid(3)}/7/0)\n"
    (card,) = smi_list.parse(old)
    assert card.instances[0].uuid == f"MIG-{uuid(3)}/7/0"


# --- documents that break


def test_what_came_before_the_break_still_counts():
    log = a_log(a_card(0), a_card(1), attached=8, end="")[:-60]
    cards = ask(log)
    assert cards.gpus[0].uuid == uuid(0)
    assert codes(cards) == ["nvidia-smi.truncated"]


def test_words_before_and_after_do_not_matter():
    noisy = f"WARNING: infoROM is corrupted at gpu {bus(1)}\n{a_log(a_card(0), a_card(1))}\nbye\n"
    cards = ask(noisy)
    assert [gpu.inforom_ok for gpu in cards.gpus] == [False, None]


def test_no_entity_is_declared():
    bomb = a_log(a_card(0, name="&lol;")).replace('dtd">', 'dtd" [<!ENTITY lol "x">]>')
    assert [gpu.name for gpu in ask(bomb).gpus] == ["&lol;"]


def test_text_is_read_where_there_is_no_xml():
    text = f"""
==============NVSMI LOG==============
Driver Version                            : 560.35.03
Attached GPUs                             : 1
GPU 00000000:01:00.0
    Product Name                          : NVIDIA TITAN V
    GPU UUID                              : {uuid(7)}
    MIG Mode
        Current                           : N/A
    FB Memory Usage
        Total                             : 12288 MiB
        Used                              : 290 MiB
    Temperature
        GPU Current Temp                      : 44 C
    Processes
        GPU instance ID                   : N/A
        Process ID                        : 1006
            Type                          : G
            Name                          : Xorg
            Used GPU Memory               : 142 MiB
"""
    cards = ask(tools={"nvidia-smi -q": text})
    (gpu,) = cards.gpus
    assert (gpu.uuid, gpu.memory_total_bytes, gpu.temperature_celsius) == (uuid(7), 12 * GIB, 44)
    assert [(p.pid, p.kind, p.memory_bytes) for p in gpu.processes] == [(1006, "graphics", 142 * MIB)]
    assert codes(cards) == ["nvidia-smi.exit"]


# --- tables of comma-separated values

QUERY = "nvidia-smi --query-gpu=index,uuid,name,pci.bus_id,memory.total,driver_version --format=csv,noheader,nounits"


def test_a_table_is_the_second_look():
    lost = f"1, {uuid(1)}, [GPU is lost], {bus(2)}, [GPU is lost], 470.57\n"
    rows = f"0, {uuid(0)}, Tesla T4, {bus(1)}, 15360, 470.57\n{lost}"
    used = "nvidia-smi --query-gpu=uuid,memory.used --format=csv,noheader,nounits"
    cards = ask(tools={QUERY: rows, used: f"{uuid(0)}, 12\n"})
    assert [(g.index, g.name, g.memory_total_bytes, g.memory_used_bytes, g.failed) for g in cards.gpus] == [
        (0, "Tesla T4", 15 * GIB, 12 * MIB, None),
        (1, None, None, None, "GPU is lost"),
    ]
    assert (cards.driver.version, codes(cards)) == ("470.57", ["nvidia-smi.exit"])


def test_a_row_without_a_name_is_one_card_that_cannot_be_used():
    cards = ask(tools={QUERY: f"0, [Unknown Error], [Unknown Error], {bus(1)}, [Unknown Error], 470.57\n"})
    assert [(gpu.uuid, gpu.failed) for gpu in cards.gpus] == [(None, "Unknown Error")]


def test_the_capability_is_another_question():
    asked = "nvidia-smi --query-gpu=uuid,compute_cap --format=csv,noheader,nounits"
    log = a_log(a_card(0), a_card(1))
    assert [gpu.compute_capability for gpu in ask(log, tools={asked: f"{uuid(1)}, 9.0\n{uuid(0)}, [N/A]\n"}).gpus] == [
        None,
        "9.0",
    ]
    old = 'Field "compute_cap" is not a valid field to query.\n'
    assert ask(log, tools={asked: ToolResult(2, old)}).problems == ()


# --- dead cards

DEAD = (
    "Unable to determine the device handle for GPU0000:02:00.0: GPU is lost.  Reboot the system to recover this GPU\n"
)
OF_KERNEL = {
    f"/proc/driver/nvidia/gpus/0000:0{n + 1}:00.0/information": f"Model: \t\t {H100}\nGPU UUID: \t {uuid(n)}\n"
    for n in range(3)
}


def test_a_dead_card_hides_no_other_and_keeps_its_number():
    alone = {f"nvidia-smi -q -x -i {bus(n + 1)}": a_log(a_card(n)) for n in (0, 2)}
    alone |= {f"nvidia-smi -q -x -i {bus(2)}": ToolResult(15, DEAD)}
    cards = ask(ToolResult(15, DEAD), files=OF_KERNEL, tools=alone)
    assert [(gpu.index, gpu.uuid, gpu.failed) for gpu in cards.gpus] == [
        (0, uuid(0), None),
        (1, uuid(1), "GPU is lost"),
        (2, uuid(2), None),
    ]


def test_without_the_kernels_list_cards_are_asked_by_number():
    alone = {"nvidia-smi -q -x -i 0": a_log(a_card(0)), "nvidia-smi -q -x -i 1": ToolResult(15, DEAD)}
    alone |= {
        "nvidia-smi -q -x -i 2": a_log(a_card(2)),
        "nvidia-smi -q -x -i 3": ToolResult(6, "No devices were found\n"),
    }
    cards = ask(ToolResult(15, DEAD), tools=alone)
    assert [(gpu.index, gpu.failed) for gpu in cards.gpus] == [(0, None), (1, "GPU is lost"), (2, None)]


@pytest.mark.parametrize(
    "line",
    [
        "Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost.  Reboot the system",
        "Unable to determine the device handle for GPU0000:02:00.0: Unknown Error",
        "Unable to determine the device handle for GPU 000:02:00.0: Unknown Error",
        "Unable to determine the device handle for gpu 0000:02:00.0.",
    ],
)
def test_however_it_is_said_the_dead_one_is_found(line):
    cards = ask(ToolResult(255, line))
    assert [gpu.pci_address for gpu in cards.gpus] == ["0000:02:00.0"]
    assert cards.gpus[0].failed


def test_one_that_the_answer_leaves_out_is_asked_alone():
    alone = {f"nvidia-smi -q -x -i {bus(2)}": ToolResult(15, DEAD)}
    cards = ask(a_log(a_card(0), a_card(2), attached=3), files=OF_KERNEL, tools=alone)
    assert [(gpu.index, gpu.uuid, gpu.failed) for gpu in cards.gpus] == [
        (0, uuid(0), None),
        (1, uuid(1), "GPU is lost"),
        (2, uuid(2), None),
    ]


# --- no answer at all

MODULE = {"/proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.119.02  Thu\n"}
ON_PCI = {
    "/sys/bus/pci/devices/0000:01:00.0/vendor": "0x10de\n",
    "/sys/bus/pci/devices/0000:01:00.0/class": "0x030200\n",
}
MISMATCH = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.126\n"
NO_DRIVER = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that …\n"
NO_PERMISSION = "NVIDIA-SMI has failed because you do not have enough permissions. Please …\n"
BLOCKED = "Failed to initialize NVML: GPU access blocked by the operating system\n"
NO_LIBRARY = "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. Please make sure that …\n"


@pytest.mark.parametrize(
    ("answer", "files", "code", "is_known"),
    [
        (ToolResult(18, MISMATCH), MODULE, "nvidia-smi.mismatch", False),
        (ToolResult(9, NO_DRIVER), {}, "nvidia-smi.no-driver", True),
        (ToolResult(9, NO_DRIVER), MODULE, "nvidia-smi.no-driver", False),
        (ToolResult(9, NO_DRIVER.replace("couldn't", "could not")), {}, "nvidia-smi.no-driver", True),
        (ToolResult(9), {}, "nvidia-smi.no-driver", True),
        (ToolResult(12, NO_LIBRARY), {}, "nvidia-smi.no-library", True),
        (ToolResult(12, "", NO_LIBRARY), MODULE, "nvidia-smi.no-library", False),
        (ToolResult(18), MODULE, "nvidia-smi.mismatch", False),
        (ToolResult(4, NO_PERMISSION), MODULE, "nvidia-smi.not-allowed", False),
        (ToolResult(255, "Failed to initialize NVML: Driver Not Loaded\n"), {}, "nvidia-smi.no-driver", True),
        (ToolResult(17, BLOCKED), MODULE, "nvidia-smi.nvml", False),
        (ToolResult(255, "Failed to initialize NVML: Unknown Error\n"), MODULE, "nvidia-smi.lost-cgroup", False),
        (ToolResult(6, "No devices were found\n"), MODULE, "nvidia-smi.no-devices", True),
        (ToolResult(6, "No devices were found\n"), ON_PCI, "nvidia-smi.no-devices", False),
        (ToolResult(6, "No devices were found\n"), OF_KERNEL, "nvidia-smi.no-devices", False),
        (ToolResult(None, problem="not allowed: Permission denied"), {}, "nvidia-smi.not-allowed", False),
        (ToolResult(None, problem="no answer within 20 s"), {}, "nvidia-smi.timeout", False),
        (ToolResult(None, problem="held up since 12:00"), {}, "nvidia-smi.held-up", False),
        (ToolResult(0, "<html>proxy login</html>"), {}, "nvidia-smi.garbage", False),
    ],
)
def test_no_card_is_concluded_only_from_what_says_so(answer, files, code, is_known):
    cards = ask(answer, files=files)
    assert (codes(cards), cards.is_known, cards.gpus) == ([code], is_known, ())
    assert cards.problems[0].text


def test_a_program_that_is_not_there_says_nothing_of_cards():
    cards = smi.ask(FakeMachine(), SETTINGS)
    assert (codes(cards), cards.is_known, cards.driver) == (["nvidia-smi.missing"], False, None)


def test_a_driver_that_hangs_is_a_driver():
    cards = ask(ToolResult(None, problem="no answer within 20 s"))
    assert cards.driver.source == "nvidia-smi"


def test_both_versions_of_a_mismatch_are_told():
    (problem,) = ask(ToolResult(18, MISMATCH), files=MODULE).problems
    assert "library 580.126, module 580.119.02" in problem.text
    assert problem.literal.startswith("Failed to initialize NVML")


# --- whatever is printed

LINES = a_log(*[a_card(n, mig=mig((0, 9728))) for n in range(3)]).splitlines(keepends=True)


@given(
    st.lists(
        st.tuples(st.integers(0, len(LINES) - 1), st.sampled_from(["drop", "double", "cut", "<", "ERR!", "\0"])),
        max_size=8,
    )
)
def test_nothing_that_is_mangled_raises_or_makes_up_a_card(changes):
    lines = list(LINES)
    for at, how in changes:
        old = lines[at]
        lines[at] = {"drop": "", "double": old * 2, "cut": old[: len(old) // 2]}.get(
            how, re.sub(r">.*<", f">{how}<", old)
        )
    cards = ask("".join(lines), listed(*[(n, A100, "1g.10gb") for n in range(3)]))
    assert len({gpu.uuid for gpu in cards.gpus} - {None}) <= 4
    assert {gpu.uuid for gpu in cards.gpus} & {uuid(n) for n in range(3)} or cards.problems


@given(st.text(max_size=200))
def test_whatever_stands_there_is_read_or_not(text):
    told = ask(text, text, tools={QUERY: text, "nvidia-smi -q": f"NVSMI LOG\n{text}"})
    assert told.gpus or told.problems
    assert all(links for links in smi_list.parse_links(text, text).values())
    assert smi_tree.read_text(text) is not None
