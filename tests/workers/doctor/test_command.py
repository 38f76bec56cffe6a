"""What `llmgw-node doctor` prints."""

import argparse
import json

import msgspec
import pytest

from llmgw.core.hardware.examination import Cure, Examination, Examined
from llmgw.core.hardware.gpus import Gpu
from llmgw.core.units import Bytes, Seconds
from llmgw.core.wire import Inventory
from tests.fakes.machine import FakeMachine
from workers.doctor import kept
from workers.doctor.command import add_arguments, lines, run
from workers.ports import ToolResult
from workers.settings import NodeSettings

CABLE = Cure(text="change the cable", command="", undo="", safe=False)


def found(check, text, verdict="fail", cure=CABLE):
    return Examined(
        check=check, group="ports", title="…", verdict=verdict, text=text, about="", costs="no traffic", cure=cure
    )


def printed(*outcomes):
    return list(lines(Examination(at=Seconds(0.0), took_s=0.1, outcomes=outcomes)))


def test_what_ten_ports_have_in_common_is_said_once():
    ports = [found("port.cable", f"mlx5_{number}:1 has no cable") for number in range(10)]
    said = printed(*ports)
    assert said[:10] == [f"FAIL     port.cable: mlx5_{number}:1 has no cable" for number in range(10)]
    assert said[10:12] == ["           costs: no traffic", "           cure:  change the cable"]
    assert said[12].startswith("10 fail, 0 warn")


def test_cures_that_differ_are_told_apart():
    resets = [Cure(text="reset it", command=f"nvidia-smi -r -i {number}", undo="", safe=False) for number in (0, 1)]
    said = printed(*(found("gpu.reset", f"GPU {number}", cure=cure) for number, cure in enumerate(resets)))
    assert [line.split(": ", 1)[1] for line in said if "safe" in line] == ["nvidia-smi -r -i 0", "nvidia-smi -r -i 1"]


# --- cures

SHELL = {"/bin/sh": ToolResult(0, "done\n")}
MEMORY = {
    "/sys/devices/system/edac/mc/mc0/ce_count": "5\n",
    "/sys/devices/system/edac/mc/mc0/ue_count": "0\n",
    "/proc/sys/kernel/numa_balancing": "1\n",
}


@pytest.fixture
def mend(tmp_path):
    """Run `doctor --fix --yes`, or without the yes, on a machine with these looks at it."""

    def doctor(line, *looks, earlier=None):
        settings = NodeSettings(id="n1", state=tmp_path)
        left = kept.Kept(Seconds(FakeMachine.at - 60), FakeMachine.boot, earlier or {})
        kept_there = {str(tmp_path / kept.FILE): msgspec.json.encode(left).decode()}
        machine = FakeMachine(tools=SHELL, files=MEMORY | kept_there)
        parser = argparse.ArgumentParser()
        add_arguments(parser)
        seen = list(looks)
        return run(parser.parse_args(line.split()), machine, settings, lambda: seen.pop(0), is_replay=False)

    return doctor


def a_look(*, persistence, index=0):
    card = Gpu(index=index, uuid="GPU-0", pci_address="0000:1a:00.0", persistence_mode=persistence)
    return Inventory(devices=(), cpu_count=1, memory_total=Bytes(0), gpus=(card,))


def test_after_the_cures_the_machine_is_looked_at_anew(mend, capsys):
    assert mend("--fix --yes --only gpu.persistence", a_look(persistence=False), a_look(persistence=True)) == 0
    said = capsys.readouterr().out
    assert "$ nvidia-smi -i 0 -pm 1\ndone\nended with 0" in said
    assert "after it: 0 fail, 0 warn" in said


def test_a_card_without_a_number_is_cured_by_its_address(mend, capsys):
    mend("--fix --yes --only gpu.persistence", *[a_look(persistence=False, index=None)] * 2)
    said = capsys.readouterr().out
    assert "GPU ?: persistence mode is off" in said
    assert "$ nvidia-smi -i 0000:1a:00.0 -pm 1" in said


def test_after_the_cures_counters_are_compared_with_the_same_run(mend, capsys):
    looks = [a_look(persistence=True)] * 2
    only = "--only kernel.memory-errors --only kernel.numa-balancing"
    mend(f"--fix --yes {only}", *looks, earlier={"edac.mc0.corrected": 3})
    assert "after it: 0 fail, 2 warn" in capsys.readouterr().out


def test_with_json_the_answer_stays_json(mend, capsys):
    mend("--fix --yes --json --only gpu.persistence", a_look(persistence=False), a_look(persistence=True))
    printed_on = capsys.readouterr()
    assert set(json.loads(printed_on.out)) == {"inventory", "examination"}
    assert "after it: 0 fail, 0 warn" in printed_on.err


@pytest.mark.parametrize(("line", "code"), [("--list", 0), ("--only no.such", 2)])
def test_what_needs_no_look_takes_none(mend, line, code):
    assert mend(line) == code


def test_where_nobody_answers_nothing_is_run(mend, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda _: (_ for _ in ()).throw(EOFError))
    mend("--fix --only gpu.persistence", *[a_look(persistence=False)] * 2)
    assert "$ nvidia-smi" not in capsys.readouterr().out
