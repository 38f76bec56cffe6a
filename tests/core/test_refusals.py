"""Every no: its words, its numbers, its cure, and the shape in which it is stored."""

import json

import pytest

from llmgw.core import refusals
from llmgw.core.refusals import EASIEST_FIRST, REFUSALS, Event, Refusal, hardness, to_json
from llmgw.core.units import GIB, Bytes, NodeName

N1 = NodeName("n1")
SAID = {
    refusals.NoNodes(): "no node has joined",
    refusals.NodeNotJoined(N1): "has not reported its inventory yet",
    refusals.NodeUnreachable(N1): "has missed its heartbeats",
    refusals.NodeLost(N1): "has been silent too long and is given up",
    refusals.NodeCordoned(N1): "is cordoned",
    refusals.EngineMissing("vllm", ("llamacpp", "sglang")): "needs engine vllm, has llamacpp, sglang",
    refusals.EngineMissing("vllm", ()): "needs engine vllm, has none",
    refusals.LabelsMissing(("zone=a", "tier=1")): "lacks the labels zone=a, tier=1",
    refusals.DiskShort(Bytes(21 * GIB), Bytes(3 * GIB)): "needs 21.0 GiB of disk for the weights, 3.0 GiB free",
    refusals.ClassMismatch(("h100-80g", "l40s-45g"), ("cpu",)): "wants class h100-80g or l40s-45g, the node has cpu",
    refusals.ClassMismatch(("cpu",), ()): "wants class cpu, the node has no devices",
    refusals.DeviceUnhealthy("GPU-1", "Xid 79"): "device GPU-1 is unhealthy: Xid 79",
    refusals.DeviceUnhealthy("GPU-1", "2 errors", "device.unhealthy.ecc", "3"): (
        "device 3 (GPU-1) is unhealthy: device.unhealthy.ecc: 2 errors"
    ),
    refusals.MemoryUnknown(("weights", "cache")): (
        "how much memory it needs is not known: weights and cache cannot be worked out"
    ),
    refusals.CapabilityShort("GPU-1", "8.9", "8.0", "fp8"): "device GPU-1 has compute capability 8.0, fp8 needs 8.9",
    refusals.MemoryShort("GPU-1", Bytes(100 * GIB), Bytes(80 * GIB)): (
        "device GPU-1 needs 100.0 GiB of memory, has 80.0 GiB"
    ),
    refusals.DeviceClaimed("cpu", 2, ("a/1", "b/1")): "device cpu is taken (2 of 2) by a/1, b/1",
    refusals.DevicesShort(4, 3): "needs 4 devices together, 3 free",
    refusals.FabricNone(2): "a replica over 2 nodes needs a fabric, the node is attached to none",
    refusals.FabricUnusable(("a", "b"), ("port.down", "fabric.identity"), ("no light", "two masters")): (
        "fabric a cannot be used: port.down: no light; fabric b cannot be used: fabric.identity: two masters"
    ),
    refusals.FabricOther("compute", ("storage",)): "wants fabric compute, the node is on storage",
    refusals.FabricShort("compute", "sm:0x1", 4, 3): (
        "needs 4 nodes together, 3 on compute (sm:0x1) could take a part now"
    ),
    refusals.FabricIdentity("compute", "sm:0x1", ("sm:0x2", "")): (
        "its fabric compute is sm:0x1, on other nodes that name is sm:0x2, unknown"
    ),
    refusals.RailsApart("compute", 2, 1): "needs 1 rail of compute free on 2 nodes alike, other ones are free on each",
    refusals.WaitingForRoom(("low/1", "low/2")): "waits until low/1, low/2 has gone, then takes its place",
    refusals.WaitingForRetry(3, 3.6): "failed 3 times in a row, next start in 4 s",
    refusals.WaitingForRollout(2): (
        "waits for its turn: 2 from before the edit still up, and they are replaced one by one"
    ),
}


def test_all_of_them_are_here():
    assert {type(no) for no in SAID} == set(REFUSALS)
    assert len({kind.code for kind in REFUSALS}) == len(REFUSALS)


def test_each_has_its_rank_among_those_that_are_harder_to_cure():
    assert sorted(kind.code for kind in EASIEST_FIRST) == sorted(kind.code for kind in REFUSALS)
    assert (
        hardness("device.claimed") < hardness("class.memory") < hardness("node.lost") < hardness("of.a-later-version")
    )


@pytest.mark.parametrize("no", SAID, ids=lambda no: no.code)
def test_it_says_its_numbers_and_a_cure(no):
    assert isinstance(no, Refusal)
    assert no.text() == SAID[no]
    assert no.cure()
    assert no.cured_by
    assert no.cured_by <= set(Event)


@pytest.mark.parametrize("no", SAID, ids=lambda no: no.code)
def test_it_is_stored_as_it_is_printed(no):
    stored = to_json(no)
    assert list(stored) == ["code", "text", "cure", "facts"]
    assert json.loads(json.dumps(stored)) == stored
    assert set(stored["facts"]) == set(no.__slots__)
