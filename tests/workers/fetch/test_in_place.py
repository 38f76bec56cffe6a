"""Weights that lie on the node already are used where they are."""

import hashlib
import os
import sys

import pytest

from llmgw.core.units import Bytes
from llmgw.core.wanted import Source
from llmgw.core.wire import Progress
from workers.fetch import Fetcher, FetchFailed
from workers.settings import NodeSettings

CONTENT = b"weights" * 1000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def fetcher(tmp_path):
    return Fetcher(NodeSettings(id="n1", state=tmp_path / "state"))


@pytest.fixture
def weights(tmp_path):
    path = tmp_path / "model.gguf"
    path.write_bytes(CONTENT)
    return path


def nobody(progress):
    pass


def test_a_file_is_used_where_it_is(fetcher, weights):
    seen: list[Progress] = []
    assert fetcher.fetch(Source(weights.as_uri()), seen.append) == weights
    assert (seen[-1].done, seen[-1].total) == (len(CONTENT), len(CONTENT))


def test_a_file_in_a_package_is_found_without_importing_the_package(fetcher, tmp_path, monkeypatch):
    package = tmp_path / "some_weights"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('imported')")
    (package / "model.gguf").write_bytes(CONTENT)
    monkeypatch.syspath_prepend(tmp_path)
    found = fetcher.fetch(Source("package://some_weights/model.gguf", sha256=SHA256), nobody)
    assert found == package / "model.gguf"
    assert "some_weights" not in sys.modules


@pytest.mark.parametrize(
    ("uri", "says"),
    [
        ("package://not_installed_anywhere/model.gguf", "install it into the environment of the node's worker"),
        ("package://llmgw/model.gguf", "install the version of llmgw that has it"),
        ("file:///does/not/exist.gguf", "put it there"),
        ("file:///dev/null", "not a regular file"),
        ("file:///proc", "put it there"),
    ],
)
def test_what_is_not_there_is_told_with_its_cure(fetcher, uri, says):
    with pytest.raises(FetchFailed, match=says) as missing:
        fetcher.fetch(Source(uri), nobody)
    assert missing.value.code == "model-missing"


def test_a_package_inside_a_package_is_not_imported_either(fetcher, tmp_path, monkeypatch):
    package = tmp_path / "outer_weights/inner"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").write_text("raise SystemExit('imported')")
    (package / "model.gguf").write_bytes(CONTENT)
    monkeypatch.syspath_prepend(tmp_path)
    assert fetcher.fetch(Source("package://outer_weights.inner/model.gguf"), nobody) == package / "model.gguf"


@pytest.mark.parametrize(
    "uri", ["", "model.gguf", "package://some_weights/../secret", "hf://a/b/../c", "file:///a/../b"]
)
def test_a_source_that_climbs_or_is_none_is_refused_with_the_forms_that_are(fetcher, uri):
    with pytest.raises(FetchFailed, match="package://<import name>/<file>") as refused:
        fetcher.fetch(Source(uri), nobody)
    assert refused.value.code == "model-missing"


def test_other_bytes_than_declared_are_refused(fetcher, weights):
    with pytest.raises(FetchFailed, match="the catalog says " + "0" * 64) as wrong:
        fetcher.fetch(Source(weights.as_uri(), sha256="0" * 64), nobody)
    assert wrong.value.code == "checksum"


def test_another_size_than_declared_is_refused(fetcher, weights):
    with pytest.raises(FetchFailed, match="has 7000 bytes, the catalog says 1") as wrong:
        fetcher.fetch(Source(weights.as_uri(), size=Bytes(1)), nobody)
    assert wrong.value.code == "checksum"


def test_bytes_are_hashed_once(fetcher, weights):
    """The second time, a change that size and time do not show goes unnoticed: proof that nothing was read."""
    source = Source(weights.as_uri(), sha256=SHA256)
    fetcher.fetch(source, nobody)
    before = weights.stat()
    weights.write_bytes(b"W" + CONTENT[1:])
    os.utime(weights, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert fetcher.fetch(source, nobody) == weights


def test_a_changed_file_is_hashed_again(fetcher, weights):
    source = Source(weights.as_uri(), sha256=SHA256)
    fetcher.fetch(source, nobody)
    before = weights.stat()
    weights.write_bytes(b"W" + CONTENT[1:])
    os.utime(weights, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    with pytest.raises(FetchFailed):
        fetcher.fetch(source, nobody)


def test_a_torn_mark_is_no_proof(fetcher, weights, tmp_path):
    source = Source(weights.as_uri(), sha256=SHA256)
    fetcher.fetch(source, nobody)
    for mark in (tmp_path / "state/weights/verified").iterdir():
        mark.write_bytes(b'{"path": ')
    assert fetcher.fetch(source, nobody) == weights
