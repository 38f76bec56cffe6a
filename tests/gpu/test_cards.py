"""The cards of this very machine are the same by NVML and by nvidia-smi, but for what changes between two looks."""

from pathlib import Path

import msgspec
import pytest

from workers.discovery.changes import lasting
from workers.discovery.nvidia.find import find
from workers.settings import NodeSettings
from workers.system import RealMachine

pytestmark = pytest.mark.gpu

_NVML_ALONE = dict.fromkeys(("addressing_mode", "temperature_slowdown_celsius", "nvlinks"))
"""Drivers print these in some releases only, and who is at the other end of a link in none."""


@pytest.fixture
def machine():
    here = RealMachine()
    if here.device_node(Path("/dev/nvidiactl")) is None or here.which("nvidia-smi") is None:
        pytest.skip("this machine has no NVIDIA card, or no nvidia-smi to compare with")
    return here


def test_both_ways_tell_the_same(machine):
    by_library = find(machine, NodeSettings(id="here"))
    by_tool = find(machine, NodeSettings(id="here", nvml="off"))
    assert by_library.driver
    assert by_library.driver.source == "nvml", by_library.problems
    assert len(by_library.gpus) == by_library.driver.attached == len(by_tool.gpus)
    for one, other in zip(by_library.gpus, by_tool.gpus, strict=True):
        assert _facts(one) == _facts(other)


def _facts(gpu):
    return msgspec.to_builtins(msgspec.structs.replace(lasting(gpu), **_NVML_ALONE))


def test_a_card_of_this_machine_is_known(machine):
    for gpu in find(machine, NodeSettings(id="here")).gpus:
        assert gpu.uuid
        assert gpu.device_class
        assert gpu.compute_capability
