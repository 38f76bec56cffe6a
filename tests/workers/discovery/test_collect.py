"""The inventory as a whole: what is offered, and what is not and why."""

import sys

import pytest

from llmgw.core.units import GIB, MIB, Bytes
from llmgw.core.world import DeviceKind
from tests.fakes.machine import FakeMachine
from tests.workers.discovery.infiniband import tree
from tests.workers.discovery.nvidia import smi
from workers.discovery.changes import matters
from workers.discovery.collect import Collector
from workers.ports import ToolResult
from workers.settings import NodeSettings

MEMINFO = f"MemTotal: {16 * MIB} kB\nMemAvailable: {8 * MIB} kB\n"
SMI = "/usr/bin/nvidia-smi"
NVML = f"{sys.executable} -m workers.discovery.nvml"
PLAIN = {"/proc/meminfo": MEMINFO, "/etc/os-release": 'PRETTY_NAME="Debian GNU/Linux 12"\n'}


def texts(found):
    return tuple(problem.text for problem in found.problems)


def look(machine, programs=None, **settings):
    return Collector(machine, NodeSettings(id="n1", **settings), programs or {}).collect()


def test_a_machine_without_a_gpu_offers_its_cpu():
    found = look(FakeMachine(files=PLAIN), cpu_slots=3, memory_reserve_bytes=Bytes(2 * GIB))
    (cpu,) = found.devices
    assert (cpu.id, cpu.kind, cpu.device_class, cpu.slots) == ("cpu", DeviceKind.CPU, "cpu", 3)
    assert (cpu.memory, found.memory_total, found.memory_available) == (14 * GIB, 16 * GIB, 8 * GIB)
    assert (found.cpu_count, found.disk_total, found.disk_free) == (8, 100 * GIB, 50 * GIB)
    assert found.os == "Debian GNU/Linux 12"
    assert texts(found) == ("no NVIDIA driver: /dev/nvidiactl is missing and nvidia-smi not found",)


def test_a_cpu_without_slots_is_not_offered():
    assert look(FakeMachine(files=PLAIN), cpu_slots=0).devices == ()


def test_what_cannot_be_read_is_told():
    found = look(FakeMachine(disk_space=None))
    assert found.devices == ()
    assert found.disk_free is None
    assert any("the CPU is not offered" in text for text in texts(found))
    assert any("free disk unknown" in text for text in texts(found))


@pytest.mark.parametrize(
    "groups",
    [
        {
            "/proc/self/cgroup": "0::/box\n",
            "/sys/fs/cgroup/box/cpu.max": "200000 100000\n",
            "/sys/fs/cgroup/box/memory.max": "max\n",
            "/sys/fs/cgroup/memory.max": f"{4 * GIB}\n",
        },
        {
            "/proc/self/cgroup": "5:cpu,cpuacct:/box\n4:memory:/box\n",
            "/sys/fs/cgroup/cpu/box/cpu.cfs_quota_us": "200000\n",
            "/sys/fs/cgroup/cpu/box/cpu.cfs_period_us": "100000\n",
            "/sys/fs/cgroup/memory/box/memory.limit_in_bytes": f"{4 * GIB}\n",
        },
        {
            # In a container the path is the host's, and only the top of it can be seen.
            "/proc/self/cgroup": "0::/../../outside\n",
            "/sys/fs/cgroup/cpu.max": "200000 100000\n",
            "/sys/fs/cgroup/memory.max": f"{4 * GIB}\n",
        },
    ],
)
def test_what_groups_do_not_allow_is_not_offered(groups):
    found = look(FakeMachine(files=PLAIN | groups))
    assert (found.cpu_count, found.memory_total, found.memory_available) == (2, 4 * GIB, 4 * GIB)
    assert found.devices[0].memory == 3 * GIB


# --- engines ------------------------------------------------------------------------------------------------------


def test_an_installed_engine_is_told_in_words():
    machine = FakeMachine(tools={"/opt/llama-server": ToolResult(0, err="version: 11434 (abc)\nbuilt with gcc\n")})
    collector = Collector(machine, NodeSettings(id="n1"), {"llamacpp": ("/opt/llama-server",)})
    assert collector.collect().engines == {"llamacpp": "/opt/llama-server, version: 11434 (abc)"}
    collector.collect()
    assert machine.calls.count(("/opt/llama-server", "--version")) == 1, "asked once, not every minute"


def test_an_engine_that_says_nothing_is_still_there():
    found = look(FakeMachine(), {"llamacpp": ("/opt/llama-server",)})
    assert found.engines == {"llamacpp": "/opt/llama-server"}


def test_the_package_is_told_with_its_version():
    found = look(FakeMachine(), {"llamacpp": ("/usr/bin/python", "-m", "workers.engines.llama_server")})
    assert found.engines["llamacpp"].startswith("xllamacpp 20")


def test_an_engine_that_is_not_there_is_a_problem():
    assert "engine llamacpp is not offered: not installed" in texts(look(FakeMachine(), {"llamacpp": None}))
    named = look(FakeMachine(), {"llamacpp": None}, llama_server="/opt/none")
    assert "engine llamacpp is not offered: llama_server in the settings is /opt/none, no program" in texts(named)


# --- cards --------------------------------------------------------------------------------------------------------


def gpus(found):
    return [device for device in found.devices if device.kind is not DeviceKind.CPU]


def a_gpu_machine(xml, listing="", **more):
    machine = smi.a_machine(xml, listing, **more)
    machine.files = {**PLAIN, **machine.files}
    return machine


def test_cards_are_offered_with_their_facts():
    found = look(a_gpu_machine(smi.a_log(smi.a_card(0), smi.a_card(1))), nvml="off")
    assert [(gpu.id, gpu.device_class, gpu.label, gpu.unhealthy) for gpu in gpus(found)] == [
        (smi.uuid(0), "h100-80g", "0", None),
        (smi.uuid(1), "h100-80g", "1", None),
    ]
    assert (len(found.gpus), found.driver.source, found.gpus_stale_since) == (2, "nvidia-smi", None)


def test_a_finding_keeps_its_card_out_and_goes_when_the_hardware_is_well():
    ill = "<gpu_recovery_action>GPU Reset</gpu_recovery_action>"
    (gpu,) = gpus(look(a_gpu_machine(smi.a_log(smi.a_card(0, more=ill))), nvml="off"))
    assert gpu.unhealthy_code == "device.unhealthy.recovery"
    (gpu,) = gpus(look(a_gpu_machine(smi.a_log(smi.a_card(0))), nvml="off"))
    assert gpu.unhealthy is None


def test_the_kernels_log_speaks_of_its_card():
    xid = "[1.0] NVRM: Xid (PCI:0000:01:00): 119, pid=1, name=x, Timeout\n"
    machine = a_gpu_machine(smi.a_log(smi.a_card(0), smi.a_card(1)), tools={"dmesg": ToolResult(0, xid)})
    machine.programs = {**machine.programs, "dmesg": "dmesg"}
    found = look(machine, nvml="off")
    assert [gpu.unhealthy_code for gpu in gpus(found)] == ["device.unhealthy.xid", ""]


def test_memory_of_our_own_engines_is_not_anothers():
    info = "<process_info><pid>7</pid><type>C</type><used_memory>39900 MiB</used_memory></process_info>"
    card = smi.a_card(0, memory=smi.fb(81559, 40000, 550)).replace("<processes>", f"<processes>{info}")
    machine = a_gpu_machine(smi.a_log(card))
    settings = NodeSettings(id="n1", nvml="off")
    (held,) = gpus(Collector(machine, settings, {}).collect())
    assert held.unhealthy_code == "device.foreign-memory"
    (mine,) = gpus(Collector(machine, settings, {}, engines=lambda: {7}).collect())
    assert mine.unhealthy is None


MISMATCH = ToolResult(18, "Failed to initialize NVML: Driver/library version mismatch\n")


def test_the_last_cards_are_kept_as_stale_when_the_driver_tells_nothing_more():
    machine = a_gpu_machine(smi.a_log(smi.a_card(0)))
    collector = Collector(machine, NodeSettings(id="n1", nvml="off"), {})
    before = collector.collect()
    machine.tools = {"nvidia-smi": MISMATCH}
    found = collector.collect()
    assert [(gpu.id, gpu.unhealthy_code) for gpu in gpus(found)] == [(smi.uuid(0), "device.stale")]
    assert found.gpus_stale_since == machine.now()
    assert found.gpus[0].name == before.gpus[0].name
    assert "nvidia-smi.mismatch" in {problem.code for problem in found.problems}
    machine.tools = {"nvidia-smi -q -x": ToolResult(0, smi.a_log(smi.a_card(0)))}
    assert gpus(collector.collect())[0].unhealthy is None


def test_cards_that_are_gone_for_certain_are_gone():
    machine = a_gpu_machine(smi.a_log(smi.a_card(0)))
    collector = Collector(machine, NodeSettings(id="n1", nvml="off"), {})
    collector.collect()
    machine.tools = {"nvidia-smi": ToolResult(6, "No devices were found\n")}
    assert gpus(collector.collect()) == []


def test_memory_that_a_card_shares_with_the_machine_is_offered_once():
    none = "<fb_memory_usage><total>Not Supported</total><used>N/A</used></fb_memory_usage>"
    found = look(a_gpu_machine(smi.a_log(smi.a_card(0, name="NVIDIA GB10", memory=none))), nvml="off")
    (device,) = found.devices
    assert (device.kind, device.memory) == (DeviceKind.GPU, 15 * GIB)
    assert "cpu.unified-memory" in {problem.code for problem in found.problems}


def test_a_machine_without_cards_is_asked_nothing_about_them():
    machine = FakeMachine(files=PLAIN)
    look(machine)
    assert not [call for call in machine.calls if call[0] in {"dmesg", "systemctl", "nvidia-smi"}]


def test_a_port_that_changes_its_state_is_seen_at_a_glance():
    machine = tree.a_machine(tree.a_port("mlx5_0", counters={"counters/port_rcv_data": 1}))
    collector = Collector(machine, NodeSettings(id="n1"), {})
    collector.collect()
    assert not collector.ports_changed()
    state = "/sys/class/infiniband/mlx5_0/ports/1"
    machine.files[f"{state}/counters/port_rcv_data"] = "2\n"
    assert not collector.ports_changed()
    machine.files[f"{state}/state"] = "1: DOWN\n"
    assert collector.ports_changed()
    collector.collect()
    assert not collector.ports_changed()


# --- adapters -----------------------------------------------------------------------------------------------------


def test_counters_of_ports_are_told_with_their_growth_and_make_no_news():
    files, links = tree.a_port("mlx5_0", link_layer="Ethernet", counters={"counters/link_downed": 1})
    machine = FakeMachine(files=PLAIN | files, links=links)
    collector = Collector(machine, NodeSettings(id="n1"), {})
    first = collector.collect()
    assert first.ports[0].counters_since is None
    machine.at += 60
    machine.files = {**machine.files, "/sys/class/infiniband/mlx5_0/ports/1/counters/link_downed": "4\n"}
    second = collector.collect()
    assert (second.ports[0].counters_since, second.ports[0].counters_since_s) == ({"link_downed": 3}, 60.0)
    assert not matters(first, second)
