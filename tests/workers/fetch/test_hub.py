"""Weights from a hub: asked for, checked for room, resumed, verified, and kept by commit."""

import hashlib
import threading
from dataclasses import replace

import pytest

from llmgw.core.units import Bytes
from llmgw.core.wanted import Source
from llmgw.core.wire import Progress
from tests.workers.fetch.hub import COMMIT, TOKEN, StandInHub
from workers.fetch import Fetcher, FetchFailed
from workers.settings import NodeSettings

CONTENT = bytes(range(256)) * 4096
SHA256 = hashlib.sha256(CONTENT).hexdigest()
URI = "hf://some-owner/some-repo/q4/model.gguf"
PLENTY = 10**15


@pytest.fixture
def hub():
    with StandInHub(files={"some-owner/some-repo/q4/model.gguf": CONTENT}) as running:
        yield running


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    """The library keeps what it fetched in blocks of 10 MB; tests make do with less."""
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 100_000)


@pytest.fixture
def settings(tmp_path, hub):
    return NodeSettings(id="n1", state=tmp_path, hf_endpoint=hub.url + "/")


@pytest.fixture
def fetcher(settings):
    return Fetcher(settings, lambda folder: PLENTY)


@pytest.fixture
def weights(tmp_path):
    return tmp_path / "weights/hf/some-owner/some-repo"


def nobody(progress):
    pass


def files_below(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_file_is_fetched_into_its_commit(fetcher, weights):
    seen: list[Progress] = []
    path = fetcher.fetch(Source(URI), seen.append)
    assert path == weights / COMMIT / "q4/model.gguf"
    assert path.read_bytes() == CONTENT
    assert files_below(weights) == [f"{COMMIT}/q4/model.gguf", "refs/main"]
    assert {progress.total for progress in seen} == {len(CONTENT)}
    assert [progress.done for progress in seen] == sorted(progress.done for progress in seen)
    assert seen[-1].done == len(CONTENT)


def test_what_is_here_is_not_fetched_again(fetcher, hub):
    fetcher.fetch(Source(URI), nobody)
    fetcher.fetch(Source(URI), nobody)
    assert len(hub.downloads()) == 1


def test_a_commit_that_is_here_needs_no_hub(fetcher, hub):
    uri = URI.replace("some-repo/", f"some-repo@{COMMIT}/")
    fetcher.fetch(Source(uri), nobody)
    hub.asked.clear()
    fetcher.fetch(Source(uri), nobody)
    assert not hub.asked


def test_what_is_here_serves_while_the_hub_is_away(fetcher, hub):
    path = fetcher.fetch(Source(URI), nobody)
    hub.broken = True
    assert fetcher.fetch(Source(URI), nobody) == path


def test_what_is_here_serves_a_node_that_is_offline(fetcher, settings, hub):
    path = fetcher.fetch(Source(URI), nobody)
    hub.asked.clear()
    assert Fetcher(replace(settings, offline=True)).fetch(Source(URI), nobody) == path
    assert not hub.asked


def test_an_offline_node_says_where_to_put_what_it_lacks(settings, hub):
    with pytest.raises(FetchFailed, match=r"offline.*copy it to .*<commit>/q4/model.gguf") as missing:
        Fetcher(replace(settings, offline=True)).fetch(Source(URI), nobody)
    assert missing.value.code == "model-missing"
    assert not hub.asked


def test_a_broken_connection_is_taken_up_where_it_broke(fetcher, hub):
    hub.cut_after = 300_000
    assert fetcher.fetch(Source(URI), nobody).read_bytes() == CONTENT
    assert [asked.range for asked in hub.downloads()] == [None, "bytes=300000-"]


class GivenUp(Exception):
    """What a caller may raise out of a fetch."""


def give_up(progress):
    raise GivenUp


def test_a_fetch_that_was_given_up_goes_on_next_time(fetcher, hub, weights):
    hub.cut_after = 300_000

    def fail(progress):
        hub.broken = True  # so that the first fetch cannot take it up by itself

    with pytest.raises(FetchFailed) as failed:
        fetcher.fetch(Source(URI), fail)
    assert failed.value.code == "fetch-failed"
    assert not (weights / COMMIT / "q4/model.gguf").exists(), "half a file must not look like a model"
    hub.broken = False
    assert fetcher.fetch(Source(URI), nobody).read_bytes() == CONTENT
    assert hub.downloads()[-1].range == "bytes=300000-"


def test_a_caller_may_give_up(fetcher, weights):
    with pytest.raises(GivenUp):
        fetcher.fetch(Source(URI), give_up)
    assert not (weights / COMMIT / "q4/model.gguf").exists()


def test_two_launches_fetch_once(fetcher, hub):
    hub.held = threading.Event()
    both_wait = threading.Semaphore(0)
    paths = []

    def launch():
        paths.append(fetcher.fetch(Source(URI), lambda progress: both_wait.release()))

    launches = [threading.Thread(target=launch) for _ in range(2)]
    for launch_ in launches:
        launch_.start()
    assert all(both_wait.acquire(timeout=10) for _ in launches)
    hub.held.set()
    for launch_ in launches:
        launch_.join(10)
    assert len(set(paths)) == 1
    assert len(paths) == 2
    assert len(hub.downloads()) == 1


def test_room_is_looked_for_first(settings, hub):
    with pytest.raises(FetchFailed, match=r"needs 0\.0 GiB more .*0\.1 GiB to spare, 0\.0 GiB are free") as full:
        Fetcher(settings, lambda folder: 1000).fetch(Source(URI), nobody)
    assert full.value.code == "disk-full"
    assert not hub.downloads()


def test_a_declared_checksum_that_the_hub_denies_costs_no_download(fetcher, hub):
    with pytest.raises(FetchFailed, match=SHA256) as wrong:
        fetcher.fetch(Source(URI, sha256="0" * 64), nobody)
    assert wrong.value.code == "checksum"
    assert not hub.downloads()


def test_a_declared_size_that_the_hub_denies_costs_no_download(fetcher, hub):
    with pytest.raises(FetchFailed) as wrong:
        fetcher.fetch(Source(URI, size=Bytes(5)), nobody)
    assert wrong.value.code == "checksum"
    assert not hub.downloads()


def test_spoiled_bytes_are_thrown_away(fetcher, hub, weights):
    hub.served = b"X" + CONTENT[1:]
    with pytest.raises(FetchFailed) as wrong:
        fetcher.fetch(Source(URI), nobody)
    assert wrong.value.code == "checksum"
    assert not files_below(weights)
    hub.served = None
    assert fetcher.fetch(Source(URI, sha256=SHA256), nobody).read_bytes() == CONTENT


@pytest.mark.parametrize("uri", ["hf://some-owner/other/model.gguf", "hf://some-owner/some-repo/other.gguf"])
def test_what_the_hub_does_not_know(fetcher, uri):
    with pytest.raises(FetchFailed, match="correct the catalog entry") as missing:
        fetcher.fetch(Source(uri), nobody)
    assert missing.value.code == "model-missing"


def test_a_gated_file_asks_for_a_token(fetcher, hub):
    hub.gated = True
    with pytest.raises(FetchFailed, match="set hf_token_file"):
        fetcher.fetch(Source(URI), nobody)


def test_a_token_opens_a_gated_file_and_stays_with_the_hub(settings, hub, tmp_path):
    hub.gated = True
    token = tmp_path / "token"
    token.write_text(f"{TOKEN}\n")
    fetcher = Fetcher(replace(settings, hf_token_file=token), lambda folder: PLENTY)
    assert fetcher.fetch(Source(URI), nobody).read_bytes() == CONTENT
    assert {asked.authorization for asked in hub.asked if asked.server == "hub"} == {f"Bearer {TOKEN}"}
    assert {asked.authorization for asked in hub.downloads()} == {None}


def test_an_unreadable_token_file_is_told(settings, tmp_path):
    with pytest.raises(FetchFailed, match="hf_token_file") as failed:
        Fetcher(replace(settings, hf_token_file=tmp_path / "none")).fetch(Source(URI), nobody)
    assert failed.value.code == "fetch-failed"


def test_a_hub_that_is_away_is_told_without_signed_addresses(settings):
    gone = replace(settings, hf_endpoint="http://127.0.0.1:9")
    with pytest.raises(FetchFailed, match="look at the network and hf_endpoint") as failed:
        Fetcher(gone).fetch(Source(URI), nobody)
    assert failed.value.code == "fetch-failed"


def test_neither_token_nor_signature_is_told(settings, hub, tmp_path, caplog):
    token = tmp_path / "token"
    token.write_text(TOKEN)
    hub.served = CONTENT[:-10]
    fetcher = Fetcher(replace(settings, hf_token_file=token), lambda folder: PLENTY)
    with pytest.raises(FetchFailed) as failed:
        fetcher.fetch(Source(URI), nobody)
    told = failed.value.text + caplog.text
    assert TOKEN not in told
    assert "Signature" not in told
