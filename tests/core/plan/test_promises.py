"""What holds for every plan, whatever the fleet looks like."""

import random
from collections import Counter
from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llmgw.core.lifecycle import HOLDING, LIVE
from llmgw.core.plan import Drain, Start, Stop, plan
from llmgw.core.world import NodeState, State
from tests.builders import (
    NOW,
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
from tests.core.fleet_after import carried_out, settled

LEAVING = {State.DRAINING, State.STOPPING, State.STOPPED}
PROFILES = [
    a_profile(),
    a_gpu_profile(),
    a_gpu_profile("gpu2", devices=2),
    a_gpu_profile("large", memory=100 * 1024**3),
]
broad = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def nodes(draw, name):
    healthy = st.sampled_from([None, None, None, "it fell off the bus"])
    gpus = [a_gpu(n, unhealthy=draw(healthy)) for n in range(draw(st.integers(0, 4)))]
    return a_node(
        name,
        state=draw(st.sampled_from([NodeState.READY] * 4 + list(NodeState))),
        devices=[a_cpu(draw(st.integers(1, 3))), *gpus],
        cordoned=draw(st.sampled_from([False] * 4 + [True])),
        engines=draw(st.sampled_from([("llamacpp",)] * 4 + [()])),
    )


@st.composite
def models(draw, name):
    profiles = draw(st.lists(st.sampled_from(PROFILES), min_size=1, max_size=3, unique=True))
    return a_model(
        name,
        replicas=draw(st.integers(0, 4)),
        profiles=profiles,
        priority=draw(st.integers(-1, 1)),
        labels=draw(st.sampled_from([{}, {}, {}, {"zone": "a"}])),
    )


@st.composite
def replicas(draw, model, ordinal, places):
    """A slot of the model as it is declared, or as it once was; live shards only where a slot is still free."""
    state = draw(st.sampled_from(list(State)))
    if state in HOLDING and not places:
        state = State.FAILED
    node, device = places.pop() if state in HOLDING else ("n1", "cpu")
    return a_replica(
        draw(st.sampled_from([model, replace(model, profiles=(replace(model.profiles[0], context_length=99),))])),
        ordinal,
        state=state,
        node=node,
        devices=(device,),
        failures=draw(st.integers(0, 5)),
        next_try_at=draw(st.sampled_from([None, NOW - 1, NOW + 1])),
    )


@st.composite
def fleets(draw):
    fleet = [draw(nodes(f"n{n}")) for n in range(1, draw(st.integers(0, 4)) + 1)]
    places = [(n.name, d.id) for n in fleet for d in n.devices for _ in range(d.slots)]
    places = draw(st.permutations(places))
    declared = [draw(models(name)) for name in draw(st.sets(st.sampled_from("abc")))]
    once = [*declared, a_model("gone")]
    slots = [
        draw(replicas(model, ordinal, places))
        for model in once
        for ordinal in sorted(draw(st.sets(st.integers(1, 6), max_size=3)))
    ]
    strays = [a_stray(node, f"stray-{i}", (device,)) for i, (node, device) in enumerate(places[:2])]
    return a_snapshot(nodes=fleet, models=declared, replicas=slots, strays=draw(st.sampled_from([strays, []])))


def claims(fleet):
    held = Counter((s.node, d) for r in fleet.replicas for s in r.shards if s.state in HOLDING for d in s.devices)
    return held + Counter((one.node, device) for one in fleet.strays for device in one.devices)


@given(fleets())
@broad
def test_no_device_is_given_more_often_than_it_has_slots(fleet):
    after = claims(carried_out(fleet, plan(fleet, NOW)))
    slots = {(node.name, device.id): device.slots for node in fleet.nodes for device in node.devices}
    assert all(count <= slots[place] for place, count in after.items() if place in slots)


@given(fleets())
@broad
def test_nothing_is_started_where_nothing_may_run(fleet):
    known = {node.name: node for node in fleet.nodes}
    for start in (one for one in plan(fleet, NOW).actions if isinstance(one, Start)):
        for part in start.shards:
            node = known[part.node]
            assert node.state is NodeState.READY
            assert not node.cordoned
            assert "llamacpp" in node.engines
            assert not [d for d in node.devices if d.id in part.devices and d.unhealthy]
            assert len(set(part.devices)) == len(part.devices)


@given(fleets())
@broad
def test_never_more_are_up_than_asked_but_one_while_an_edit_rolls_out(fleet):
    done = plan(fleet, NOW)
    after = carried_out(fleet, done)
    for model in fleet.models:
        started = [one for one in done.actions if isinstance(one, Start) and one.model == model.name]
        up = [one for one in after.replicas if one.model == model.name and one.state in LIVE - LEAVING]
        outdated = [one for one in up if one.fingerprint not in model.fingerprints()]
        if started:
            assert len(up) - len(outdated) <= model.replicas
        assert not started or not outdated or len(up) <= max(model.replicas, len(outdated)) + len(started)


@given(fleets())
@broad
def test_carried_out_and_asked_again_there_is_nothing_left_to_do(fleet):
    done = plan(fleet, NOW)
    again = plan(carried_out(fleet, done), NOW)
    assert again.actions == ()
    assert {one.replica for one in again.refusals} == {one.replica for one in done.refusals}


@given(fleets(), st.randoms(use_true_random=False))
@broad
def test_the_order_of_what_is_seen_changes_nothing(fleet, dice: random.Random):
    shuffled = replace(
        fleet,
        **{
            part: tuple(dice.sample(getattr(fleet, part), len(getattr(fleet, part))))
            for part in ("nodes", "models", "replicas", "strays")
        },
    )
    assert plan(shuffled, NOW) == plan(fleet, NOW)


@given(fleets())
@broad
def test_what_is_only_unreachable_is_left_alone(fleet):
    unheard = {node.name for node in fleet.nodes if node.state is NodeState.UNREACHABLE}
    there = {one.id for one in fleet.replicas if one.state in LIVE and unheard & {s.node for s in one.shards}}
    assert not there & {getattr(one, "replica", None) for one in plan(fleet, NOW).actions}


@given(fleets())
@broad
def test_every_wanted_slot_runs_or_says_why_not(fleet):
    done = plan(fleet, NOW)
    after = carried_out(fleet, done)
    explained = {one.replica for one in done.refusals}
    assert all(one.refusals for one in done.refusals)
    for model in fleet.models:
        slots = [one for one in after.replicas if one.model == model.name and one.state not in LEAVING]
        assert all(one.state in LIVE or one.id in explained for one in slots)


@given(fleets())
@broad
def test_fleets_come_to_rest(fleet):
    """With every node doing what it is told, a handful of passes gets to where nothing is left to do."""
    fleet = replace(fleet, strays=())
    for _ in range(30):
        done = plan(fleet, NOW)
        if not done.actions:
            break
        fleet = settled(carried_out(fleet, done))
    else:
        raise AssertionError(done.text())
    for model in fleet.models:
        serving = [one for one in fleet.replicas if one.model == model.name and one.state is State.READY]
        heard = [one for one in serving if not unreachable(fleet, one)]
        assert len(heard) <= model.replicas


def unreachable(fleet, replica):
    state = {node.name: node.state for node in fleet.nodes}
    return any(state.get(shard.node) is NodeState.UNREACHABLE for shard in replica.shards)


@given(fleets())
@broad
def test_what_serves_goes_only_when_it_is_too_many_or_edited(fleet):
    by_id = {one.id: one for one in fleet.replicas}
    models = {model.name: model for model in fleet.models}
    for one in plan(fleet, NOW).actions:
        if isinstance(one, Drain):
            assert by_id[one.replica].state is State.READY
            model = models.get(by_id[one.replica].model)
            same = [r for r in fleet.replicas if model and r.model == model.name and r.state not in LEAVING]
            assert (
                model is None
                or len(same) > model.replicas
                or by_id[one.replica].fingerprint not in model.fingerprints()
            )
        if isinstance(one, Stop):
            assert by_id[one.replica].state in LIVE - LEAVING - {State.READY}
