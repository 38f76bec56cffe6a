"""What `llmgw-node doctor` prints."""

from llmgw.core.hardware.examination import Cure, Examination, Examined
from llmgw.core.units import Seconds
from workers.doctor.command import lines

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
