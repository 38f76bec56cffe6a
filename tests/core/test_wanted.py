"""What a model asks for, and when its replicas need a restart."""

from dataclasses import replace

from llmgw.core.units import GIB, Bytes
from llmgw.core.wanted import Demand, Problem
from tests.builders import a_gpu_profile, a_model, a_profile


def only(model):
    return model.fingerprint(model.profiles[0])


def test_what_runs_makes_the_fingerprint():
    model = a_model()
    edited = [
        replace(model, profiles=(replace(model.profiles[0], arguments=("--mlock",)),)),
        replace(model, profiles=(replace(model.profiles[0], context_length=1024),)),
        replace(model, source=replace(model.source, sha256="0" * 64)),
        replace(model, source=replace(model.source, uri="file:///w.gguf")),
    ]
    assert len({only(model), *(only(one) for one in edited)}) == 5


def test_what_needs_no_restart_does_not():
    model = a_model()
    same = replace(model, replicas=5, priority=3, aliases=("chat",), labels={"zone": "a"})
    assert only(same) == only(model)


def test_each_profile_has_its_own():
    model = a_model(profiles=[a_profile(), a_gpu_profile()])
    assert len(model.fingerprints()) == 2


def test_memory_is_estimated_from_the_weights_share():
    model = a_model(gib=40, profiles=[a_gpu_profile(devices=2, memory=None)])
    assert Demand(model, model.profiles[0]).memory == 25 * GIB + 256 * 1024**2


def test_declared_memory_wins_and_nothing_known_asks_for_nothing():
    declared = a_gpu_profile(memory=Bytes(7 * GIB))
    assert Demand(a_model(gib=40), declared).memory == 7 * GIB
    assert Demand(a_model(), a_profile()).memory == 0


def test_only_what_comes_from_a_hub_is_copied():
    assert a_model(uri="hf://a/b/c.gguf").source.copied
    assert not a_model(uri="file:///c.gguf").source.copied


def test_a_problem_is_one_line():
    told = Problem("replicas", "number.range", "replicas is -1", "use 0 to 1000")
    assert told.text() == "replicas: replicas is -1 – use 0 to 1000"
    assert replace(told, field="").text() == "replicas is -1 – use 0 to 1000"
    assert told.to_json()["code"] == "number.range"
