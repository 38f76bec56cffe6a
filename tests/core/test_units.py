"""Amounts and names as people read them."""

from llmgw.core.units import GIB, gib, replica_id


def test_bytes_are_said_in_gib():
    assert gib(5 * GIB) == "5.0 GiB"
    assert gib(GIB // 2) == "0.5 GiB"


def test_a_slot_is_named_after_its_model():
    assert replica_id("smollm2", 1) == "smollm2/1"
