"""Real shapes, mangled: nothing raises, no card is made up, and what befalls one card befalls no other."""

import re

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workers.discovery.nvidia.smi import SETTINGS, a_card, a_log, a_machine, bus, listed, uuid
from tests.workers.discovery.nvidia.test_smi import A100, mig
from tests.workers.discovery.nvidia.test_smi_dead import in_kernel, line
from workers.discovery.nvidia import smi, smi_list
from workers.ports import ToolResult

MORE = """
    <ecc_mode><current_ecc>Enabled</current_ecc><pending_ecc>Enabled</pending_ecc></ecc_mode>
    <ecc_errors>
      <volatile>
        <sram_uncorrectable>0</sram_uncorrectable>
        <dram_uncorrectable>1</dram_uncorrectable>
      </volatile>
    </ecc_errors>
    <fabric>
      <state>Completed</state>
      <status>Success</status>
    </fabric>
    <gpu_recovery_action>None</gpu_recovery_action>
"""
CARDS = [a_card(n, name=A100, mig=mig((0, 9728), (2, 9728)).replace("><", ">\n<"), more=MORE) for n in range(4)]
LIST = listed(*[(n, A100, "1g.10gb", "", "1g.10gb") for n in range(4)])
UUIDS = {uuid(n) for n in range(4)}
PARTS = set(re.findall(r"MIG-[^)]+", LIST))
WORDS = ("ERR!", "Unknown Error", "GPU is lost", "N/A", "", "<", ">", "&", "</gpu", "²", "9" * 400, "\0", "é", '"')
HOW = st.sampled_from(["drop", "double", "cut", "swap", "reverse"])
EDITS = st.lists(st.tuples(st.integers(0, 10_000), HOW, st.sampled_from(WORDS)), min_size=1, max_size=6)
CARD_ONLY = st.lists(st.tuples(st.integers(0, 10_000), HOW, st.sampled_from(WORDS)), min_size=1, max_size=12)


def mangled(text, edits):
    lines = text.splitlines(keepends=True)
    for at, how, word in edits:
        place = at % len(lines)
        old = lines[place]
        before, mark, after = [*re.split(r"([>:])", old, maxsplit=1), "", ""][:3]
        lines[place] = {
            "drop": "",
            "double": old * 2,
            "cut": f"{old[: len(old) // 2].rstrip()}\n",
            "swap": f"{before}{mark}{word}{after[after.find('<') :]}",
            "reverse": lines[(place + 1) % len(lines)],
        }[how]
    return "".join(lines)


def ask(answer, listing=LIST, **machine):
    return smi.ask(a_machine(answer, listing, **machine), SETTINGS)


def check(cards):
    """What holds whatever was printed."""
    assert {gpu.uuid for gpu in cards.gpus} - {None} <= UUIDS
    assert {part.uuid for gpu in cards.gpus for part in gpu.instances} - {None} <= PARTS
    for told in (
        [gpu.uuid for gpu in cards.gpus if gpu.uuid],
        [gpu.index for gpu in cards.gpus if gpu.index is not None],
        [gpu.pci_address for gpu in cards.gpus if gpu.pci_address],
    ):
        assert len(told) == len(set(told))
    msgspec.json.encode(cards.gpus)
    assert all(problem.text and len(problem.literal) <= 500 for problem in cards.problems)


@settings(max_examples=50)
@given(EDITS)
def test_a_mangled_document(edits):
    cards = ask(mangled(a_log(*CARDS), edits))
    check(cards)
    assert len(cards.gpus) >= 4 - len(edits) or cards.problems


@settings(max_examples=50)
@given(st.integers(0, 3), CARD_ONLY)
def test_what_befalls_one_card_befalls_no_other(number, edits):
    whole = ask(a_log(*CARDS))
    head, body, tail = re.split(r"(?<=\.0\">\n)|(?=\s*</gpu>)", CARDS[number], maxsplit=2)
    edits = [(at, how, word) for at, how, word in edits if word != "</gpu"]
    bad = [*CARDS]
    bad[number] = f"{head}{mangled(body, edits)}\n{tail}"
    cards = ask(a_log(*bad))
    check(cards)
    assert [gpu for gpu in cards.gpus if gpu.index != number] == [gpu for gpu in whole.gpus if gpu.index != number]
    assert len(cards.gpus) == 4


@settings(max_examples=50)
@given(st.integers(0, 100_000))
def test_a_document_that_breaks_off_anywhere(at):
    log = a_log(*CARDS)
    text = log[: at % len(log)]
    cards = ask(text, files=in_kernel(*range(4)))
    whole = text.count("</gpu>")
    check(cards)
    if "<nvidia_smi_log" in text:
        assert {gpu.uuid for gpu in cards.gpus} == UUIDS, "the list and the kernel know of the others"
        told = [gpu.index for gpu in cards.gpus if gpu.memory_total_bytes]
        assert told[:whole] == [*range(whole)]


@settings(max_examples=50)
@given(EDITS)
def test_a_mangled_list(edits):
    cards = ask(a_log(*CARDS), mangled(LIST, edits))
    check(cards)
    assert [gpu.uuid for gpu in sorted(cards.gpus, key=lambda gpu: gpu.pci_address)] == [uuid(n) for n in range(4)]
    assert all(len(gpu.instances) >= 2 for gpu in cards.gpus)


TEXT = "==============NVSMI LOG==============\nDriver Version : 550.90.07\nAttached GPUs : 4\n" + "".join(
    f"""GPU {bus(n + 1)}
    Product Name                          : {A100}
    MIG Mode
        Current                           : Enabled
        Pending                           : Enabled
    MIG Device
        Index                             : 0
        FB Memory Usage
            Total                         : 9728 MiB
    GPU UUID                              : {uuid(n)}
    FB Memory Usage
        Total                             : 81920 MiB
    Temperature
        GPU Current Temp                  : 36 C
    Processes                             : None
"""
    for n in range(4)
)


@settings(max_examples=50)
@given(EDITS.filter(lambda edits: all(how != "cut" for _, how, _ in edits)))
def test_mangled_text(edits):
    check(ask(ToolResult(2, "Invalid\n"), tools={"nvidia-smi -q": mangled(TEXT, edits)}))


ROWS = "".join(f"{n}, {uuid(n)}, {A100}, {bus(n + 1)}, 81920, 550.90.07\n" for n in range(4))
QUERY = "nvidia-smi --query-gpu=index,uuid,name,pci.bus_id,memory.total,driver_version --format=csv,noheader,nounits"


@settings(max_examples=50)
@given(EDITS)
def test_a_mangled_table(edits):
    check(ask(ToolResult(2, "Invalid\n"), listing="", tools={QUERY: mangled(ROWS, edits)}))


@settings(max_examples=50)
@given(st.sets(st.integers(0, 3)), EDITS)
def test_dead_cards_in_a_mangled_answer(dead, edits):
    said = "".join(line(f"GPU0000:0{n + 1}:00.0") for n in dead)
    alive = [CARDS[n] for n in range(4) if n not in dead]
    alone = {f"nvidia-smi -q -x -i {bus(n + 1)}": a_log(CARDS[n], attached=4) for n in range(4) if n not in dead}
    cards = ask(said + mangled(a_log(*alive, attached=4), edits), files=in_kernel(*range(4)), tools=alone)
    check(cards)
    failed = {gpu.index for gpu in cards.gpus if gpu.failed == "Unknown Error"}
    assert dead <= failed
    assert {gpu.uuid for gpu in cards.gpus} >= {uuid(n) for n in dead}


@given(st.text(max_size=200))
def test_any_text_for_any_question(text):
    told = smi.ask(a_machine(text, text, tools={"nvidia-smi": ToolResult(0, text, text)}), SETTINGS)
    assert not told.gpus or re.search(r"GPU|gpu", text)
    smi_list.parse_links(text, text)


@given(st.lists(st.sampled_from([*WORDS, "<gpu>", "<uuid>", "GPU 0:", "(UUID: GPU-", ")", ",", "\n", "0", " : "])))
def test_any_jumble_of_its_own_words(words):
    text = "".join(words)
    told = smi.ask(a_machine(f"<nvidia_smi_log>{text}", text, tools={"nvidia-smi": ToolResult(0, text)}), SETTINGS)
    assert told.gpus or told.problems
