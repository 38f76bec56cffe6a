"""One card of nvidia-smi's long answers, field by field, through the generations of drivers."""

import pytest

from llmgw.core.hardware.gpus import FabricState
from llmgw.core.units import MIB
from tests.workers.discovery.nvidia.smi import a_card, a_log, fb
from workers.discovery.nvidia import smi_tree
from workers.discovery.nvidia.smi_gpu import read_card


def card(more="", **facts):
    (element,) = smi_tree.read(a_log(a_card(0, more=more, **facts))).cards
    return read_card(element, "gpu 0")


def one(more="", **facts):
    return card(more, **facts)[0]


def by_text(lines):
    """A card as `-q` tells it."""
    head = "==============NVSMI LOG==============\nGPU 00000000:01:00.0\n    Product Name : NVIDIA X\n"
    (element,) = smi_tree.read(head + "".join(f"    {line}\n" for line in lines.strip("\n").splitlines())).cards
    return read_card(element, "gpu 0")[0]


def tags(**told):
    return "".join(f"<{name}>{word}</{name}>" for name, word in told.items())


# --- whether it works at all

DEAD = ("gpu_temp", "gpu_util", "sm_clock", "total", "product_name")


def with_words(word, *names):
    text = a_card(0, more="<gpu_power_readings><power_draw>70 W</power_draw></gpu_power_readings>")
    for name in names:
        head, tail = text.split(f"<{name}>", 1)
        text = f"{head}<{name}>{word}</{tail.split('</', 1)[1]}"
    (element,) = smi_tree.read(a_log(text)).cards
    return read_card(element, "gpu 0")


@pytest.mark.parametrize("count", range(len(DEAD) + 1))
def test_it_has_failed_when_several_core_facts_cannot_be_told(count):
    gpu, problems = with_words("Unknown Error", *DEAD[:count])
    assert gpu.failed == ("Unknown Error" if count >= 3 else None)
    assert len(problems) == (0 if gpu.failed else count)


@pytest.mark.parametrize("word", ["N/A", "Not Supported", "Requested functionality has been deprecated"])
def test_what_does_not_apply_is_no_failure(word):
    gpu, problems = with_words(word, *DEAD)
    assert (gpu.failed, gpu.temperature_celsius, gpu.memory_total_bytes, problems) == (None, None, None, ())


def test_what_is_not_for_this_user_is_no_failure_of_the_card():
    gpu, problems = with_words("Insufficient Permissions", *DEAD)
    assert (gpu.failed, {problem.code for problem in problems}) == (None, {"nvidia-smi.not-allowed"})


def test_a_process_that_is_called_like_an_error_is_none():
    info = tags(pid=7, type="C", process_name="GPU is lost", used_memory="1 MiB")
    assert one(f"<processes><process_info>{info}</process_info></processes>").failed is None


# --- readings


@pytest.mark.parametrize(
    ("block", "watts"),
    [
        (tags(power_draw="N/A", average_power_draw="71.5 W", instant_power_draw="80 W"), 71.5),
        (tags(power_draw="[Unknown Error]", instant_power_draw="80 W"), 80.0),
        (tags(instant_power_draw="80 W"), 80.0),
    ],
)
def test_power_is_the_first_that_is_told(block, watts):
    gpu, problems = card(f"<gpu_power_readings>{block}</gpu_power_readings>")
    assert (gpu.power_watts, problems) == (watts, ())


def test_power_of_the_module_is_not_the_cards():
    assert one("<module_power_readings><power_draw>900 W</power_draw></module_power_readings>").power_watts is None


def test_limits_of_temperature():
    told = tags(gpu_temp="36 C", gpu_temp_tlimit="51 C", gpu_temp_slow_threshold="N/A")
    gpu = one(f"<temperature>{told}</temperature>".replace("36", "37"), memory=fb(10))
    assert gpu.temperature_celsius == 36, "the first block counts"
    gpu = by_text(
        """
Temperature
    GPU Current Temp                                   : 41 C
    GPU T.Limit Temp                                   : 42 C
    GPU Slowdown T.Limit Temp                          : -2 C
    GPU Slowdown Temp                                  : N/A"""
    )
    assert (gpu.temperature_celsius, gpu.temperature_margin_celsius, gpu.temperature_slowdown_celsius) == (41, 42, None)


def test_memory_is_of_the_frame_buffer_alone():
    gpu = one(memory=fb(23034, 100, 300))
    assert (gpu.memory_total_bytes, gpu.memory_used_bytes) == (23034 * MIB, 100 * MIB)
    only = "<bar1_memory_usage><total>1 MiB</total></bar1_memory_usage>"
    assert one(memory=only).memory_total_bytes is None


@pytest.mark.parametrize(
    ("block", "reasons"),
    [
        (tags(clocks_event_reason_gpu_idle="Active", clocks_event_reason_sw_power_cap="Not Active"), ("idle",)),
        (tags(clocks_event_reason_gpu_idle="Not Active"), ()),
        (tags(clocks_event_reason_gpu_idle="N/A", clocks_event_reason_sw_power_cap="N/A"), None),
        ("N/A", None),
    ],
)
def test_reasons_for_slow_clocks_are_none_active_or_not_told(block, reasons):
    assert one(f"<clocks_event_reasons>{block}</clocks_event_reasons>").throttle_reasons == reasons


def test_reasons_for_slow_clocks_in_text():
    gpu = by_text(
        """
Clocks Throttle Reasons
    Idle                        : Not Active
    HW Slowdown                 : Active
        HW Thermal Slowdown     : Not Active
        HW Power Brake Slowdown : Active
    Display Clock Setting       : Active"""
    )
    assert gpu.throttle_reasons == ("display-clocks", "hw-power-brake", "hw-slowdown")


# --- errors


def test_a_counter_that_failed_is_no_zero():
    volatile = "<ecc_errors><volatile>{}</volatile></ecc_errors>"
    gpu, problems = card(volatile.format(tags(sram_uncorrectable="Unknown Error", dram_uncorrectable=0)))
    assert (gpu.ecc.uncorrected_volatile, [each.fact for each in problems]) == (None, ["gpu 0: ecc errors"])
    gpu, _ = card(volatile.format(tags(sram_uncorrectable="Unknown Error", dram_uncorrectable=2)))
    assert gpu.ecc.uncorrected_volatile == 2, "what is told is bad enough"


def test_counters_of_boards_that_count_by_place():
    old = "<ecc_errors><volatile><single_bit>{}</single_bit><double_bit>{}</double_bit></volatile></ecc_errors>"
    gpu = one(old.format(tags(device_memory=1, l2_cache="N/A"), tags(device_memory=2, register_file=3, total="N/A")))
    assert (gpu.ecc.corrected_volatile, gpu.ecc.uncorrected_volatile) == (1, 5)


def test_repairs_that_newer_drivers_tell_of():
    told = tags(channel_repair_pending="No", tpc_repair_pending="Yes", unrepairable_memory="N/A")
    ecc = one(f"<ecc_errors><aggregate>{tags(sram_threshold_exceeded='Yes')}</aggregate>{told}</ecc_errors>").ecc
    assert (ecc.channel_repair_pending, ecc.tpc_repair_pending, ecc.unrepairable_memory) == (False, True, None)
    assert ecc.sram_threshold_exceeded


def test_errors_in_text():
    gpu = by_text(
        """
ECC Mode
    Current                           : Enabled
    Pending                           : Enabled
ECC Errors
    Volatile
        SRAM Correctable              : 0
        SRAM Uncorrectable Parity     : 1
        SRAM Uncorrectable SEC-DED    : 2
        DRAM Uncorrectable            : 4
    Aggregate
        SRAM Threshold Exceeded       : No
Remapped Rows
    Correctable Error                 : 1
    Uncorrectable Error               : 2
    Pending                           : Yes
    Remapping Failure Occurred        : No
    Bank Remap Availability Histogram
        Max                           : 640 bank(s)
        None                          : 3 bank(s)
Retired Pages
    Single Bit ECC                    : N/A
    Pending Page Blacklist            : N/A"""
    )
    assert (gpu.ecc.enabled, gpu.ecc.uncorrected_volatile, gpu.ecc.sram_threshold_exceeded) == (True, 7, False)
    rows = gpu.remapped_rows
    assert (rows.corrected, rows.uncorrected, rows.pending, rows.failed, rows.banks_without_spares) == (
        1,
        2,
        True,
        False,
        3,
    )
    assert gpu.retired_pages is None


@pytest.mark.parametrize(("text", "count"), [("N/A", 0), ("\n", 0), ("Unknown Error", 1)])
def test_a_word_in_place_of_all_remapped_rows(text, count):
    gpu, problems = card(f"<remapped_rows>{text}</remapped_rows>")
    assert (gpu.remapped_rows, len(problems)) == (None, count)


def test_a_page_that_waits_for_its_end_has_two_names():
    told = tags(pending_blacklist="Yes", pending_retirement="N/A")
    assert one(f"<retired_pages>{told}</retired_pages>").retired_pages.pending is True


@pytest.mark.parametrize(
    ("block", "action"),
    [
        ("<gpu_recovery_action>Drain P2P</gpu_recovery_action>", "drain-p2p"),
        (
            f"<gpu_reset_status>{tags(reset_required='No', drain_and_reset_recommended='Yes')}</gpu_reset_status>",
            "drain-and-reset",
        ),
        (f"<gpu_reset_status>{tags(reset_required='No', drain_and_reset_recommended='No')}</gpu_reset_status>", "none"),
        (f"<gpu_reset_status>{tags(reset_required='No')}</gpu_reset_status>", None),
        (
            tags(
                gpu_recovery_action="None",
                gpu_reset_status=tags(reset_required="Requested functionality has been deprecated"),
            ),
            "none",
        ),
    ],
)
def test_what_it_asks_for(block, action):
    assert one(block).recovery_action == action


# --- fabric, vGPU, processes


def fabric(**told):
    health = tags(**{name: told.pop(name) for name in list(told) if name in HEALTH})
    return card(f"<fabric>{tags(**told)}<health>{health}</health></fabric>")


HEALTH = frozenset(
    "summary bandwidth route_recovery_in_progress route_unhealthy access_timeout_recovery".split()  # noqa: SIM905
) | {"incorrect_configuration"}


def test_the_health_of_a_fabric():
    told, _ = fabric(
        state="Completed",
        status="Success",
        cliqueId=1,
        clusterUuid="b2daed23-1111-2222-3333-444444444444",
        summary="Limited Capacity",
        bandwidth="Degraded",
        route_recovery_in_progress="True",
        route_unhealthy="False",
        access_timeout_recovery="N/A",
        incorrect_configuration="None",
    )
    health = told.fabric
    assert (health.health, health.bandwidth, health.route_recovery, health.route_unhealthy) == (
        "limited-capacity",
        "degraded",
        True,
        False,
    )
    assert (health.access_timeout_recovery, health.incorrect_configuration) == (None, "none")


def test_a_fabric_that_is_not_told():
    gpu, problems = fabric(state="Unknown Error", status="N/A")
    assert (gpu.fabric, [each.fact for each in problems]) == (None, ["gpu 0: fabric"])


def test_a_status_in_the_words_of_an_error_is_a_status():
    gpu, problems = fabric(state="Completed", status="Insufficient Resources", cliqueId=0, clusterUuid="0000-00")
    assert (gpu.fabric.status, gpu.fabric.cluster_uuid, problems) == ("insufficient resources", None, ())


def test_a_fabric_in_text():
    gpu = by_text(
        """
Fabric
    State                                              : In Progress
    Status                                             : N/A
    CliqueId                                           : N/A
    Health
        Summary                                        : Not Supported
        Bandwidth                                      : Not Supported
        Route Recovery in progress                     : False
Processes                                              : None"""
    )
    assert (gpu.fabric.state, gpu.fabric.status, gpu.fabric.health, gpu.fabric.bandwidth) == (
        FabricState.IN_PROGRESS,
        None,
        None,
        None,
    )
    assert (gpu.fabric.route_recovery, gpu.processes) == (False, ())


@pytest.mark.parametrize(
    ("status", "licence"),
    [
        ("Licensed (Expiry: 2026-7-7 16:1:44 GMT)", "licensed"),
        ("Unlicensed (Restricted)", "unlicensed (restricted)"),
        ("Unlicensed (Unrestricted)", "unlicensed (unrestricted)"),
        ("N/A", None),
    ],
)
def test_the_licence_of_a_virtual_card(status, licence):
    block = f"<vgpu_software_licensed_product>{tags(license_status=status)}</vgpu_software_licensed_product>"
    assert one(block).vgpu_licence == licence
    assert by_text(f"vGPU Software Licensed Product\n    License Status : {status}").vgpu_licence == licence


@pytest.mark.parametrize(
    ("word", "kind"), [("None", "none"), ("Pass-Through", "pass-through"), ("VGPU", "vgpu"), ("Host VGPU", "host-vgpu")]
)
def test_how_it_is_virtual(word, kind):
    block = f"<gpu_virtualization_mode>{tags(virtualization_mode=word)}</gpu_virtualization_mode>"
    assert one(block).virtualization == kind


def test_processes_of_all_kinds():
    infos = [
        tags(gpu_instance_id=1, compute_instance_id=0, pid=7, type="C", process_name="python", used_memory="100 MiB"),
        tags(gpu_instance_id="N/A", pid=8, type="C+G", process_name="[Not Found]", used_memory="N/A"),
        tags(pid="N/A", type="C", process_name="nobody", used_memory="1 MiB"),
    ]
    block = f"<processes>{''.join(f'<process_info>{info}</process_info>' for info in infos)}</processes>"
    text = a_card(0).replace("<processes>\n    </processes>", block)
    (element,) = smi_tree.read(a_log(text)).cards
    gpu, problems = read_card(element, "gpu 0")
    assert [(p.pid, p.kind, p.name, p.memory_bytes, p.gpu_instance_id) for p in gpu.processes or ()] == [
        (7, "compute", "python", 100 * MIB, 1),
        (8, "both", None, None, None),
    ]
    assert problems == ()


@pytest.mark.parametrize(("text", "processes"), [("\n\t\t", ()), ("None", ()), ("N/A", None)])
def test_no_processes_is_not_the_same_as_none_told(text, processes):
    card_text = a_card(0).replace("<processes>\n    </processes>", f"<processes>{text}</processes>")
    (element,) = smi_tree.read(a_log(card_text)).cards
    assert read_card(element, "gpu 0")[0].processes == processes


def test_instances_of_newer_schemas_bring_their_own_uuid():
    part = tags(index=1, uuid="MIG-aaaaaaaa-1111-2222-3333-444444444444", gpu_instance_id=2, compute_instance_id=0)
    modes = "<mig_mode><current_mig>Enabled</current_mig><pending_mig>Disabled</pending_mig></mig_mode>"
    gpu = one(mig=f"{modes}<mig_devices><mig_device>{part}{fb(19968, 12, 0)}</mig_device></mig_devices>")
    (instance,) = gpu.instances
    assert (gpu.uuid.startswith("GPU-"), instance.uuid[:12], instance.memory_total_bytes) == (
        True,
        "MIG-aaaaaaaa",
        19968 * MIB,
    )
    assert gpu.memory_total_bytes == 81559 * MIB, "the card's own memory is not its instance's"


def test_instances_in_text():
    gpu = by_text(
        """
MIG Mode
    Current                           : Enabled
    Pending                           : Enabled
MIG Device
    Index                             : 0
    GPU Instance ID                   : 3
    Compute Instance ID               : 0
    Device Attributes
        Shared
            Multiprocessor count      : 14
    ECC Errors
        Volatile
            SRAM Uncorrectable        : 1
    FB Memory Usage
        Total                         : 9728 MiB
        Used                          : 12 MiB
MIG Device
    Index                             : 2
    GPU Instance ID                   : 5
FB Memory Usage
    Total                             : 81920 MiB"""
    )
    first, second = gpu.instances
    assert (first.slot, first.gpu_instance_id, first.memory_total_bytes, first.multiprocessors) == (
        0,
        3,
        9728 * MIB,
        14,
    )
    assert (first.ecc_uncorrected_volatile, second.slot, second.memory_total_bytes) == (1, 2, None)
    assert gpu.memory_total_bytes == 81920 * MIB
