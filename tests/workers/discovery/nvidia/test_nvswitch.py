"""NVSwitches, and whether their fabric manager is needed, runs, and is of the driver's version."""

import pytest

from llmgw.core.hardware.gpus import Driver, FabricState, Gpu, GpuFabric
from tests.fakes.machine import FakeMachine
from workers.discovery.nvidia import nvswitch
from workers.discovery.systemd import parse
from workers.ports import ToolResult
from workers.settings import NodeSettings

SETTINGS = NodeSettings()
H100 = tuple(Gpu(index=n, uuid=f"GPU-{n}", name="NVIDIA H100 80GB HBM3") for n in range(2))


def machine(state="active", switches=4, version="580.95.05"):
    files: dict[str, str] = {}
    for number in range(switches):
        folder = f"/sys/bus/pci/devices/0000:0{number}:00.0"
        files |= {f"{folder}/vendor": "0x10de\n", f"{folder}/device": "0x22a3\n", f"{folder}/class": "0x068000\n"}
    load = "not-found" if state == "not-found" else "loaded"
    tools = {"systemctl": ToolResult(0, f"LoadState={load}\nActiveState={state}\n")}
    tools |= {"nv-fabricmanager": ToolResult(0, f"Fabric Manager version is : {version}\n")}
    return FakeMachine(programs={name: name for name in tools}, tools=tools, files=files)


def told(gpus=H100, driver="580.95.05", **facts):
    found = nvswitch.find(machine(**facts), SETTINGS, gpus)
    return found, [(each.code, each.about) for each in nvswitch.findings(found, Driver(version=driver), gpus)]


def test_a_board_with_switches_is_well_with_its_manager():
    found, wrong = told()
    assert (found.switches, found.is_needed, found.fabric_manager.state, found.fabric_manager.version) == (
        4,
        True,
        "active",
        "580.95.05",
    )
    assert wrong == []


@pytest.mark.parametrize("state", ["inactive", "failed", "not-found"])
def test_without_its_manager_no_card_can_be_used(state):
    down = "nvswitch.fabric-manager-down"
    assert told(state=state)[1] == [(down, "GPU-0"), (down, "GPU-1")]


def test_the_manager_must_be_of_the_drivers_version():
    assert told(driver="580.105.08")[1] == [("nvswitch.fabric-manager-version", "")]


def test_cards_that_are_registered_have_a_manager_somewhere():
    well = GpuFabric(state=FabricState.COMPLETED, status="success")
    gpus = (Gpu(index=0, uuid="GPU-0", name="NVIDIA H100 80GB HBM3", fabric=well),)
    assert told(gpus, state="inactive")[1] == []


def test_in_a_rack_it_runs_on_the_switch_trays():
    found, wrong = told((Gpu(index=0, uuid="GPU-0", name="NVIDIA GB200"),), state="inactive", switches=0)
    assert (found.is_needed, wrong) == (False, [])


def test_a_machine_without_switches_needs_none():
    l40s = (Gpu(index=0, uuid="GPU-0", name="NVIDIA L40S"),)
    assert told(l40s, state="failed", switches=0)[1] == []
    assert told(l40s, state="not-found", switches=0)[0] is None


def test_a_board_of_the_fifth_generation_shows_no_switches_and_needs_one():
    b200 = tuple(Gpu(index=n, uuid=f"GPU-{n}", name="NVIDIA B200") for n in range(8))
    assert len(told(b200, state="inactive", switches=0)[1]) == 8


def test_systemd_is_read():
    assert parse("LoadState=loaded\nActiveState=failed\n") == "failed"
    assert parse("LoadState=not-found\nActiveState=inactive\n") == "not-found"
    assert parse("") is None
