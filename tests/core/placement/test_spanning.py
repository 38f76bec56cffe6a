"""Replicas over several nodes, and cards that NVLink joins."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from llmgw.core.hardware.fabrics import AttachedPort, Attachment
from llmgw.core.placement import Fleet, Placement, Refusals, place
from llmgw.core.refusals import DevicesShort, FabricIdentity, FabricOther, FabricShort, RailsApart
from llmgw.core.wanted import Demand
from tests.builders import a_gpu, a_gpu_profile, a_model, a_node, a_replica, a_snapshot

HERE, THERE = "sm:0x1", "sm:0x2"


def a_fabric(name="compute", identity=HERE, *, rails=(), **more):
    """An attachment whose ports are near the cards of `rails`, one each."""
    ports = tuple(
        AttachedPort(name=f"mlx5_{rail}:1", usable=True, rail=rail, near_gpus=(gpu,)) for rail, gpu in enumerate(rails)
    )
    return Attachment(name=name, ports=ports, identities=(identity,) if identity else (), **more)


def cards(many, *, nvlink="", domain="", sick=()):
    found = []
    for number in range(many):
        gpu = a_gpu(number, unhealthy="lost" if number in sick else None)
        found.append(msgspec.structs.replace(gpu, index=number, nvlink=nvlink, domain=domain))
    return found


def on(name, *, many=8, fabrics=(), **more):
    told = {key: more.pop(key) for key in ("nvlink", "domain", "sick") if key in more}
    return a_node(name, devices=cards(many, **told), fabrics=tuple(fabrics), **more)


def placed(profile, nodes, replicas=()):
    """Place one replica: its parts, or the reasons by node."""
    model = a_model("big", profiles=[profile])
    found = place(a_snapshot(nodes=nodes, replicas=replicas), Demand(model, profile))
    if isinstance(found, Placement):
        return found.fabric, [(part.node, part.devices, part.rank) for part in found.parts]
    return [(no.node, no.refusal) for no in found.refused]


def two_nodes(devices=16, **more):
    return a_gpu_profile(devices=devices, nodes=2, **more)


EIGHT = tuple(f"GPU-{number}" for number in range(8))


class TestOverAFabric:
    def test_all_shards_are_placed_on_nodes_of_one_fabric(self):
        nodes = [on("n1", fabrics=[a_fabric()]), on("n2"), on("n3", fabrics=[a_fabric()])]
        assert placed(two_nodes(), nodes) == ("compute", [("n1", EIGHT, 0), ("n3", EIGHT, 1)])

    def test_or_none_is(self):
        nodes = [on("n1", fabrics=[a_fabric()]), on("n2", fabrics=[a_fabric()], sick=[7])]
        found = placed(two_nodes(), nodes)
        assert ("n1", FabricShort("compute", HERE, 2, 1)) in found
        assert ("n2", DevicesShort(8, 7)) in found

    def test_a_name_is_not_enough(self):
        nodes = [on("n1", fabrics=[a_fabric()]), on("n2", fabrics=[a_fabric(identity=THERE)])]
        found = placed(two_nodes(), nodes)
        assert ("n1", FabricIdentity("compute", HERE, (THERE,))) in found
        assert ("n2", FabricIdentity("compute", THERE, (HERE,))) in found

    def test_where_no_identity_is_known_the_name_must_do_but_not_beside_a_known_one(self):
        unknown = a_fabric(identity=None)
        assert placed(two_nodes(), [on("n1", fabrics=[unknown]), on("n2", fabrics=[unknown])])[0] == "compute"
        found = placed(two_nodes(), [on("n1", fabrics=[unknown]), on("n2", fabrics=[a_fabric()])])
        assert ("n1", FabricIdentity("compute", "", (HERE,))) in found

    def test_a_profile_may_name_its_fabric(self):
        nodes = [on(name, fabrics=[a_fabric("slow"), a_fabric("fast", THERE)]) for name in ("n1", "n2")]
        assert placed(two_nodes(fabric="fast"), nodes)[0] == "fast"
        assert placed(two_nodes(fabric="none"), nodes)[0] == ("n1", FabricOther("none", ("slow", "fast")))

    def test_an_unusable_fabric_joins_nobody(self):
        dark = a_fabric(unusable="no light", unusable_code="fabric.no-port")
        codes = {no.code for _, no in placed(two_nodes(), [on("n1", fabrics=[dark]), on("n2", fabrics=[dark])])}
        assert codes == {"fabric.unusable"}

    def test_the_tightest_nodes_are_taken_so_that_whole_ones_stay_whole(self):
        fabric = [a_fabric()]
        taken = [a_replica(a_model("small"), n, node=f"n{n}", devices=EIGHT[:4]) for n in (2, 4)]
        nodes = [on(f"n{number}", fabrics=fabric) for number in range(1, 5)]
        assert [node for node, _, _ in placed(two_nodes(8), nodes, taken)[1]] == ["n2", "n4"]


class TestRails:
    def test_the_same_rails_are_taken_on_each_node(self):
        nodes = [
            on("n1", many=4, fabrics=[a_fabric(rails=EIGHT[:4])], sick=[0]),
            on("n2", many=4, fabrics=[a_fabric(rails=tuple(reversed(EIGHT[:4])))], sick=[0]),
        ]
        # On n2 card 0 is on rail 3: what both have free are rails 1 and 2.
        assert placed(two_nodes(4), nodes)[1] == [("n1", ("GPU-1", "GPU-2"), 0), ("n2", ("GPU-2", "GPU-1"), 1)]

    def test_without_ports_nearby_a_cards_number_is_its_rail(self):
        nodes = [on("n1", many=4, fabrics=[a_fabric()], sick=[0]), on("n2", many=4, fabrics=[a_fabric()], sick=[1])]
        assert [devices for _, devices, _ in placed(two_nodes(4), nodes)[1]] == [("GPU-2", "GPU-3")] * 2

    def test_rails_that_differ_are_taken_only_where_they_reach_each_other(self):
        halves = [on("n1", many=2, fabrics=[a_fabric()], sick=[0]), on("n2", many=2, fabrics=[a_fabric()], sick=[1])]
        assert [devices for _, devices, _ in placed(two_nodes(2), halves)[1]] == [("GPU-1",), ("GPU-0",)]
        only = a_fabric(rail_only=True)
        apart = [on("n1", many=2, fabrics=[only], sick=[0]), on("n2", many=2, fabrics=[only], sick=[1])]
        assert ("n1", RailsApart("compute", 2, 1)) in placed(two_nodes(2), apart)


class TestNvLink:
    def test_a_domain_over_several_nodes_comes_before_a_fabric(self):
        fabric = [a_fabric()]
        nodes = [
            on("n1", many=4, domain="rack-a.1", fabrics=fabric),
            on("n2", many=4, domain="rack-b.1", fabrics=fabric),
            on("n3", many=4, domain="rack-a.1", fabrics=fabric),
        ]
        assert placed(two_nodes(8), nodes) == ("", [("n1", EIGHT[:4], 0), ("n3", EIGHT[:4], 1)])

    def test_domains_that_are_too_small_are_left_for_the_fabric(self):
        nodes = [on(f"n{n}", many=4, domain=f"rack-{n}.1", fabrics=[a_fabric()]) for n in (1, 2)]
        assert placed(two_nodes(8), nodes)[0] == "compute"

    def test_cards_of_one_group_stay_together(self):
        pairs = [msgspec.structs.replace(gpu, nvlink=f"pair-{n // 2}") for n, gpu in enumerate(cards(4, sick=[1]))]
        assert placed(a_gpu_profile(devices=2), [a_node(devices=pairs)])[1] == [("n1", ("GPU-2", "GPU-3"), 0)]

    def test_a_single_card_is_taken_from_the_smallest_group(self):
        pairs = [msgspec.structs.replace(gpu, nvlink=f"pair-{n // 2}") for n, gpu in enumerate(cards(4, sick=[2]))]
        assert placed(a_gpu_profile(), [a_node(devices=pairs)])[1] == [("n1", ("GPU-3",), 0)]

    def test_a_node_where_nvlink_joins_them_comes_before_a_tighter_one(self):
        pairs = [msgspec.structs.replace(gpu, nvlink=f"pair-{n // 2}") for n, gpu in enumerate(cards(4))]
        broken = [msgspec.structs.replace(gpu, unhealthy="lost") if n in (1, 2) else gpu for n, gpu in enumerate(pairs)]
        nodes = [a_node("n1", devices=broken), a_node("n2", devices=pairs)]
        assert placed(a_gpu_profile(devices=2), nodes)[1][0][0] == "n2"
        assert placed(a_gpu_profile(devices=2), nodes[:1])[1] == [("n1", ("GPU-0", "GPU-3"), 0)]


class TestSpread:
    def test_of_nodes_that_are_as_good_one_without_a_replica_of_the_model_is_taken(self):
        profile = a_gpu_profile()
        model = a_model("big", profiles=[profile])
        taken = [
            a_replica(model, node="n1", devices=("GPU-0",)),
            a_replica(a_model("x"), node="n2", devices=("GPU-0",)),
        ]
        nodes = [on("n1", many=2), on("n2", many=2)]
        assert placed(profile, nodes, taken)[1][0][0] == "n2"
        assert placed(profile, [*nodes, on("n3", many=2)], taken)[1][0][0] == "n2", "a whole node stays whole"


fleets = st.lists(
    st.tuples(
        st.integers(1, 4),
        st.sets(st.integers(0, 3)),
        st.sampled_from([None, HERE, THERE, ""]),
        st.sampled_from(["", "rack-a.1", "rack-b.1"]),
        st.booleans(),
    ),
    max_size=8,
)


@given(fleets, st.integers(1, 4), st.integers(1, 4), st.booleans())
def test_a_replica_is_placed_whole_on_nodes_that_reach_each_other_or_every_node_says_why_not(
    told, per_node, many, reversed_
):
    nodes = [
        on(
            f"n{number}",
            many=devices,
            sick=sick,
            domain=domain,
            fabrics=() if identity is None else (a_fabric(identity=identity, rail_only=rail_only),),
        )
        for number, (devices, sick, identity, domain, rail_only) in enumerate(told)
    ]
    profile = a_gpu_profile(devices=per_node * many, nodes=many)
    demand = Demand(a_model("big", profiles=[profile]), profile)
    fleet = Fleet(a_snapshot(nodes=nodes[::-1] if reversed_ else nodes))
    found = place(fleet, demand)
    assert found == place(a_snapshot(nodes=nodes), demand), "the order in which nodes are told makes no difference"
    if isinstance(found, Refusals):
        assert {no.node for no in found.refused} == ({node.name for node in nodes} or {None})
        return
    assert [part.rank for part in found.parts] == list(range(many))
    assert len({part.node for part in found.parts}) == many
    on_it = [fleet.by_name[part.node] for part in found.parts]
    for part, node in zip(found.parts, on_it, strict=True):
        healthy = {device.id for device in node.devices if not device.unhealthy}
        assert len(set(part.devices) & healthy) == per_node == len(part.devices)
    if many > 1:
        names = [{(each.name, each.identities) for each in node.fabrics} for node in on_it]
        domains = [{device.domain for device in node.devices} - {""} for node in on_it]
        assert set.intersection(*names) if found.fabric else set.intersection(*domains)
