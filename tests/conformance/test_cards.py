"""Both ways to ask for the cards tell the same of the same machine.

What NVML alone tells, and nvidia-smi in none of its forms: who is at the other end of an NVLink.
"""

import pytest

from llmgw.core.hardware.gpus import FabricState
from llmgw.core.units import MIB, Bytes
from tests.conformance.both_ways import Both, nvml_card
from tests.fakes import nvml as fake_nvml
from tests.workers.discovery.nvidia.smi import a_card, a_log, bus, fb, listed, mig_uuid, uuid
from workers.discovery.devices import offered


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    return fake_nvml.compiled(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def both(tmp_path, library):
    return Both(tmp_path, library)


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


def test_a_fabric_that_a_broken_tray_denies(both):
    block = "<fabric><state>Not Supported</state><status>Success</status><cliqueId>0</cliqueId></fabric>"
    both.described(
        [nvml_card(0, name="NVIDIA GB200", fabric="0,0,0,0")], a_log(a_card(0, name="NVIDIA GB200", more=block))
    )
    fabric = both.same().gpus[0].fabric
    assert (fabric.state, fabric.status, fabric.domain) == (FabricState.NOT_SUPPORTED, None, None)


def test_a_fabric_that_is_not_well(both):
    health = (
        "<health><summary>Unhealthy</summary><bandwidth>Degraded</bandwidth>"
        "<route_recovery_in_progress>False</route_recovery_in_progress><route_unhealthy>True</route_unhealthy>"
        "<access_timeout_recovery>False</access_timeout_recovery><incorrect_configuration>None</incorrect_configuration></health>"
    )
    block = (
        "<fabric><state>Completed</state><status>Success</status><cliqueId>7</cliqueId>"
        f"<clusterUuid>dc6e40c4-d722-4357-9ba6-5291dd461278</clusterUuid>{health}</fabric>"
    )
    both.described([nvml_card(0, fabric="3,0,7,dc6e40c4d72243579ba65291dd461278,199,2")], a_log(a_card(0, more=block)))
    fabric = both.same().gpus[0].fabric
    assert (fabric.health, fabric.bandwidth, fabric.route_unhealthy) == ("unhealthy", "degraded", True)


READINGS = """
    <vbios_version>90.04.38.00.03</vbios_version>
    <display_active>Disabled</display_active>
    <gpu_virtualization_mode><virtualization_mode>Pass-Through</virtualization_mode></gpu_virtualization_mode>
    <pci><pci_gpu_link_info><pcie_gen><max_link_gen>3</max_link_gen><current_link_gen>1</current_link_gen></pcie_gen>
      <link_widths><max_link_width>16x</max_link_width><current_link_width>8x</current_link_width></link_widths>
      </pci_gpu_link_info><replay_counter>2</replay_counter></pci>
    <performance_state>P8</performance_state>
    <clocks_event_reasons><clocks_event_reason_gpu_idle>Active</clocks_event_reason_gpu_idle>
      <clocks_event_reason_sw_power_cap>Not Active</clocks_event_reason_sw_power_cap>
      <clocks_event_reason_hw_thermal_slowdown>Active</clocks_event_reason_hw_thermal_slowdown></clocks_event_reasons>
    <ecc_mode><current_ecc>Enabled</current_ecc><pending_ecc>Enabled</pending_ecc></ecc_mode>
    <ecc_errors><volatile><sram_correctable>0</sram_correctable><sram_uncorrectable>1</sram_uncorrectable>
      <dram_correctable>5</dram_correctable><dram_uncorrectable>2</dram_uncorrectable></volatile>
      <aggregate><sram_correctable>0</sram_correctable><sram_uncorrectable>1</sram_uncorrectable>
      <dram_correctable>9</dram_correctable><dram_uncorrectable>3</dram_uncorrectable>
      <sram_threshold_exceeded>No</sram_threshold_exceeded></aggregate>
      <channel_repair_pending>No</channel_repair_pending><tpc_repair_pending>Yes</tpc_repair_pending>
      <unrepairable_memory>No</unrepairable_memory></ecc_errors>
    <remapped_rows><remapped_row_corr>1</remapped_row_corr><remapped_row_unc>2</remapped_row_unc>
      <remapped_row_pending>Yes</remapped_row_pending><remapped_row_failure>No</remapped_row_failure>
      <row_remapper_histogram><row_remapper_histogram_max>640 bank(s)</row_remapper_histogram_max>
      <row_remapper_histogram_none>0 bank(s)</row_remapper_histogram_none></row_remapper_histogram></remapped_rows>
    <gpu_power_readings><power_state>P8</power_state><power_draw>9.62 W</power_draw>
      <current_power_limit>70.00 W</current_power_limit><default_power_limit>72.00 W</default_power_limit>
      </gpu_power_readings>
    <addressing_mode>HMM</addressing_mode>
    <gpu_recovery_action>DRAIN_AND_RESET</gpu_recovery_action>
"""
SAID = {
    "vbios": "90.04.38.00.03",
    "display": 0,
    "virtualization": 1,
    "gen_max": 3,
    "gen": 1,
    "width_max": 16,
    "width": 8,
    "replays": 2,
    "pstate": 8,
    "reasons": "0x41",
    "ecc": 1,
    "errors.0.0": 5,
    "errors.1.0": 3,
    "errors.0.1": 9,
    "errors.1.1": 4,
    "sram_exceeded": 0,
    "repair": "0,1",
    "unrepairable": 0,
    "remapped": "1,2,1,0",
    "spare_none": 0,
    "milliwatts": 9620,
    "limit": 70000,
    "default_limit": 72000,
    "addressing": 1,
    "field.230": 4,
}


def test_all_readings(both):
    both.described([nvml_card(0, **SAID)], a_log(a_card(0, more=READINGS)))
    (gpu,) = both.same().gpus
    assert (gpu.recovery_action, gpu.throttle_reasons) == ("drain-and-reset", ("hw-thermal", "idle"))
    assert (gpu.power_watts, gpu.pcie_width, gpu.ecc.uncorrected_aggregate) == (9.62, 8, 4)
    assert (gpu.remapped_rows.pending, gpu.ecc.tpc_repair_pending, gpu.virtualization) == (True, True, "pass-through")


@pytest.mark.parametrize(("reset", "drain", "action"), [(0, 0, "none"), (1, 0, "gpu-reset"), (0, 1, "drain-and-reset")])
def test_the_two_flags_of_older_drivers(both, reset, drain, action):
    told = tuple("Yes" if flag else "No" for flag in (reset, drain))
    block = "<reset_required>{}</reset_required><drain_and_reset_recommended>{}</drain_and_reset_recommended>"
    card = a_card(0, more=f"<gpu_reset_status>{block.format(*told)}</gpu_reset_status>")
    both.described([nvml_card(0, **{"field.226": reset, "field.227": drain})], a_log(card))
    assert both.same().gpus[0].recovery_action == action


NOTHING = """
    <gpu_virtualization_mode><virtualization_mode>None</virtualization_mode></gpu_virtualization_mode>
    <ecc_mode><current_ecc>N/A</current_ecc><pending_ecc>N/A</pending_ecc></ecc_mode>
    <ecc_errors><volatile><sram_uncorrectable>N/A</sram_uncorrectable></volatile></ecc_errors>
    <retired_pages><multiple_single_bit_retirement><retired_count>N/A</retired_count></multiple_single_bit_retirement>
      <pending_retirement>N/A</pending_retirement></retired_pages>
    <remapped_rows>N/A</remapped_rows>
    <fabric><state>N/A</state><status>N/A</status></fabric>
    <gpu_recovery_action>N/A</gpu_recovery_action>
    <gpu_power_readings><power_draw>Requested functionality has been deprecated</power_draw></gpu_power_readings>
"""


def test_a_card_that_knows_none_of_it(both):
    name = "NVIDIA GeForce RTX 4090"
    both.described(
        [nvml_card(0, name=name, total=24564, milliwatts="!26", virtualization=0)],
        a_log(a_card(0, name=name, memory=fb(24564, 4, 550), more=NOTHING)),
    )
    cards = both.same()
    (gpu,) = cards.gpus
    assert (gpu.device_class, gpu.mig_enabled, gpu.ecc.enabled, gpu.fabric) == ("rtx4090-24g", None, None, None)
    assert cards.problems == ()


def test_one_reading_that_failed(both):
    card = a_card(0).replace("<gpu_temp>36 C</gpu_temp>", "<gpu_temp>Unknown Error</gpu_temp>")
    both.described([nvml_card(0, temperature="!999")], a_log(card))
    cards = both.same()
    assert [problem.fact for problem in cards.problems] == ["gpu 0: temperature"]
    assert (cards.gpus[0].temperature_celsius, cards.gpus[0].failed) == (None, None)


def test_a_card_that_needs_a_reset(both):
    word = "GPU requires reset"
    card = a_card(0).replace("<gpu_temp>36 C</gpu_temp>", f"<gpu_temp>{word}</gpu_temp>")
    card = card.replace("<gpu_util>3 %</gpu_util>", f"<gpu_util>{word}</gpu_util>")
    both.described([nvml_card(0, temperature="!16", utilization="!16")], a_log(card))
    assert both.same().gpus[0].failed == word


def test_an_inforom_that_is_corrupted(both):
    both.described([nvml_card(0, inforom="!14"), nvml_card(1, inforom=1)], a_log(a_card(0), a_card(1)))
    with (both.folder / "xml").open("a", encoding="utf-8") as more:
        more.write("WARNING: infoROM is corrupted at gpu 0000:01:00.0\n")
    assert [gpu.inforom_ok for gpu in both.same().gpus] == [False, None]


def test_links_and_their_errors(both):
    links = {"link.0": 1, "link.0.replay": 2, "link.0.recovery": 0, "link.0.crc": 4, "link.0.remote": 2, "link.1": 0}
    head = f"GPU 0: NVIDIA H100 80GB HBM3 (UUID: {uuid(0)})\n"
    both.described(
        [nvml_card(0, **{"field.91": 18, **links})],
        a_log(a_card(0)),
        links=f"{head}\t Link 0: 26.562 GB/s\n\t Link 1: <inactive>\n",
    )
    counts = "\t Link 0: Replay Errors: 2\n\t Link 0: Recovery Errors: 0\n\t Link 0: CRC Errors: 4\n"
    (both.folder / "errors").write_text(head + counts, "utf-8")
    assert both.same().gpus[0].nvlinks[0].errors == {"replay": 2, "recovery": 0, "crc": 4}
    assert both.cards(str(both.library)).gpus[0].nvlinks[0].remote == "switch"


def test_a_container_that_sees_an_instance_and_not_the_cards_memory(both):
    name = "NVIDIA H200"
    told = {"gpu_instance_id": 9, "compute_instance_id": 0, "pid": 42, "type": "C", "process_name": "python"}
    told |= {"used_memory": "512 MiB"}
    process = f"<process_info>{''.join(f'<{tag}>{word}</{tag}>' for tag, word in told.items())}</process_info>"
    mig = (
        "<mig_mode><current_mig>Enabled</current_mig><pending_mig>Enabled</pending_mig></mig_mode><mig_devices>"
        "<mig_device><index>3</index><gpu_instance_id>9</gpu_instance_id><compute_instance_id>0</compute_instance_id>"
        f"{fb(16384, 512)}</mig_device></mig_devices>"
    )
    denied = "<fb_memory_usage><total>Insufficient Permissions</total></fb_memory_usage>"
    card = a_card(0, name=name, mig=mig, memory=denied).replace(
        "<processes>\n    </processes>", f"<processes>{process}</processes>"
    )
    listing = f"GPU 0: {name} (UUID: {uuid(0)})\n  MIG 1g.18gb     Device  3: (UUID: {mig_uuid(3)})\n"
    part = {"uuid": mig_uuid(3), "name": f"{name} MIG 1g.18gb", "gi": 9, "ci": 0, "total": 16384, "used": 512}
    part |= {"free": 0, "compute": "42,512"}
    fake = nvml_card(0, name=name, mig="1,1", total="!4", used=None, reserved=None, free=None, parts={3: part})
    both.described([fake], a_log(card), listing)
    with (both.folder / "nvml.txt").open("a", encoding="utf-8") as more:
        more.write("process.42=python\n")
    cards = both.same()
    (instance,) = cards.gpus[0].instances
    assert [process.pid for process in instance.processes] == [42]
    (device,) = offered(cards, findings=(), host_memory=None, reserve=Bytes(0))
    assert (device.index, device.device_class, device.memory, device.unhealthy) == (
        1003,
        "h200-140g-mig-1g.18gb",
        16384 * MIB,
        None,
    )


def test_a_card_in_mig_mode_from_which_nothing_is_carved(both):
    mig = (
        "<mig_mode><current_mig>Enabled</current_mig><pending_mig>Enabled</pending_mig></mig_mode>"
        "<mig_devices>None</mig_devices>"
    )
    both.described([nvml_card(0, mig="1,1")], a_log(a_card(0, mig=mig)))
    (device,) = offered(both.same(), findings=(), host_memory=None, reserve=Bytes(0))
    assert device.unhealthy_code == "device.mig-empty"


def test_the_licence_of_a_virtual_card(both):
    more = (
        "<gpu_virtualization_mode><virtualization_mode>VGPU</virtualization_mode></gpu_virtualization_mode>"
        "<vgpu_software_licensed_product><license_status>Unlicensed (Restricted)</license_status>"
        "</vgpu_software_licensed_product>"
    )
    both.described(
        [nvml_card(0, name="GRID A100-1-5C", total=5120, virtualization=2, mig="1,1")],
        a_log(
            a_card(
                0,
                name="GRID A100-1-5C",
                memory=fb(5120, 4, 550),
                mig="<mig_mode><current_mig>Enabled</current_mig><pending_mig>Enabled</pending_mig></mig_mode>"
                "<mig_devices>None</mig_devices>",
                more=more,
            )
        ),
    )
    cards = both.same()
    assert cards.gpus[0].vgpu_licence == "unlicensed (restricted)"
    (device,) = offered(cards, findings=(), host_memory=None, reserve=Bytes(0))
    assert (device.device_class, device.unhealthy) == ("a100-1-5c-5g", None), "to its guest it is a whole card"


def test_a_card_that_is_lost_beside_two_that_are_well(both):
    both.described([nvml_card(0), {"handle": "!15"}, nvml_card(2)], "")
    both.in_kernel(0, 1, 2)
    dead = (
        f"Unable to determine the device handle for GPU {bus(2)}: GPU is lost.  Reboot the system to recover this GPU\n"
    )
    (both.folder / "dead").write_text(dead, "utf-8")
    for number in (0, 2):
        (both.folder / f"xml-{bus(number + 1)}").write_text(a_log(a_card(number), attached=3), "utf-8")
    gpus = both.same().gpus
    assert [(gpu.index, gpu.uuid, gpu.pci_address, gpu.failed) for gpu in gpus] == [
        (0, uuid(0), "0000:01:00.0", None),
        (1, uuid(1), "0000:02:00.0", "GPU is lost"),
        (2, uuid(2), "0000:03:00.0", None),
    ]
