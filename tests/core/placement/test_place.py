"""Which devices a replica gets, and every reason why it gets none."""

from dataclasses import replace

import msgspec
import pytest

from llmgw.core.estimates.architecture import Architecture, Attention, Facts
from llmgw.core.hardware.fabrics import Attachment
from llmgw.core.placement import Fleet, Placement, Refusals, place
from llmgw.core.refusals import (
    CapabilityShort,
    ClassMismatch,
    DeviceClaimed,
    DevicesShort,
    DeviceUnhealthy,
    DiskShort,
    EngineMissing,
    FabricNone,
    FabricShort,
    FabricUnusable,
    LabelsMissing,
    MemoryShort,
    MemoryUnknown,
    NodeCordoned,
    NodeLost,
    NodeNotJoined,
    NodeUnreachable,
)
from llmgw.core.units import GIB, Bytes, NodeName
from llmgw.core.wanted import Demand
from llmgw.core.world import NodeState, State
from tests.builders import (
    a_cpu,
    a_gpu,
    a_gpu_profile,
    a_model,
    a_node,
    a_profile,
    a_replica,
    a_snapshot,
    a_stray,
)


def placed(profile=None, *, model=None, **fleet):
    """Place one replica; the answer is `(node, devices)`, or the reasons by node."""
    model = model or a_model(profiles=[profile or a_profile()])
    found = place(a_snapshot(**fleet), Demand(model, model.profiles[0]))
    if isinstance(found, Placement):
        ((node, devices, _),) = found.parts
        return node, devices
    assert isinstance(found, Refusals)
    assert {no.profile for no in found.refused} == {model.profiles[0].name}
    return [(no.node, no.refusal) for no in found.refused]


class TestChoice:
    def test_the_least_loaded_cpu_is_taken(self):
        other = a_model("other")
        replicas = [a_replica(other, 1, node="n1"), a_replica(other, 2, node="n3")]
        assert placed(nodes=[a_node("n1"), a_node("n2"), a_node("n3")], replicas=replicas) == ("n2", ("cpu",))

    def test_of_equals_the_first_by_name(self):
        assert placed(nodes=[a_node("n2"), a_node("n1")]) == ("n1", ("cpu",))

    def test_gpus_are_packed(self):
        other = a_model("other", profiles=[a_gpu_profile()])
        nodes = [a_node("n1", gpus=4), a_node("n2", gpus=4), a_node("n3", gpus=2)]
        replicas = [a_replica(other, 1, node="n2", devices=("GPU-0",))]
        assert placed(a_gpu_profile(devices=2), nodes=nodes, replicas=replicas) == ("n3", ("GPU-0", "GPU-1"))
        assert placed(a_gpu_profile(devices=3), nodes=nodes, replicas=replicas) == ("n2", ("GPU-1", "GPU-2", "GPU-3"))
        assert placed(a_gpu_profile(devices=4), nodes=nodes, replicas=replicas)[0] == "n1"

    def test_classes_come_in_the_profile_s_order(self):
        node = a_node(devices=[a_gpu(0, "l40s-45g", 45), a_gpu(1)])
        wanted = replace(a_gpu_profile(), device_classes=("h100-80g", "l40s-45g"))
        assert placed(wanted, nodes=[node]) == ("n1", ("GPU-1",))

    def test_classes_are_not_mixed(self):
        node = a_node(devices=[a_gpu(0, "l40s-45g", 45), a_gpu(1)])
        wanted = replace(a_gpu_profile(devices=2), device_classes=("h100-80g", "l40s-45g"))
        assert placed(wanted, nodes=[node]) == [("n1", DevicesShort(2, 1))]

    def test_a_tighter_fit_without_enough_memory_is_passed_over(self):
        nodes = [a_node("n1", devices=[a_gpu(0, gib=40)]), a_node("n2", gpus=8)]
        assert placed(a_gpu_profile(memory=Bytes(60 * GIB)), nodes=nodes)[0] == "n2"

    def test_a_node_that_may_not_is_passed_over(self):
        nodes = [a_node("n1", cordoned=True), a_node("n2", engines=()), a_node("n3")]
        assert placed(nodes=nodes)[0] == "n3"

    @pytest.mark.parametrize("state", [State.STOPPED, State.FAILED, State.LOST])
    def test_what_has_ended_holds_nothing(self, state):
        other = a_replica(a_model("other"), state=state)
        assert placed(nodes=[a_node(slots=1)], replicas=[other]) == ("n1", ("cpu",))


class TestRefusal:
    @pytest.mark.parametrize(
        ("state", "no"),
        [
            (NodeState.JOINING, NodeNotJoined(NodeName("n1"))),
            (NodeState.UNREACHABLE, NodeUnreachable(NodeName("n1"))),
            (NodeState.LOST, NodeLost(NodeName("n1"))),
        ],
    )
    def test_a_node_that_is_not_heard(self, state, no):
        assert placed(nodes=[a_node(state=state)]) == [("n1", no)]

    def test_all_that_speaks_against_a_node_is_said(self):
        node = a_node(cordoned=True, engines=("vllm",), labels={"zone": "b"})
        model = a_model(labels={"zone": "a", "tier": "1"})
        assert placed(model=model, nodes=[node]) == [
            ("n1", NodeCordoned(NodeName("n1"))),
            ("n1", EngineMissing("llamacpp", ("vllm",))),
            ("n1", LabelsMissing(("tier=1", "zone=a"))),
        ]

    def test_every_node_is_answered_for(self):
        nodes = [a_node("n2", cordoned=True), a_node("n1", engines=())]
        assert [node for node, _ in placed(nodes=nodes)] == ["n1", "n2"]

    def test_no_device_of_the_class(self):
        assert placed(a_gpu_profile(), nodes=[a_node()]) == [("n1", ClassMismatch(("h100-80g",), ("cpu",)))]

    def test_each_device_has_its_own_reason(self):
        node = a_node(devices=[a_cpu(), a_gpu(0, unhealthy="Xid 79"), a_gpu(1, gib=40), a_gpu(2), a_gpu(3)])
        other = a_replica(a_model("other"), devices=("GPU-2",))
        wanted = a_gpu_profile(devices=2, memory=Bytes(60 * GIB))
        assert placed(wanted, nodes=[node], replicas=[other]) == [
            ("n1", DeviceUnhealthy("GPU-0", "Xid 79")),
            ("n1", MemoryShort("GPU-1", Bytes(60 * GIB), Bytes(40 * GIB))),
            ("n1", DeviceClaimed("GPU-2", 1, ("other/1",))),
            ("n1", DevicesShort(2, 1)),
        ]

    def test_all_slots_taken_names_who_holds_them(self):
        replicas = [a_replica(a_model("other"), state=State.STOPPING)]
        found = placed(nodes=[a_node(slots=2)], replicas=replicas, strays=[a_stray()])
        assert found == [("n1", DeviceClaimed("cpu", 2, ("launch-x", "other/1")))]

    def test_several_nodes_need_a_fabric(self):
        wanted = a_gpu_profile(devices=2, nodes=2)
        assert placed(wanted, nodes=[a_node(gpus=2)]) == [("n1", FabricNone(2))]

    def test_a_fabric_that_carries_nothing_is_refused_with_what_was_found_on_the_node(self):
        dark = Attachment(name="compute", unusable="no port has light", unusable_code="fabric.no-port")
        wanted = a_gpu_profile(devices=2, nodes=2)
        said = FabricUnusable(("compute",), ("fabric.no-port",), ("no port has light",))
        assert placed(wanted, nodes=[a_node(gpus=2, fabrics=(dark,))]) == [("n1", said)]
        lit = Attachment(name="storage")
        assert placed(wanted, nodes=[a_node(gpus=2, fabrics=(dark, lit))]) == [("n1", FabricShort("storage", "", 2, 1))]

    def test_what_was_found_on_a_device_is_told_with_its_code(self):
        sick = msgspec.structs.replace(a_gpu(0, unhealthy="2 errors"), unhealthy_code="device.unhealthy.ecc", label="0")
        said = DeviceUnhealthy("GPU-0", "2 errors", "device.unhealthy.ecc", "0")
        assert placed(a_gpu_profile(), nodes=[a_node(devices=[sick])]) == [("n1", said)]
        assert placed(a_gpu_profile(), nodes=[a_node(devices=[a_gpu(0)])]) == ("n1", ("GPU-0",))


class TestDisk:
    def on(self, free, *, uri="hf://a/b/c.gguf", gib=10, replicas=()):
        node = a_node(disk_free=None if free is None else Bytes(int(free * GIB)))
        return placed(model=a_model(uri=uri, gib=gib), nodes=[node], replicas=replicas)

    def test_weights_with_a_margin_must_fit(self):
        assert self.on(11) == ("n1", ("cpu",))
        assert self.on(10) == [("n1", DiskShort(Bytes(10 * GIB + GIB // 2), Bytes(10 * GIB)))]

    def test_what_is_not_known_is_not_held_against_a_node(self):
        assert self.on(None) == ("n1", ("cpu",))
        assert self.on(1, gib=None) == ("n1", ("cpu",))

    def test_weights_that_are_used_in_place_need_no_disk(self):
        assert self.on(1, uri="file:///weights.gguf") == ("n1", ("cpu",))

    def test_weights_that_are_there_need_no_more(self):
        model = a_model(uri="hf://a/b/c.gguf", gib=10)
        assert self.on(1, replicas=[a_replica(model, state=State.FAILED)]) == ("n1", ("cpu",))


def test_a_fleet_is_kept_up_while_devices_are_handed_out():
    model = a_model(profiles=[a_gpu_profile(devices=2)])
    fleet = Fleet(a_snapshot(nodes=[a_node(gpus=3)]))
    demand = Demand(model, model.profiles[0])
    first = place(fleet, demand)
    assert isinstance(first, Placement)
    node, devices, _ = first.parts[0]
    fleet.claim(node, devices, "smollm2/1", model.name)
    refused = place(fleet, demand)
    assert isinstance(refused, Refusals)
    assert [no.refusal for no in refused.refused][-1] == DevicesShort(2, 1)
    fleet.release(node, devices, "smollm2/1", model.name)
    assert place(fleet, demand) == first


def test_models_that_differ_in_memory_only_are_judged_apart():
    node = a_node(gpus=1)
    small, large = (a_gpu_profile(memory=Bytes(n * GIB)) for n in (1, 100))
    fleet = Fleet(a_snapshot(nodes=[node], replicas=[a_replica(a_model("other"), devices=("GPU-0",))]))
    answers = [place(fleet, Demand(a_model(name), p)) for name, p in (("a", small), ("b", large), ("c", small))]
    codes = [[no.refusal.code for no in found.refused] for found in answers if isinstance(found, Refusals)]
    assert codes == [["device.claimed"], ["class.memory"], ["device.claimed"]]


def test_a_thousand_nodes_are_placed_in_a_blink():
    """Not a measurement: a scan of every node for every replica would take seconds."""
    model = a_model(replicas=2000, profiles=[a_gpu_profile(devices=4)])
    fleet = Fleet(a_snapshot(nodes=[a_node(f"n{n:04}", gpus=8) for n in range(1000)]))
    demand = Demand(replace(model), model.profiles[0])
    looked = 0
    judge = fleet.usable

    def counted(*arguments):
        nonlocal looked
        looked += 1
        return judge(*arguments)

    fleet.usable = counted  # type: ignore[method-assign]
    for n in range(2000):
        found = place(fleet, demand)
        assert isinstance(found, Placement)
        fleet.claim(found.parts[0].node, found.parts[0].devices, f"smollm2/{n}", model.name)
    assert looked == 2000
    assert isinstance(place(fleet, demand), Refusals)


class TestWhatAModelNeeds:
    def test_a_card_is_not_given_on_a_guess(self):
        assert placed(a_gpu_profile(memory=None), nodes=[a_node(gpus=1)]) == [("n1", MemoryUnknown(("weights",)))]

    def test_a_size_is_enough_and_so_is_a_figure(self):
        model = a_model(gib=10, profiles=[a_gpu_profile(memory=None)])
        assert placed(model=model, nodes=[a_node(gpus=1)]) == ("n1", ("GPU-0",))
        assert placed(a_gpu_profile(memory=Bytes(GIB)), nodes=[a_node(gpus=1)]) == ("n1", ("GPU-0",))

    def test_a_cpu_is_shared_by_whoever_fits(self):
        assert placed(a_profile(), nodes=[a_node()]) == ("n1", ("cpu",))

    def test_facts_decide_and_what_they_do_not_tell_is_named(self):
        shape = Architecture(
            layers=32, key_value_heads=8, key_length=128, value_length=128, attention={Attention.FULL: 32}
        )
        vllm = a_gpu_profile(engine="vllm", memory=None, context_length=131072)
        node = a_node(devices=[a_gpu(gib=39)], engines=["vllm"])
        model = replace(a_model(profiles=[vllm]), facts=Facts(shape, Bytes(16 * GIB)))
        (no,) = placed(model=model, nodes=[node])
        # 16 + 16 + 3.5 GiB, and a tenth of the card is not the engine's.
        needed = Bytes(-(-(16 * GIB + 16 * GIB + 7 * GIB // 2) * 100 // 90))
        assert no == ("n1", MemoryShort("GPU-0", needed, Bytes(39 * GIB)))
        model = replace(model, facts=Facts(Architecture(layers=32), Bytes(16 * GIB)))
        assert placed(model=model, nodes=[node]) == [("n1", MemoryUnknown(("cache",)))]

    def test_a_card_that_is_too_old(self):
        old = msgspec.structs.replace(a_gpu(), capability="8.0")
        fp8 = a_gpu_profile(engine="vllm", quantization="fp8")
        node = a_node(devices=[old], engines=["vllm", "llamacpp"])
        assert placed(fp8, nodes=[node]) == [("n1", CapabilityShort("GPU-0", "8.9", "8.0", "fp8"))]
        assert placed(a_gpu_profile(engine="vllm", quantization="awq"), nodes=[node]) == ("n1", ("GPU-0",))
        assert placed(a_gpu_profile(), nodes=[node]) == ("n1", ("GPU-0",))

    def test_a_card_that_does_not_tell_its_capability_is_believed(self):
        fp8 = a_gpu_profile(engine="vllm", quantization="fp8")
        assert placed(fp8, nodes=[a_node(gpus=1, engines=["vllm"])]) == ("n1", ("GPU-0",))
