"""The inventory as a whole: what is offered, and what is not and why."""

import sys

import pytest

from llmgw.core.units import GIB, MIB, Bytes
from llmgw.core.world import DeviceKind
from tests.fakes.machine import FakeMachine
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


def a_gpu_machine(nvml, cards="GPU-a, NVIDIA L40S, 46068\n", modes="GPU-a, Disabled\n"):
    answers = {
        NVML: nvml,
        f"{SMI} --query-gpu=uuid,name,memory.total --format=csv,noheader,nounits": ToolResult(0, cards),
        f"{SMI} --query-gpu=uuid,mig.mode.current --format=csv,noheader,nounits": ToolResult(0, modes),
    }
    return FakeMachine(files={**PLAIN, "/dev/nvidiactl": ""}, programs={"nvidia-smi": SMI}, tools=answers)


def gpus(found):
    return [device for device in found.devices if device.kind is DeviceKind.GPU]


def test_nvml_is_asked_first():
    said = f'[{{"uuid": "GPU-b", "name": "NVIDIA H100 80GB HBM3", "memory": {81559 * MIB}}}]'
    found = look(a_gpu_machine(ToolResult(0, said)))
    assert [(gpu.id, gpu.device_class, gpu.slots, gpu.unhealthy) for gpu in gpus(found)] == [
        ("GPU-b", "h100-80g", 1, None)
    ]
    assert found.problems == ()


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (ToolResult(1, err="Driver/library version mismatch\n"), "NVML ended with 1: Driver/library version mismatch"),
        (ToolResult(None, problem="no answer within 10 s"), "NVML gave no answer within 10 s"),
        (ToolResult(-11), "NVML ended with -11"),
        (ToolResult(0, "garbage"), "NVML ended with 0: garbage"),
    ],
)
def test_where_nvml_fails_nvidia_smi_is_asked_and_that_is_said(answer, says):
    found = look(a_gpu_machine(answer))
    assert [gpu.id for gpu in gpus(found)] == ["GPU-a"]
    assert says in texts(found)[0]
    assert "nvidia-smi is asked instead" in texts(found)[0]


def test_nvml_may_be_switched_off():
    machine = a_gpu_machine(ToolResult(1))
    found = look(machine, nvml="off")
    assert [gpu.device_class for gpu in gpus(found)] == ["l40s-45g"]
    assert found.problems == ()
    assert not [call for call in machine.calls if call[0] == sys.executable]


@pytest.mark.parametrize(
    ("cards", "modes", "ailment"),
    [
        ("GPU-a, NVIDIA A100-SXM4-40GB, 40960", "GPU-a, Enabled", "is in MIG mode, and its instances are not offered"),
        ("GPU-a, NVIDIA A40, [GPU is lost]", "", "the driver says: GPU is lost"),
        ("GPU-a, NVIDIA GB10, [N/A]", "", "the driver does not tell its name and memory"),
    ],
)
def test_a_card_that_must_not_be_used_says_why(cards, modes, ailment):
    (gpu,) = gpus(look(a_gpu_machine(ToolResult(1), cards, modes), nvml="off"))
    assert gpu.unhealthy == ailment


@pytest.mark.parametrize(
    ("cards", "says"),
    [
        ("No devices were found\n", "no GPU is offered: the driver lists none"),
        ("[N/A], [GPU is lost], [N/A]\n", "GPU 0 is not offered: the driver gives it no UUID and says: GPU is lost"),
    ],
)
def test_cards_that_cannot_be_named_are_told(cards, says):
    found = look(a_gpu_machine(ToolResult(1), cards), nvml="off")
    assert gpus(found) == []
    assert says in texts(found)


def test_a_driver_whose_tool_fails_is_told_in_its_own_words():
    words = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
    machine = FakeMachine(files=PLAIN, programs={"nvidia-smi": SMI}, tools={SMI: ToolResult(9, words + "\n")})
    assert texts(look(machine, nvml="off")) == (f"no GPU is offered: nvidia-smi ended with 9: {words}",)


def test_a_driver_without_its_tool_is_told():
    machine = FakeMachine(files={**PLAIN, "/dev/nvidiactl": ""}, tools={NVML: ToolResult(1, err="no")})
    assert texts(look(machine))[-1] == "no GPU is offered: nvidia-smi not found"
