"""How much counters have risen between two looks, and when that is not known."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.core.hardware.network import Port
from workers.discovery.infiniband.rising import TELLING, Rising


def a_port(hca="mlx5_0", guid="0x1", **counters):
    return Port(hca=hca, node_guid=guid, counters=counters)


def looked(*ports, seconds=60.0):
    """What is told at the last of several looks at one port."""
    rising = Rising()
    told = [rising.told([port], 1000.0 + number * seconds) for number, port in enumerate(ports)]
    ((last,),) = told[-1:]
    return last.counters_since, last.counters_since_s


def test_at_the_first_look_nothing_has_risen():
    assert looked(a_port(link_downed=3)) == (None, None)


def test_what_has_risen_is_told_of_those_that_matter():
    before = a_port(symbol_error=1, link_downed=3, out_of_sequence=5, port_xmit_data=100, np_cnp_sent=9)
    after = a_port(symbol_error=1, link_downed=5, out_of_sequence=6, port_xmit_data=900, np_cnp_sent=12)
    assert looked(before, after) == ({"symbol_error": 0, "link_downed": 2, "out_of_sequence": 1}, 60.0)


def test_it_is_told_since_the_look_before_and_not_since_the_first():
    assert looked(a_port(link_downed=1), a_port(link_downed=5), a_port(link_downed=6)) == ({"link_downed": 1}, 60.0)


@pytest.mark.parametrize(
    "after",
    [
        a_port(symbol_error=0, link_downed=9, port_xmit_data=200),
        a_port(symbol_error=7, link_downed=9, port_xmit_data=50),
        a_port(guid="0x2", symbol_error=7, link_downed=9, port_xmit_data=200),
    ],
)
def test_after_a_reset_nothing_is_known_until_the_next_look(after):
    before = a_port(symbol_error=5, link_downed=5, port_xmit_data=100)
    assert looked(before, after) == (None, None)
    assert looked(before, after, after)[0] == {"symbol_error": 0, "link_downed": 0}


def test_a_counter_that_was_not_there_before_is_left_out():
    assert looked(a_port(link_downed=1), a_port(link_downed=1, symbol_error=8))[0] == {"link_downed": 0}


def test_looks_at_one_moment_are_not_compared():
    assert looked(a_port(link_downed=1), a_port(link_downed=2), seconds=0.0) == (None, None)


def test_ports_are_kept_apart():
    rising = Rising()
    rising.told([a_port(link_downed=1), a_port("mlx5_1", link_downed=7)], 0.0)
    told = rising.told([a_port("mlx5_1", link_downed=9), a_port(link_downed=1)], 1.0)
    assert [port.counters_since for port in told] == [{"link_downed": 2}, {"link_downed": 0}]


COUNTS = st.dictionaries(st.sampled_from([*sorted(TELLING)[:4], "port_xmit_data", "lifespan"]), st.integers(0, 2**64))


@given(st.lists(COUNTS, min_size=1, max_size=4))
def test_nothing_ever_falls(looks):
    since, seconds = looked(*(a_port(**counts) for counts in looks))
    assert (since is None) is (seconds is None)
    assert all(by >= 0 and name in TELLING for name, by in (since or {}).items())
