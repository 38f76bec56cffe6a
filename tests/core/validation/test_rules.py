"""Every rule that a declared model must keep, by the place and code of its problem."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.core.units import GIB, Bytes, ModelName
from llmgw.core.validation import validate, validate_catalog
from llmgw.core.wanted import Model, Profile, Source
from tests.builders import a_gpu_profile, a_model, a_profile

MIG = "a100-80g-mig-3g.40gb"


def found(model, others=()):
    problems = validate(model, others)
    assert all(one.message and one.cure for one in problems)
    return [(one.field, one.code) for one in problems]


def with_profile(**changes):
    return a_model(profiles=[replace(a_profile(), **changes)])


def test_a_plain_model_is_fine():
    assert found(a_model()) == []
    assert found(a_model(profiles=[a_profile(), a_gpu_profile(devices=8, pipeline_parallel=8)])) == []


@pytest.mark.parametrize("name", ["a", "A.b_c-1", "x" * 63])
def test_names(name):
    assert found(a_model(name, aliases=(f"{name[:60]}-2",))) == []


@pytest.mark.parametrize("name", ["", "-a", ".a", "a b", "a/b", "ä", "a\n", "x" * 64, "../a"])
def test_names_that_cannot_be_served(name):
    assert found(a_model(name)) == [("name", "name.form")]
    assert found(a_model(aliases=(name,))) == [("aliases[0]", "name.form")]


@pytest.mark.parametrize(
    ("model", "others", "problem"),
    [
        (a_model("a"), ["a"], ("name", "name.taken")),
        (a_model("a", aliases=("b", "c")), ["c"], ("aliases[1]", "name.taken")),
        (a_model("a", aliases=("a",)), [], ("aliases[0]", "name.twice")),
        (a_model("a", aliases=("b", "b")), [], ("aliases[1]", "name.twice")),
    ],
)
def test_a_name_leads_to_one_model(model, others, problem):
    assert found(model, others) == [problem]


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        (a_model(replicas=-1), ("replicas", "number.range")),
        (a_model(replicas=1001), ("replicas", "number.range")),
        (a_model(priority=10**9), ("priority", "number.range")),
        (a_model(aliases=tuple(f"a{n}" for n in range(51))), ("aliases", "number.range")),
        (a_model(labels={"": "x"}), ("labels.", "label.form")),
        (a_model(labels={"zone": "a b"}), ("labels.zone", "label.form")),
        (a_model(uri="http://x"), ("source.uri", "source.form")),
        (replace(a_model(), profiles=()), ("profiles", "profiles.none")),
        (a_model(profiles=[a_profile(f"p{n}") for n in range(21)]), ("profiles", "number.range")),
    ],
)
def test_what_is_wrong_with_a_model(model, problem):
    assert found(model) == [problem]


def test_a_part_of_a_card_with_media_engines_is_a_class():
    assert found(with_profile(device_classes=("h100-80g-mig-1g.10gb+me",))) == []


def test_profiles_are_told_apart_by_name():
    model = a_model(profiles=[a_profile("p"), a_gpu_profile("p")])
    assert found(model) == [("profiles[0].name", "profile.twice"), ("profiles[1].name", "profile.twice")]


@pytest.mark.parametrize(
    ("changes", "problems"),
    [
        ({"name": "a b"}, [("name", "name.form")]),
        ({"engine": "vlm"}, [("engine", "engine.unknown")]),
        (
            {"quantization": "Q4 K"},
            [("quantization", "quantization.form"), ("quantization", "quantization.in-weights")],
        ),
        ({"device_classes": ()}, [("device_classes", "class.none")]),
        ({"device_classes": ("H100",)}, [("device_classes[0]", "class.form")]),
        ({"device_classes": ("h100-80g", "h100-80g")}, [("device_classes[1]", "class.twice")]),
        ({"context_length": 0}, [("context_length", "number.range")]),
        ({"context_length": 2**40}, [("context_length", "number.range")]),
        ({"memory": Bytes(0)}, [("memory", "memory.range")]),
        ({"memory": Bytes(5000 * GIB)}, [("memory", "memory.range")]),
        ({"devices": 0}, [("devices", "number.range")]),
        ({"arguments": ("",)}, [("arguments[0]", "argument.form")]),
        ({"arguments": ("a\0b",)}, [("arguments[0]", "argument.form")]),
        ({"arguments": ("x" * 5000,)}, [("arguments[0]", "argument.form")]),
        ({"arguments": ("x",) * 201}, [("arguments", "number.range")]),
        ({"arguments": ("--mlock", "--port=1")}, [("arguments[1]", "argument.owned")]),
    ],
)
def test_what_is_wrong_with_a_profile(changes, problems):
    assert found(with_profile(**changes)) == [(f"profiles[0].{field}", code) for field, code in problems]


class TestArithmetic:
    def on_gpus(self, **changes):
        return found(with_profile(device_classes=("h100-80g",), **changes))

    def test_tensor_times_pipeline_is_devices(self):
        assert self.on_gpus(devices=8, pipeline_parallel=8) == []
        assert self.on_gpus(devices=8, pipeline_parallel=4) == [("profiles[0].devices", "parallel.product")]

    def test_the_numbers_are_told(self):
        (problem,) = validate(with_profile(device_classes=("h100-80g",), devices=8, pipeline_parallel=4))
        assert problem.message == "tensor_parallel 1 × pipeline_parallel 4 is 4, but devices is 8"
        assert problem.cure == "set devices to 4, or change the split"

    def test_nodes_share_devices_evenly_and_need_a_fabric(self):
        assert self.on_gpus(devices=4, pipeline_parallel=4, nodes=3) == [
            ("profiles[0].nodes", "parallel.nodes"),
            ("profiles[0].nodes", "engine.one-node"),
        ]

    def test_a_cpu_is_used_by_itself(self):
        assert found(with_profile(devices=2, pipeline_parallel=2)) == [
            ("profiles[0].devices", "cpu.alone"),
            ("profiles[0].pipeline_parallel", "cpu.alone"),
        ]

    def test_what_the_engine_does_not_do_is_refused(self):
        assert self.on_gpus(devices=2, tensor_parallel=2) == [("profiles[0].tensor_parallel", "parallel.layers")]

    def test_a_mig_instance_is_used_by_itself(self):
        classes = ("h100-80g", MIG)
        assert found(with_profile(device_classes=classes)) == []
        assert found(with_profile(device_classes=classes, devices=2, pipeline_parallel=2)) == [
            ("profiles[0].devices", "mig.alone"),
            ("profiles[0].pipeline_parallel", "mig.alone"),
        ]


def test_a_catalog_s_problems_have_their_places():
    models = [a_model("a", aliases=("b",)), a_model("b", replicas=-1), a_model("a")]
    assert [(one.field, one.code) for one in validate_catalog(models)] == [
        ("models[1].name", "name.taken"),
        ("models[1].replicas", "number.range"),
        ("models[2].name", "name.taken"),
    ]


numbers = st.integers(-(2**70), 2**70)
texts = st.text(max_size=80)
profiles = st.builds(
    Profile,
    name=texts,
    engine=st.sampled_from(["llamacpp", "vllm", ""]) | texts,
    device_classes=st.lists(st.sampled_from(["cpu", MIG, "h100-80g"]) | texts, max_size=3).map(tuple),
    devices=numbers,
    tensor_parallel=numbers,
    pipeline_parallel=numbers,
    nodes=numbers,
    quantization=st.none() | texts,
    context_length=st.none() | numbers,
    memory=st.none() | numbers.map(Bytes),
    arguments=st.lists(texts, max_size=3).map(tuple),
)
models = st.builds(
    Model,
    name=texts.map(ModelName),
    source=st.builds(Source, texts, st.none() | numbers.map(Bytes), st.none() | texts),
    profiles=st.lists(profiles, max_size=3).map(tuple),
    replicas=numbers,
    aliases=st.lists(texts, max_size=3).map(tuple),
    priority=numbers,
    labels=st.dictionaries(texts, texts, max_size=3),
)


@given(models, st.lists(texts, max_size=3))
def test_whatever_is_typed_is_answered_in_printable_lines(model, others):
    for problem in validate(model, others):
        assert problem.text().isprintable()
        assert len(problem.text()) < 500
        assert problem.code
        assert problem.cure
