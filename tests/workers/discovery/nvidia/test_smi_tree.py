"""The long answers of nvidia-smi as trees: what is whole counts, whatever became of the rest."""

import pytest

from tests.workers.discovery.nvidia.smi import a_card, a_log, bus, uuid
from workers.discovery.nvidia import smi_tree
from workers.discovery.nvidia.smi_tree import Tree, text_at


def uuids(tree):
    return [text_at(card, "uuid") for card in tree.cards]


def test_a_document_has_a_head_and_cards():
    tree = smi_tree.read(a_log(a_card(0), a_card(1), driver="470.57.02"))
    assert (tree.head["driver_version"], tree.attached, uuids(tree)) == ("470.57.02", 2, [uuid(0), uuid(1)])
    assert (tree.whole, tree.cut, tree.is_short) == (True, None, False)


def test_camel_case_is_no_other_tag():
    tree = smi_tree.read(a_log(a_card(0, more="<fabric><cliqueId>3</cliqueId></fabric>")))
    assert text_at(tree.cards[0], "fabric/cliqueid") == "3"


def test_a_document_that_breaks_off_tells_of_all_before():
    log = a_log(a_card(0), a_card(1), a_card(2), attached=3, end="")
    tree = smi_tree.read(log[: log.index(uuid(2)) + 60])
    assert tree.cut is not None
    assert (uuids(tree), text_at(tree.cut, "uuid"), tree.whole, tree.is_short) == (
        [uuid(0), uuid(1)],
        uuid(2),
        False,
        True,
    )


def test_a_value_that_breaks_off_is_none():
    log = a_log(a_card(0), a_card(1), attached=2, end="")
    tree = smi_tree.read(log[: log.index(uuid(1)) + 12])
    assert tree.cut is not None
    assert text_at(tree.cut, "uuid") in {"", None}
    assert text_at(tree.cut, "product_name")


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        ("<temperature>", ""),
        ("<gpu_temp>36 C</gpu_temp>", "<gpu_temp>36 C</gpu_te"),
        ("<gpu_temp>36 C</gpu_temp>", "<gpu_temp>36 C"),
        ("<gpu_temp>36 C</gpu_temp>", "36 C</gpu_temp>"),
        ("</utilization>", "</utilization></utilization>"),
        ("</utilization>", ""),
        ("</mig_mode>", ""),
        ("<utilization>", "<utilization><utilization>"),
        ("<uuid>", "<process_name>a < b && c</process_name><uuid>"),
        ("<uuid>", "<process_name>&nonsense; ]]> <!-- </process_name><uuid>"),
        ("<uuid>", "<empty/><uuid>"),
        ("<uuid>", "</nonsense><uuid>"),
    ],
)
def test_a_faulty_line_costs_itself_and_no_card(line, instead):
    first = a_card(0).replace(line, instead, 1)
    tree = smi_tree.read(a_log(first, a_card(1)))
    assert (uuids(tree), tree.whole) == ([uuid(0), uuid(1)], True)
    assert text_at(tree.cards[0], "fb_memory_usage/total") == "81559 MiB"
    assert text_at(tree.cards[0], "clocks/sm_clock") == "1410 MHz"


@pytest.mark.parametrize("lost", ["</gpu>", f'<gpu id="{bus(2)}">'])
def test_an_edge_of_a_card_that_is_lost_costs_one_card_at_most(lost):
    cards = [a_card(n) for n in range(3)]
    cards[1] = cards[1].replace(lost, "")
    assert {uuid(0), uuid(2)} <= set(uuids(smi_tree.read(a_log(*cards))))


def test_what_is_printed_twice_is_one_card():
    card = a_card(0)
    opened = f'<gpu id="{bus(1)}">'
    assert uuids(smi_tree.read(a_log(card.replace(opened, opened * 2)))) == [uuid(0)]
    assert uuids(smi_tree.read(a_log(card, card, a_card(1)))) == [uuid(0), uuid(1)]


def test_of_several_documents_the_fullest_counts():
    whole = a_log(a_card(0), a_card(1))
    torn = a_log(a_card(5), a_card(6), end="")[:-200]
    assert uuids(smi_tree.read(torn + whole + a_log(a_card(7)))) == [uuid(0), uuid(1)]


@pytest.mark.parametrize(
    "noise", ["WARNING: infoROM is corrupted at gpu 0000:01:00.0\n", "\ufeff", "\x00\x1b[0m", "<br>\n"]
)
def test_what_stands_around_it_does_not_matter(noise):
    assert uuids(smi_tree.read(f"{noise}{a_log(a_card(0))}{noise}")) == [uuid(0)]
    assert uuids(smi_tree.read(a_log(a_card(0)).replace("\n", "\r\n"))) == [uuid(0)]
    assert uuids(smi_tree.read("\x00".join(a_log(a_card(0))))) == [uuid(0)], "as of another encoding"


def test_colours_do_not_matter():
    (card,) = smi_tree.read(a_log(a_card(0)).replace(uuid(0), f"\x1b[1m{uuid(0)}\x1b[0m")).cards
    assert card.findtext("uuid") == uuid(0)


@pytest.mark.parametrize("attached", ["", "N/A", "-1", "²", "9" * 5000, "many", "1e9", "99999"])
def test_a_count_that_is_none_is_not_known(attached):
    assert smi_tree.read(a_log(a_card(0)).replace("<attached_gpus>1", f"<attached_gpus>{attached}")).attached is None


@pytest.mark.parametrize(
    "text", ["", "nonsense", "<html><gpu id='1'></gpu></html>", "GPU 0: NVIDIA L4 (UUID: GPU-0)\n"]
)
def test_what_is_neither_form_has_no_cards(text):
    assert smi_tree.read(text).cards == []


def test_an_empty_tree_is_short():
    assert Tree(whole=False).is_short
    assert Tree().is_short


# --- text

TEXT = f"""
==============NVSMI LOG==============

Timestamp                                              : Tue Dec  1 08:00:00 2026
Driver Version                                         : 580.65.06
CUDA Version                                           : 13.0

Attached GPUs                                          : 2
GPU 00000000:19:00.0
    Product Name                                       : NVIDIA B200
    MIG Mode
        Current                                        : Disabled
    GPU UUID                                           : {uuid(0)}
    PCI
        Bus Id                                         : 00000000:19:00.0
        GPU Link Info
            Link Width
                Max                                    : 16x
    Clocks Event Reasons
        HW Slowdown                                    : Not Active
            HW Thermal Slowdown                        : Active
GPU 00000000:3B:00.0
    Product Name                                       : NVIDIA B200
    GPU UUID                                           : {uuid(1)}
    Processes                                          : None
"""


def test_text_is_nested_by_indentation_whatever_the_width_of_its_columns():
    tree = smi_tree.read(TEXT)
    assert (tree.head["driver_version"], tree.attached, len(tree.cards)) == ("580.65.06", 2, 2)
    first = tree.cards[0]
    assert text_at(first, "pci/gpu_link_info/link_width/max") == "16x"
    assert text_at(first, "clocks_event_reasons/hw_slowdown/hw_thermal_slowdown") == "Active"
    narrow = smi_tree.read(TEXT.replace(" " * 13 + ": ", ": "))
    indented = smi_tree.read("\n".join(f"    {line}" for line in TEXT.splitlines()) + "\n")
    for other in (narrow, indented):
        assert [text_at(card, "gpu_uuid") for card in other.cards] == [uuid(0), uuid(1)]


def test_a_line_of_text_that_does_not_end_is_none():
    tree = smi_tree.read(TEXT[: TEXT.index(uuid(1)) + 12])
    assert [text_at(card, "gpu_uuid") for card in tree.cards] == [uuid(0), None]
