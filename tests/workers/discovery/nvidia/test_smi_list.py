"""`nvidia-smi -L`, and NVLinks, which are told under the same headings."""

import pytest

from tests.workers.discovery.nvidia.smi import uuid
from workers.discovery.nvidia.smi_list import parse, parse_links

HEAD = f"GPU 0: NVIDIA H100 80GB HBM3 (UUID: {uuid(0)})\n"


@pytest.mark.parametrize(
    ("line", "slot", "profile", "instance"),
    [
        ("  MIG 1g.10gb     Device  0: (UUID: MIG-a-1)", 0, "1g.10gb", "MIG-a-1"),
        ("  MIG 1g.24gb+me.all Device 12: (UUID: MIG-a-2)", 12, "1g.24gb+me.all", "MIG-a-2"),
        ("  MIG 1c.3g.20gb  Device  1: (UUID: MIG-a-3)", 1, "1c.3g.20gb", "MIG-a-3"),
        ("\tMIG 3g.20gb Device 2: (UUID:MIG-GPU-a/1/0)", 2, "3g.20gb", "MIG-GPU-a/1/0"),
    ],
)
def test_instances_of_all_profiles_and_spellings(line, slot, profile, instance):
    (card,) = parse(f"WARNING: x\n{HEAD}{line}\r\n")
    (part,) = card.instances
    assert (part.slot, part.profile, part.uuid) == (slot, profile, instance)


def test_colours_do_not_matter():
    assert parse(f"\x1b[4m{HEAD.strip()}\x1b[0m\n") == parse(HEAD)


def test_an_instance_above_all_cards_is_nobodys():
    assert [card.instances for card in parse(f"  MIG 1g.10gb Device 0: (UUID: MIG-a)\n{HEAD}")] == [()]


def test_a_card_that_is_listed_twice_is_one():
    part = "  MIG 1g.10gb Device 0: (UUID: MIG-a)\n"
    (card,) = parse(HEAD + part + part + HEAD)
    assert [each.uuid for each in card.instances] == ["MIG-a"]


@pytest.mark.parametrize("text", ["", "No devices found.\n", "GPU 0: NVIDIA L4 (UUID: GPU-0", "GPU 0: Unknown Error\n"])
def test_what_lists_no_card(text):
    assert parse(text) == ()


def test_links_are_up_or_down():
    told = parse_links(f"{HEAD}\t Link 0: 26.562 GB/s\n\t Link 1: <inactive>\n\t Link 3: 53.125 GB/s\n")
    assert [(link.number, link.active, link.errors) for link in told[uuid(0)]] == [
        (0, True, None),
        (1, False, None),
        (3, True, None),
    ]


def test_errors_belong_to_a_link():
    errors = "".join(f"\t Link 0: {kind} Errors: {n}\n" for n, kind in enumerate(("Replay", "Recovery", "CRC FLIT")))
    (link,) = parse_links(f"{HEAD}\t Link 0: 25 GB/s\n", HEAD + errors)[uuid(0)]
    assert link.errors == {"replay": 0, "recovery": 1, "crc": 2}


def test_other_counters_are_no_links():
    """Those of Blackwell, and an answer to another question."""
    counters = (
        f"{HEAD}\t Link 0: Malformed packet Errors: 0\n\t Link 0: FEC Errors - 1: 7\n\t Link 0: Effective BER: 0\n"
    )
    (link,) = parse_links(f"{HEAD}\t Link 0: 53.125 GB/s\n", counters)[uuid(0)]
    assert link.errors is None
    assert parse_links(counters) == {}
