"""One address, however it is spelt."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.discovery.pci import canonical


@pytest.mark.parametrize(
    ("spelt", "meant"),
    [
        ("00000000:3B:00.0", "0000:3b:00.0"),
        ("0000:3b:00.0", "0000:3b:00.0"),
        ("PCI:0000:3b:00", "0000:3b:00.0"),
        ("0000:03:00", "0000:03:00.0"),
        ("3b:00.1", "0000:3b:00.1"),
        ("GPU0000:07:00.0", "0000:07:00.0"),
        ("GPU 0000:07:00.0", "0000:07:00.0"),
        ("00000008:01:00.0", "0008:01:00.0"),
        ("00010000:01:00.0", "10000:01:00.0"),
        ("000:BA:80.0", "0000:ba:80.0"),
        ("PCI:0018:01:00", "0018:01:00.0"),
        (" 0000:3B:1F.7\n", "0000:3b:1f.7"),
    ],
)
def test_all_spellings_are_one(spelt, meant):
    assert canonical(spelt) == meant
    assert canonical(meant) == meant


@pytest.mark.parametrize("text", ["", "N/A", "0000:3b", "0000:3b:00.8", "no address", "[N/A]", "::"])
def test_what_is_none_is_none(text):
    assert canonical(text) is None


@given(st.text())
def test_whatever_is_read_is_an_address_or_none(text):
    told = canonical(text)
    assert told is None or canonical(told) == told
