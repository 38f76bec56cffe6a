"""The catalogue as a whole, and what is made of what its checks came to."""

import dataclasses
import json

import msgspec
import pytest

from llmgw.core.hardware.gpus import Driver, Gpu
from llmgw.core.units import Bytes, Seconds
from llmgw.core.wire import Inventory
from tests.fakes.machine import FakeMachine
from workers.cli import main
from workers.discovery.nvidia.health import findings
from workers.doctor import kept
from workers.doctor.checks import CATALOGUE, NOT_YET
from workers.doctor.command import lines
from workers.doctor.entry import Check, Fix, Group, Outcome, Verdict, failed
from workers.doctor.run import examine, patient_of
from workers.settings import NodeSettings

NOTHING = Inventory(devices=(), cpu_count=1, memory_total=Bytes(0))


def told(inventory=NOTHING, checks=CATALOGUE):
    return examine(patient_of(FakeMachine(), NodeSettings(id="n1"), inventory), checks)


def test_every_check_has_an_id_of_its_own_and_says_what_to_do():
    ids = [check.id for check in CATALOGUE]
    assert len(set(ids)) == len(ids) >= 100
    assert not set(ids) & {name for name, _, _ in NOT_YET}
    for check in CATALOGUE:
        assert all((check.title, check.reads, check.rule, check.costs, check.fix.text)), check.id
        assert check.fix.command or not check.fix.safe, f"{check.id}: only a command can be run"


def test_nothing_of_the_cards_passes_on_a_machine_that_has_none():
    of_cards = {Group.DRIVER, Group.GPUS, Group.MIG, Group.TOPOLOGY, Group.NVSWITCH, Group.IMEX}
    found = told(checks=[check for check in CATALOGUE if check.group in of_cards])
    assert {outcome.verdict for outcome in found.outcomes} == {"not-applicable"}


def test_a_finding_of_the_hardware_fails_its_check_with_its_cure():
    card = Gpu(index=3, uuid="GPU-3", name="NVIDIA L4", recovery_action="gpu-reset")
    ill = msgspec.structs.replace(
        NOTHING, gpus=(card,), driver=Driver(version="580.95", source="nvml"), findings=findings((card,), ())
    )
    outcome = next(each for each in told(ill).outcomes if each.check == "gpu.recovery")
    assert (outcome.verdict, outcome.about) == ("fail", "GPU-3")
    assert "nvidia-smi -r -i 3" in outcome.cure.text
    assert outcome.evidence["finding"] == "device.unhealthy.recovery"


def test_cards_of_which_nothing_is_told_any_more_do_not_pass():
    stale = msgspec.structs.replace(NOTHING, gpus=(Gpu(index=0, uuid="GPU-0"),), gpus_stale_since=1.0)
    verdicts = {each.check: each.verdict for each in told(stale).outcomes}
    assert (verdicts["gpu.told"], verdicts["gpu.ecc"], verdicts["gpu.xid"]) == ("fail", "unknown", "unknown")


def broken(patient):
    raise KeyError("nobody thought of it")


A_CHECK = Check("a.b", Group.DISK, "well", "x", "y", "costs much", Fix("mend {what}", "mend {what}", safe=True), broken)


def test_a_check_that_breaks_costs_itself():
    (outcome,) = told(checks=[A_CHECK]).outcomes
    assert (outcome.verdict, "nobody thought of it" in outcome.text) == ("unknown", True)


def test_a_fix_is_filled_in_or_left_as_words():
    filled = dataclasses.replace(A_CHECK, judge=lambda _: [failed("bad").cured_by(what="it")])
    (outcome,) = told(checks=[filled]).outcomes
    assert (outcome.cure.text, outcome.cure.command, outcome.cure.safe) == ("mend it", "mend it", True)
    empty = dataclasses.replace(A_CHECK, judge=lambda _: [failed("bad")])
    (outcome,) = told(checks=[empty]).outcomes
    assert (outcome.cure.text, outcome.cure.command) == ("mend {what}", "")


def that_comes_to(verdict):
    return dataclasses.replace(A_CHECK, id=str(verdict), judge=lambda _: [Outcome(verdict, "x")])


def test_the_most_serious_stands_first():
    several = [that_comes_to(verdict) for verdict in reversed(Verdict)]
    assert [outcome.verdict for outcome in told(checks=several).outcomes] == list(Verdict)


def test_what_is_not_well_is_printed_with_cost_and_cure():
    filled = dataclasses.replace(A_CHECK, judge=lambda _: [failed("bad").cured_by(what="it")])
    said = "\n".join(lines(told(checks=[filled])))
    for part in ("FAIL     a.b: bad", "costs: costs much", "safe: mend it", "1 fail, 0 warn"):
        assert part in said


def test_counters_are_kept_for_the_next_run_on_this_boot(tmp_path):
    class Machine(FakeMachine):
        def read_text(self, path):
            return path.read_text("utf-8") if path.exists() else None

    kept.write(Machine(), tmp_path, Seconds(5.0), {"port.x": 3})
    left = kept.read(Machine(), tmp_path)
    assert left
    assert left.counters == {"port.x": 3}
    assert kept.read(Machine(boot="another"), tmp_path) is None
    (tmp_path / kept.FILE).write_text("{", "utf-8")
    assert kept.read(Machine(), tmp_path) is None


# --- the command


@pytest.mark.parametrize(("machine", "code"), [("lost-card", 1), ("h100-infiniband", None)])
def test_a_recorded_machine_is_examined(machine, code, capsys):
    done = main(["doctor", "--json", "--replay", f"tests/recorded/{machine}"])
    document = json.loads(capsys.readouterr().out)
    assert set(document) == {"inventory", "examination"}
    fails = [each for each in document["examination"]["outcomes"] if each["verdict"] == "fail"]
    assert done == (1 if fails else 0)
    assert code in {None, done}


def test_it_shows_what_nccl_would_be_told(capsys):
    main(["doctor", "--replay", "tests/recorded/h100-infiniband", "--fabric", "mine=mlx5_0,mlx5_1"])
    said = capsys.readouterr().out
    assert "NCCL_IB_HCA==mlx5_0:1,mlx5_1:1" in said
    assert "NCCL_SOCKET_IFNAME==" in said


def test_a_check_that_is_not_known_is_wrong_usage(capsys):
    assert main(["doctor", "--replay", "tests/recorded/cpu-only", "--only", "no.such"]) == 2
    assert "--list" in capsys.readouterr().err


def test_all_checks_can_be_listed(capsys):
    assert main(["doctor", "--replay", "tests/recorded/cpu-only", "--list"]) == 0
    said = capsys.readouterr().out
    assert "gpu.xid" in said
    assert "not yet" in said
