"""Tables of comma-separated values: what every version knows, and what newer ones know besides."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.core.hardware.gpus import FabricState
from llmgw.core.units import GIB, MIB
from tests.fakes.machine import FakeMachine
from tests.workers.discovery.nvidia.smi import SETTINGS, bus, listed, uuid
from workers.discovery.nvidia import smi, smi_csv
from workers.ports import ToolResult

ROW = {
    "index": "0",
    "uuid": uuid(0),
    "name": "NVIDIA A100-SXM4-80GB",
    "pci.bus_id": bus(1),
    "memory.total": "81920",
    "driver_version": "535.161.08",
    "memory.used": "10",
    "memory.reserved": "600",
    "temperature.gpu": "36",
    "power.draw": "66.92",
    "power.limit": "400.00",
    "utilization.gpu": "3",
    "clocks.sm": "1410",
    "pstate": "P0",
    "persistence_mode": "Enabled",
    "compute_mode": "Exclusive_Process",
    "ecc.mode.current": "Enabled",
    "ecc.errors.uncorrected.volatile.total": "2",
    "ecc.errors.uncorrected.aggregate.total": "[N/A]",
    "retired_pages.pending": "[Not Supported]",
    "pcie.link.gen.max": "4",
    "pcie.link.width.current": "16",
    "mig.mode.current": "Disabled",
    "mig.mode.pending": "Enabled",
    "fabric.state": "Completed",
    "fabric.status": "Success",
    "fabric.cliqueId": "7",
    "fabric.clusterUuid": "dc6e40c4-d722-4357-9ba6-5291dd461278",
    "clocks_event_reasons.hw_thermal_slowdown": "Active",
}
OLD = {"mig", "fabric", "memory.reserved", "clocks_event_reasons", "addressing_mode", "temperature.gpu.tlimit"}


class Smi(FakeMachine):
    """An nvidia-smi that answers nothing but tables, and knows no field of these families."""

    def __init__(self, *rows, unknown=(), apps="", listing="", says_which=True):
        super().__init__(programs={"nvidia-smi": "nvidia-smi"})
        self.rows, self.unknown, self.apps, self.listing, self.says_which = (
            rows,
            tuple(unknown),
            apps,
            listing,
            says_which,
        )

    def output(self, argv, timeout):
        self.calls.append(tuple(argv))
        asked = re.fullmatch(r"--query-(gpu|compute-apps)=(\S+)", argv[1])
        if argv[1] == "-L":
            return ToolResult(0, self.listing)
        if asked is None:
            return ToolResult(2, "Invalid combination of input arguments.\n")
        if asked[1] == "compute-apps":
            return ToolResult(0, self.apps)
        fields = asked[2].split(",")
        bad = [field for field in fields if field.startswith(self.unknown)] if self.unknown else []
        if bad:
            said = f'Field "{bad[0]}" is not a valid field to query.\n' if self.says_which else "Usage: …\n"
            return ToolResult(2, said)
        return ToolResult(0, "".join(", ".join(row.get(each, "[N/A]") for each in fields) + "\n" for row in self.rows))


def test_all_facts_of_a_new_version():
    (gpu,) = smi.ask(Smi(ROW), SETTINGS).gpus
    assert (gpu.memory_total_bytes, gpu.memory_used_bytes, gpu.memory_reserved_bytes) == (80 * GIB, 10 * MIB, 600 * MIB)
    assert (gpu.temperature_celsius, gpu.power_watts, gpu.power_limit_watts, gpu.clock_sm_mhz) == (36, 66.92, 400, 1410)
    assert (gpu.persistence_mode, gpu.compute_mode, gpu.performance_state) == (True, "exclusive-process", "P0")
    assert (gpu.ecc.enabled, gpu.ecc.uncorrected_volatile, gpu.ecc.uncorrected_aggregate) == (True, 2, None)
    assert (gpu.mig_enabled, gpu.mig_enabled_pending, gpu.retired_pages) == (False, True, None)
    assert gpu.fabric is not None
    assert (gpu.fabric.state, gpu.fabric.domain) == (
        FabricState.COMPLETED,
        "dc6e40c4-d722-4357-9ba6-5291dd461278.7",
    )
    assert (gpu.pcie_generation_max, gpu.pcie_width, gpu.throttle_reasons) == (4, 16, ("hw-thermal",))
    assert (gpu.processes, gpu.failed) == ((), None)


@pytest.mark.parametrize("says_which", [True, False])
def test_what_an_old_version_does_not_know_costs_nothing_else(says_which):
    machine = Smi(ROW, unknown=OLD, says_which=says_which)
    (gpu,) = smi.ask(machine, SETTINGS).gpus
    assert (gpu.temperature_celsius, gpu.memory_used_bytes, gpu.ecc.uncorrected_volatile) == (36, 10 * MIB, 2)
    assert (gpu.mig_enabled, gpu.fabric, gpu.memory_reserved_bytes, gpu.throttle_reasons) == (None, None, None, None)
    assert len(machine.calls) < (20 if says_which else 70)


def test_processes_are_another_table():
    apps = f"{uuid(0)}, 41, python, a, 512\n{uuid(0)}, 42, [Not Found], [N/A]\n{uuid(9)}, 43, other, 1\n"
    (gpu,) = smi.ask(Smi(ROW, apps=apps), SETTINGS).gpus
    assert [(p.pid, p.name, p.memory_bytes) for p in gpu.processes or ()] == [
        (41, "python, a", 512 * MIB),
        (42, None, None),
    ]
    (gpu,) = smi.ask(Smi(ROW, apps="No such query\n"), SETTINGS).gpus
    assert gpu.processes is None


def test_instances_come_from_the_list():
    machine = Smi({**ROW, "mig.mode.current": "Enabled"}, listing=listed((0, ROW["name"], "1g.10gb")))
    (gpu,) = smi.ask(machine, SETTINGS).gpus
    assert (gpu.mig_enabled, [part.profile for part in gpu.instances]) == (True, ["1g.10gb"])


@pytest.mark.parametrize("words", ["[GPU is lost]", "[GPU requires reset]"])
def test_a_lost_card_is_one_row(words):
    lost = dict.fromkeys(ROW, words) | {"index": "1", "uuid": uuid(1), "pci.bus_id": bus(2), "memory.used": "0"}
    cards = smi.ask(Smi(ROW, lost), SETTINGS)
    assert [(gpu.index, gpu.uuid, gpu.failed) for gpu in cards.gpus] == [
        (0, uuid(0), None),
        (1, uuid(1), words.strip("[]")),
    ]


def test_one_odd_cell_is_no_lost_card():
    cards = smi.ask(Smi({**ROW, "power.draw": "[Unknown Error]"}), SETTINGS)
    assert (cards.gpus[0].failed, cards.gpus[0].power_watts) == (None, None)
    assert [problem.fact for problem in cards.problems if problem.code.endswith("field-failed")] == ["gpu 0: power"]


@pytest.mark.parametrize(
    ("line", "index", "failed"),
    [
        ("2, [Unknown Error], [Unknown Error], [Unknown Error], [Unknown Error], [Unknown Error]", 2, "Unknown Error"),
        (f"2, {uuid(2)[:20]}", 2, "Unknown Error"),
        ("[GPU is lost], [GPU is lost], [GPU is lost], [GPU is lost], [GPU is lost], 535.1", 1, "GPU is lost"),
        ("[N/A], [N/A], [N/A], [N/A], [N/A], [N/A]", 1, None),
    ],
)
def test_a_bad_row_is_one_card_without_a_name(line, index, failed):
    good = f"0, {uuid(0)}, NVIDIA L4, {bus(1)}, 23034, 535.1"
    first, second = smi_csv.parse(f"{good}\n{line}\n").gpus
    assert (first.uuid, second.index, second.uuid, second.failed) == (uuid(0), index, None, failed)


@pytest.mark.parametrize(
    "line",
    [
        "index, uuid, name, pci.bus_id, memory.total [MiB], driver_version",
        "WARNING: infoROM is corrupted at gpu 0000:41:00.0",
        "0, 43, P8, a, b, c",
        ", , , , , ",
        "<process_name>a,b,c,d,e,f</process_name>",
        "2026/07/31 12:49:00.600, 0, [GPU is lost], [GPU is lost], [GPU is lost], x",
    ],
)
def test_what_is_no_row_is_no_card(line):
    assert smi_csv.parse(line).gpus == ()


def test_a_name_may_hold_commas_and_units_may_stand():
    (gpu,) = smi_csv.parse(f"0, {uuid(0)}, Graphics, Device, {bus(1)}, 81559 MiB, 535.1\n").gpus
    assert (gpu.name, gpu.pci_address, gpu.memory_total_bytes) == ("Graphics, Device", "0000:01:00.0", 81559 * MIB)


def test_capabilities_are_a_column():
    said = f"WARNING: x\n{uuid(1)}, 9.0\n{uuid(0)}, [N/A]\n{uuid(2)}, 12.1\n{uuid(3)}, nonsense\n"
    asked = "nvidia-smi --query-gpu=uuid,compute_cap --format=csv,noheader,nounits"
    machine = FakeMachine(programs={"nvidia-smi": "nvidia-smi"}, tools={asked: ToolResult(0, said)})
    assert smi_csv.capabilities(machine, SETTINGS) == {uuid(1): "9.0", uuid(2): "12.1"}


def test_a_tool_that_hangs_is_not_asked_for_each_column():
    machine = FakeMachine(
        programs={"nvidia-smi": "nvidia-smi"},
        tools={
            f"nvidia-smi --query-gpu={','.join(smi_csv.CORE)} --format=csv,noheader,nounits": ToolResult(
                0, f"0, {uuid(0)}, NVIDIA L4, {bus(1)}, 23034, 535.1\n"
            ),
            "nvidia-smi": ToolResult(None, problem="no answer within 20 s"),
        },
    )
    assert [gpu.uuid for gpu in smi_csv.ask(machine, SETTINGS).gpus] == [uuid(0)]
    assert len(machine.calls) == 3


@given(st.text(alphabet=st.sampled_from("0123456789GPU-[],. \nNAUnknownError²"), max_size=200))
def test_no_table_is_too_odd(text):
    assert smi_csv.parse(text) is not None
    machine = FakeMachine(programs={"nvidia-smi": "nvidia-smi"}, tools={"nvidia-smi": ToolResult(0, text)})
    told = smi.ask(machine, SETTINGS)
    assert told.gpus or told.problems
