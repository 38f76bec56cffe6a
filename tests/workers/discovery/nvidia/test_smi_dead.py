"""Cards that nvidia-smi has no handle for: they are there, hide no other, and nobody gets their number."""

import pytest

from tests.workers.discovery.nvidia.smi import SETTINGS, a_card, a_log, a_machine, bus, listed, mig_uuid, uuid
from tests.workers.discovery.nvidia.test_smi import A100, H100, mig
from workers.discovery.nvidia import smi
from workers.discovery.nvidia.smi_dead import Dead, dead_in
from workers.ports import DeviceNode, ToolResult

LOST = "GPU is lost.  Reboot the system to recover this GPU"


def line(which, words="Unknown Error"):
    return f"Unable to determine the device handle for {which}: {words}\n"


def in_kernel(*numbers, minors=True, unknown=()):
    told = {}
    for number in numbers:
        name = "GPU-????????-????-????-????-????????????" if number in unknown else uuid(number)
        text = f"Model: \t\t {H100}\nIRQ:   \t\t 44\nGPU UUID: \t {name}\nBus Location: \t 0000:0{number + 1}:00.0\n"
        text += f"Device Minor: \t {number}\n" if minors else ""
        told[f"/proc/driver/nvidia/gpus/0000:{number + 1:02x}:00.0/information"] = text
    return told


def alone(*numbers, attached=3, **card):
    """What is answered when each is asked by its address."""
    return {f"nvidia-smi -q -x -i {bus(n + 1)}": a_log(a_card(n, **card), attached=attached) for n in numbers}


def ask(answer, **machine):
    return smi.ask(a_machine(answer, **machine), SETTINGS)


def told(cards):
    return [(gpu.index, gpu.uuid, gpu.pci_address, gpu.failed) for gpu in cards.gpus]


def address(number):
    return f"0000:{number + 1:02x}:00.0"


@pytest.mark.parametrize(
    ("text", "dead"),
    [
        (line("GPU 0000:03:00.0", LOST), Dead(None, "0000:03:00.0", "GPU is lost")),
        (line("GPU 0000:03:00.0", "GPU is lost.\nReboot the system"), Dead(None, "0000:03:00.0", "GPU is lost")),
        (line("gpu 0000:0A:00.0", "GPU is lost. Reboot"), Dead(None, "0000:0a:00.0", "GPU is lost")),
        (line("GPU0000:07:00.0"), Dead(None, "0000:07:00.0", "Unknown Error")),
        (line("GPU 00000000:07:00.0"), Dead(None, "0000:07:00.0", "Unknown Error")),
        (line("GPU 000:BA:80.0"), Dead(None, "0000:ba:80.0", "Unknown Error")),
        (line("GPU00000009:01:00.0"), Dead(None, "0009:01:00.0", "Unknown Error")),
        (line("GPU1: 0000:34:00.0"), Dead(1, "0000:34:00.0", "Unknown Error")),
        (line("GPU 12"), Dead(12, None, "Unknown Error")),
        (line("GPU3"), Dead(3, None, "Unknown Error")),
        (
            line("GPU 0000:81:00.0", "Unable to communicate with GPU because it is insufficiently powered.\nThis may"),
            Dead(None, "0000:81:00.0", "Unable to communicate with GPU because it is insufficiently powered"),
        ),
    ],
)
def test_however_it_is_spelt_the_card_is_known(text, dead):
    assert dead_in(f"WARNING: x\n{text}{text}Tue Dec  1\n") == (dead,)


def test_one_without_a_reason_is_dead_all_the_same():
    (dead,) = dead_in("Unable to determine the device handle for gpu 0000:02:00.0.")
    assert (dead.address, bool(dead.words)) == ("0000:02:00.0", True)


@pytest.mark.parametrize("which", ["GPU1: 0000:02:00.0", "GPU0000:02:00.0", "GPU1"])
def test_newer_tools_name_it_and_tell_of_the_others_in_full(which):
    """They end with 0, and the line stands before the document."""
    log = line(which) + a_log(a_card(0), a_card(2), attached=3)
    cards = ask(log, listing=line(which) + listed((0, H100), (2, H100)), files=in_kernel(0, 1, 2))
    assert told(cards) == [
        (0, uuid(0), address(0), None),
        (1, uuid(1), address(1), "Unknown Error"),
        (2, uuid(2), address(2), None),
    ]
    assert (cards.problems, cards.gpus[1].name, cards.gpus[1].minor_number) == ((), H100, 1)


@pytest.mark.parametrize("listing", [listed((0, H100), (2, H100)), None])
def test_without_the_kernels_list_its_number_is_the_one_that_the_others_leave(listing):
    log = line("GPU0000:02:00.0") + a_log(a_card(0), a_card(2), attached=3)
    cards = ask(log, listing=listing)
    assert told(cards) == [
        (0, uuid(0), address(0), None),
        (1, None, address(1), "Unknown Error"),
        (2, uuid(2), address(2), None),
    ]


def test_a_card_of_which_only_the_number_is_told_takes_it_from_no_other():
    cards = ask(line("GPU1") + a_log(a_card(0), a_card(2), attached=3))
    assert [(gpu.index, gpu.uuid, gpu.failed) for gpu in cards.gpus] == [
        (0, uuid(0), None),
        (1, None, "Unknown Error"),
        (2, uuid(2), None),
    ]


def test_a_card_that_is_told_of_and_has_no_handle_has_failed():
    cards = ask(line("GPU0000:02:00.0", LOST) + a_log(a_card(0), a_card(1)))
    assert [(gpu.uuid, gpu.failed) for gpu in cards.gpus] == [(uuid(0), None), (uuid(1), "GPU is lost")]


def test_two_dead_cards_of_four():
    said = line("GPU0000:01:00.0", LOST) + line("GPU0000:03:00.0")
    tools = alone(1, 3, attached=4) | {"nvidia-smi -L": ToolResult(15, said)}
    cards = ask(ToolResult(15, said), files=in_kernel(0, 1, 2, 3), tools=tools)
    assert [(gpu.index, gpu.uuid, gpu.failed) for gpu in cards.gpus] == [
        (0, uuid(0), "GPU is lost"),
        (1, uuid(1), None),
        (2, uuid(2), "Unknown Error"),
        (3, uuid(3), None),
    ]
    assert (cards.driver.attached, cards.driver.version, cards.problems) == (4, "535.161.08", ())


def test_the_dead_one_is_not_asked_again():
    machine = a_machine(ToolResult(15, line("GPU0000:02:00.0")), files=in_kernel(0, 1, 2), tools=alone(0, 2))
    smi.ask(machine, SETTINGS)
    assert ("nvidia-smi", "-q", "-x", "-i", bus(2)) not in machine.calls


def test_instances_beside_a_dead_card_are_listed_alone():
    tools = alone(0, attached=2, name=A100, mig=mig((0, 40192)))
    tools |= {"nvidia-smi -L": ToolResult(15, line("GPU0000:02:00.0"))}
    tools |= {f"nvidia-smi -L -i {bus(1)}": listed((0, A100, "3g.40gb"))}
    cards = ask(ToolResult(15, line("GPU0000:02:00.0")), files=in_kernel(0, 1), tools=tools)
    assert [(part.uuid, part.profile) for part in cards.gpus[0].instances] == [(mig_uuid(0), "3g.40gb")]


def test_a_tool_that_says_the_same_whatever_is_asked_damns_no_other_card():
    cards = ask(None, files=in_kernel(0, 1, 2), tools={"nvidia-smi": ToolResult(15, line("GPU0000:02:00.0", LOST))})
    assert told(cards) == [
        (0, uuid(0), address(0), None),
        (1, uuid(1), address(1), "GPU is lost"),
        (2, uuid(2), address(2), None),
    ]
    assert {problem.code for problem in cards.problems} == {"nvidia-smi.untold"}
    assert cards.gpus[0].memory_total_bytes is None


def test_a_tool_that_prints_the_same_document_whatever_is_asked_makes_up_no_card():
    cards = ask(None, tools={"nvidia-smi": a_log(a_card(0), a_card(1))})
    assert [gpu.uuid for gpu in cards.gpus] == [uuid(0), uuid(1)]
    assert cards.problems == ()


def test_a_card_with_a_device_number_that_no_bus_has_is_the_one_on_its_bus():
    cards = ask(ToolResult(15, line("GPU 000:02:80.0")), files=in_kernel(0, 1, 2), tools=alone(0, 2))
    assert told(cards)[1] == (1, uuid(1), address(1), "Unknown Error")
    assert len(cards.gpus) == 3


def test_without_the_kernels_list_the_bus_is_asked():
    tools = alone(0, 2) | {
        "lspci": "0000:01:00.0 0302: 10de:2330 (rev a1)\n0000:02:00.0 0302: 10de:2330 (rev ff)\n"
        "0000:03:00.0 3D controller: NVIDIA Corporation\n0000:04:00.0 0680: 10de:22a3 (rev a1)\n"
    }
    cards = ask(ToolResult(15, line("GPU0000:02:00.0")), tools=tools)
    assert [(gpu.index, gpu.pci_address, bool(gpu.failed)) for gpu in cards.gpus] == [
        (0, address(0), False),
        (1, address(1), True),
        (2, address(2), False),
    ]


def test_without_any_list_a_line_that_is_said_of_every_number_gives_none():
    cards = ask(None, tools={"nvidia-smi": ToolResult(15, line("GPU0000:02:00.0"))})
    assert told(cards) == [(None, None, address(1), "Unknown Error")]


def test_one_that_does_not_answer_costs_two_time_limits_at_most():
    hangs = ToolResult(None, problem="no answer within 20 s")
    tools = {f"nvidia-smi -q -x -i {bus(n + 1)}": hangs for n in range(1, 8)}
    machine = a_machine(ToolResult(15, line("GPU0000:01:00.0")), files=in_kernel(*range(8)), tools=tools)
    cards = smi.ask(machine, SETTINGS)
    assert len([call for call in machine.calls if "-i" in call]) == 2
    assert [gpu.failed for gpu in cards.gpus[:4]] == ["Unknown Error", hangs.problem, hangs.problem, None]
    assert len(cards.gpus) == 8


# --- cards that are missing from a whole answer


def test_one_that_never_came_up_is_failed_and_nobodys_number():
    """The driver counts seven of eight, as after a boot with a card that cannot be initialised."""
    there = [0, 1, 2, 4]
    log = a_log(*map(a_card, there))
    listing = listed(*[(n, H100) for n in there]).replace("GPU 4:", "GPU 3:")
    tools = {f"nvidia-smi -q -x -i {bus(4)}": ToolResult(6, "No devices were found\n")}
    cards = ask(log, listing=listing, files=in_kernel(*range(5), unknown={3}), tools=tools)
    assert told(cards) == [
        *((n, uuid(n), address(n), None) for n in (0, 1, 2)),
        (3, uuid(4), address(4), None),
        (None, None, address(3), "No devices were found"),
    ]


def test_one_that_the_driver_counts_and_that_says_nothing_has_failed():
    log = a_log(a_card(0), a_card(2), attached=3)
    cards = ask(log, listing=listed((0, H100), (1, H100), (2, H100)))
    assert [(gpu.index, gpu.uuid, gpu.failed) for gpu in cards.gpus] == [
        (0, uuid(0), None),
        (1, uuid(1), smi.UNANSWERED),
        (2, uuid(2), None),
    ]
    cards = ask(log, files=in_kernel(0, 1, 2))
    assert told(cards)[1] == (1, uuid(1), address(1), smi.UNANSWERED)


def test_one_of_which_nothing_is_known_is_counted():
    cards = ask(a_log(a_card(0), a_card(2), attached=3))
    assert [gpu.uuid for gpu in cards.gpus] == [uuid(0), uuid(2)]
    (problem,) = cards.problems
    assert (problem.code, "1 of the 3" in problem.text) == ("nvidia-smi.truncated", True)


def node(minor, *, may):
    return {f"/dev/nvidia{minor}": DeviceNode(major=195, minor=minor, readable=may, writable=may)}


@pytest.mark.parametrize(
    ("nodes", "count"),
    [(node(0, may=True) | node(1, may=False), 1), (node(0, may=True), 1), (node(0, may=False), 2), ({}, 2)],
)
def test_a_card_that_a_container_hides_is_not_called_dead(nodes, count):
    """The kernel's list is the whole machine's; whose device files cannot be told apart is not taken for hidden."""
    log = a_log(a_card(0))
    tools = {f"nvidia-smi -q -x -i {bus(2)}": ToolResult(6, "No devices were found\n")}
    cards = ask(log, listing=listed((0, H100)), files=in_kernel(0, 1), tools=tools, nodes=nodes)
    assert (len(cards.gpus), cards.problems) == (count, ())


def test_what_is_told_before_it_hangs_is_kept():
    hung = ToolResult(None, a_log(a_card(0), a_card(1), end="")[:-300], problem="no answer within 20 s")
    machine = a_machine(hung, files=in_kernel(0, 1, 2))
    cards = smi.ask(machine, SETTINGS)
    assert told(cards) == [
        (0, uuid(0), address(0), None),
        (1, uuid(1), address(1), smi.UNANSWERED),
        (2, uuid(2), address(2), smi.UNANSWERED),
    ]
    assert cards.problems[0].code == "nvidia-smi.timeout"
    assert len(machine.calls) == 1, "asking on would hang as well"
