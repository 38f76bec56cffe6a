"""Looking ahead: capacity, what fits where, and what would give a replica a place."""

from dataclasses import replace

from llmgw.core.estimates.architecture import Architecture, Attention, Facts
from llmgw.core.placement import Placement, place
from llmgw.core.plan import Plan, plan
from llmgw.core.plan.alternatives import Move, OneMoreNode, Preempt, ShorterContext, alternatives, to_json
from llmgw.core.plan.capacity import Capacity, capacity
from llmgw.core.plan.fits import fits
from llmgw.core.units import GIB, Bytes, NodeName, ReplicaId
from llmgw.core.wanted import Demand
from tests.builders import H100, NOW, a_gpu, a_gpu_profile, a_model, a_node, a_replica, a_snapshot

GPU = ("GPU-0",)
FACTS = Facts(
    Architecture(
        layers=32, heads=32, key_value_heads=8, key_length=128, value_length=128, context=131072, dtype="bfloat16",
        attention={Attention.FULL: 32},
    ),
    Bytes(16 * GIB),
)  # fmt: skip


def on_card(name="big", **more):
    return a_model(name, profiles=[a_gpu_profile(**more.pop("profile", {}))], **more)


class TestCapacity:
    def test_before_and_after(self):
        nodes = [a_node(gpus=3, slots=4), a_node("n2", gpus=1, slots=4, cordoned=True)]
        model = on_card(replicas=2)
        running = [a_replica(on_card("old"), devices=GPU)]
        snapshot = a_snapshot(nodes=nodes, models=[model, on_card("old")], replicas=running)
        cpu, card = capacity(snapshot, plan(snapshot, NOW))
        assert card == Capacity(H100, places=4, unusable=1, taken=1, taken_after=3)
        assert (card.free, card.free_after) == (2, 0)
        assert (cpu.places, cpu.unusable, cpu.free_after) == (8, 4, 4)

    def test_what_is_carried_out_holds_its_devices(self):
        snapshot = a_snapshot(nodes=[a_node(gpus=1)], models=[on_card(replicas=2)])
        found = plan(snapshot, NOW)
        after = found.carried_out(snapshot)
        assert [(one.id, one.shards[0].devices) for one in after.replicas] == [("big/1", GPU)]
        assert not [one for one in plan(after, NOW).actions if one.code == "start"]
        assert capacity(after, Plan())[1].taken == 1


class TestFits:
    def test_now_if_empty_or_never(self):
        model = a_model(
            "big",
            profiles=[
                a_gpu_profile("one"),
                a_gpu_profile("two", devices=2),
                a_gpu_profile("huge", memory=Bytes(99 * GIB)),
            ],
        )
        running = [a_replica(a_model("other"), devices=GPU)]
        one, two, huge = fits(a_snapshot(nodes=[a_node(gpus=2)], models=[model], replicas=running), model)
        assert (one.verdict, one.now, one.empty, one.why) == ("fits now", 1, 2, "")
        assert (two.verdict, two.now, two.empty, two.why) == ("fits if empty", 0, 1, "device.claimed")
        assert (huge.verdict, huge.why) == ("never", "class.memory")

    def test_the_longest_context_is_that_of_the_largest_card(self):
        model = replace(on_card(profile={"engine": "vllm", "memory": None}), facts=FACTS)
        node = a_node(devices=[a_gpu(0, gib=24), a_gpu(1, gib=30)], engines=["vllm"])
        (fit,) = fits(a_snapshot(nodes=[node], models=[model]), model)
        assert fit.longest_context == (27 * GIB - 16 * GIB - 3 * GIB - GIB // 2) // 131072

    def test_what_is_not_known_is_not_told(self):
        (fit,) = fits(a_snapshot(nodes=[a_node(gpus=1)]), on_card(profile={"memory": None}))
        assert (fit.verdict, fit.why, fit.longest_context) == ("never", "weights.unknown-size", None)


class TestAlternatives:
    def of(self, model, *, nodes, replicas=(), others=()):
        return alternatives(a_snapshot(nodes=nodes, models=[model, *others], replicas=replicas), model)

    def test_a_shorter_context(self):
        model = replace(on_card(profile={"engine": "vllm", "memory": None, "context_length": 131072}), facts=FACTS)
        node = a_node(devices=[a_gpu(gib=24)], engines=["vllm"])
        assert self.of(model, nodes=[node]) == (ShorterContext("gpu", 16384, node.name),)
        shorter = replace(model, profiles=(replace(model.profiles[0], context_length=16384),))
        assert isinstance(place(a_snapshot(nodes=[node]), Demand(shorter, shorter.profiles[0])), Placement)

    def test_a_replica_of_lower_priority_gives_way_and_an_equal_one_does_not(self):
        low, equal, model = on_card("low", priority=-1), on_card("equal"), on_card()
        nodes = [a_node("n1", gpus=1), a_node("n2", gpus=1)]
        replicas = [a_replica(equal, node="n1", devices=GPU), a_replica(low, node="n2", devices=GPU)]
        told = self.of(model, nodes=nodes, replicas=replicas, others=[low, equal])
        assert told[0] == Preempt(replicas[1].id, -1, nodes[1].name)

    def test_a_replica_that_has_another_place_moves(self):
        small, model = on_card("small"), on_card(profile={"devices": 2})
        nodes = [a_node("n1", gpus=2), a_node("n2", gpus=1)]
        (move, *_) = self.of(model, nodes=nodes, replicas=[a_replica(small, devices=GPU)], others=[small])
        assert move == Move(ReplicaId("small/1"), nodes[1].name, nodes[0].name)

    def test_one_more_node_of_a_kind_that_is_there(self):
        model, other = on_card(), on_card("other")
        told = self.of(model, nodes=[a_node(gpus=1)], replicas=[a_replica(other, devices=GPU)], others=[other])
        assert told == (OneMoreNode(NodeName("n1"), "gpu"),)
        assert to_json(told[0]) == {
            "code": "node",
            "text": "with one more node like n1, empty, profile gpu fits",
            "like": "n1",
            "profile": "gpu",
        }

    def test_sometimes_nothing_would(self):
        assert self.of(on_card(), nodes=[a_node(gpus=0)]) == ()
