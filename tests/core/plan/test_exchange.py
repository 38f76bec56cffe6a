"""A start of the same pass gives way where it has another place."""

from dataclasses import replace

from llmgw.core.plan import plan
from llmgw.core.plan.actions import Start
from tests.builders import H100, NOW, a_gpu, a_gpu_profile, a_model, a_node, a_replica, a_snapshot

L40S = "l40s-45g"


def either(name="either", **more):
    """A model that takes an H100 first, and an L40S as well."""
    return a_model(name, profiles=[replace(a_gpu_profile(), device_classes=(H100, L40S))], **more)


def strict(name="strict", **more):
    """One that takes nothing but an H100, by two profiles so that it comes after the other one."""
    profile = replace(a_gpu_profile(), device_classes=(H100, "h200-141g", "b200-180g"))
    return a_model(name, profiles=[profile], **more)


def planned(*models, nodes=None, replicas=()):
    nodes = nodes or [a_node("n1", devices=[a_gpu(0)]), a_node("n2", devices=[a_gpu(0, L40S, 45)])]
    found = plan(a_snapshot(nodes=nodes, models=models, replicas=replicas), NOW)
    starts = {one.replica: [part.node for part in one.shards] for one in found.actions if isinstance(one, Start)}
    return starts, [refused.replica for refused in found.refusals]


def test_who_has_a_choice_makes_room_for_who_has_none():
    assert planned(either(), strict()) == ({"either/1": ["n2"], "strict/1": ["n1"]}, [])


def test_a_higher_priority_keeps_what_it_prefers():
    assert planned(either(priority=1), strict()) == ({"either/1": ["n1"]}, ["strict/1"])


def test_what_runs_already_is_not_moved():
    running = a_replica(either(), node="n1", devices=("GPU-0",))
    assert planned(either(), strict(), replicas=[running]) == ({}, ["strict/1"])


def test_without_another_place_nothing_changes():
    assert planned(either(), strict(), nodes=[a_node("n1", devices=[a_gpu(0)])]) == (
        {"either/1": ["n1"]},
        ["strict/1"],
    )


def test_by_another_profile_as_well_as_by_another_class():
    two = replace(either(), profiles=(a_gpu_profile("h100"), a_gpu_profile("l40s", device_class=L40S)))
    found = plan(
        a_snapshot(
            nodes=[a_node("n1", devices=[a_gpu(0)]), a_node("n2", devices=[a_gpu(0, L40S, 45)])],
            models=[two, strict()],
        ),
        NOW,
    )
    moved = next(one for one in found.actions if isinstance(one, Start) and one.model == "either")
    assert (moved.profile, moved.fingerprint) == ("l40s", two.fingerprint(two.profiles[1]))
