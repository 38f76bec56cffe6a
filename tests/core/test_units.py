"""Amounts and names as people read them."""

import pytest

from llmgw.core.units import GIB, counted, duration, gib, in_a_row, replica_id


def test_bytes_are_said_in_gib():
    assert gib(5 * GIB) == "5.0 GiB"
    assert gib(GIB // 2) == "0.5 GiB"


def test_a_slot_is_named_after_its_model():
    assert replica_id("smollm2", 1) == "smollm2/1"


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(-1, "0 s"), (0.9, "0 s"), (119, "119 s"), (240, "4 min"), (3 * 3600 + 5, "3 h"), (2 * 86400, "2 d")],
)
def test_a_duration_is_said_in_its_largest_unit(seconds, said):
    assert duration(seconds) == said


def test_one_is_not_said_as_many():
    assert [counted(many, "key") for many in (0, 1, 2)] == ["0 keys", "1 key", "2 keys"]
    assert [in_a_row(many) for many in (1, 3)] == ["once", "3 times in a row"]
