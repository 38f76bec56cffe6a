"""Journals and pid files: they come back as they were written, and mangled ones are said to be so."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from llmgw.core.lifecycle import Happened
from llmgw.core.units import LaunchId, Seconds
from llmgw.core.wire import Failure, Step
from llmgw.core.world import State
from tests.builders import a_launch_order
from workers.engines.process import Fingerprint
from workers.supervisor.files import read_or_none, write_atomically
from workers.supervisor.identity import NodeFile, parse_node_file
from workers.supervisor.journal import (
    TOMBSTONE_LASTS,
    Journal,
    LaunchFolder,
    Tombstones,
    Unusable,
    is_safe_name,
    parse_journal,
    parse_pid_file,
)

JOURNAL = Journal(
    order=a_launch_order(arguments=("--flag",), trace="00-ab-cd-01"),
    state=State.FAILED,
    steps=(Step(Happened.FETCH_BEGUN, Seconds(1.5)), Step(Happened.FAILED, Seconds(2.5), "model-missing")),
    listen="127.0.0.1",
    port=23000,
    argv=("llama-server", "--port", "23000"),
    failure=Failure("model-missing", "no weights"),
)
FINGERPRINT = Fingerprint(
    launch_id="launch-1", pid=4711, pgid=4711, start_ticks=99, boot_id="boot-1", argv=("llama-server", "--port", "1")
)
WRITTEN = {
    parse_journal: msgspec.json.encode(JOURNAL),
    parse_pid_file: msgspec.json.encode(FINGERPRINT),
}


def is_torn(read):
    return isinstance(read, Unusable) and read.what == "torn"


def test_both_come_back_as_they_were_written():
    assert parse_journal(WRITTEN[parse_journal], "launch-1") == JOURNAL
    assert parse_pid_file(WRITTEN[parse_pid_file], "launch-1") == FINGERPRINT


@pytest.mark.parametrize("parse", WRITTEN)
def test_what_was_cut_off_is_torn(parse):
    whole = WRITTEN[parse]
    for end in range(len(whole)):
        assert isinstance(parse(whole[:end], "launch-1"), Unusable), whole[:end]


@pytest.mark.parametrize("parse", WRITTEN)
@given(raw=some.binary(max_size=200))
def test_any_bytes_are_read_without_an_exception(parse, raw):
    assert isinstance(parse(raw, "launch-1"), Unusable)


@pytest.mark.parametrize("parse", WRITTEN)
@given(data=some.data())
def test_mangled_bytes_are_read_without_an_exception(parse, data):
    whole = bytearray(WRITTEN[parse])
    for _ in range(data.draw(some.integers(1, 4))):
        whole[data.draw(some.integers(0, len(whole) - 1))] = data.draw(some.integers(0, 255))
    parse(bytes(whole), "launch-1")
    parse_node_file(bytes(whole))


@pytest.mark.parametrize("parse", WRITTEN)
def test_another_version_is_told_from_a_torn_file(parse):
    newer = {**msgspec.json.decode(WRITTEN[parse]), "v": 2, "argv": None}
    assert parse(msgspec.json.encode(newer), "launch-1") == Unusable(
        "version", "it is of version 2, this worker reads version 1"
    )


@pytest.mark.parametrize("parse", WRITTEN)
def test_a_file_of_another_launch_is_not_believed(parse):
    unusable = parse(WRITTEN[parse], "launch-2")
    assert (unusable.what, "launch-1" in unusable.detail) == ("torn", True)


@pytest.mark.parametrize(
    "wrong", [{"pid": 0, "pgid": 0}, {"pid": -1, "pgid": -1}, {"pid": 1, "pgid": 1}, {"pgid": 1}, {"argv": []}]
)
def test_a_pid_that_no_engine_can_have_makes_a_file_torn(wrong):
    raw = msgspec.json.encode({**msgspec.to_builtins(FINGERPRINT), **wrong})
    assert is_torn(parse_pid_file(raw, "launch-1"))


def test_an_unreadable_file_is_unusable(tmp_path):
    folder = LaunchFolder(tmp_path / "launch-1")
    folder.create(JOURNAL)
    (folder.path / "pid.json").mkdir()
    assert is_torn(folder.read_pid_file())


@given(name=some.text(max_size=20))
def test_a_safe_name_stays_in_its_folder(name):
    if is_safe_name(name):
        assert "/" not in name
        assert not name.startswith(".")


def test_a_file_is_replaced_whole(tmp_path):
    path = tmp_path / "file"
    assert read_or_none(path) is None
    write_atomically(path, b"old")
    write_atomically(path, b"new", durable=False)
    assert read_or_none(path) == b"new"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_tombstones_outlast_a_worker_and_unreadable_ones_do_not(tmp_path):
    Tombstones(tmp_path).add(LaunchId("launch-1"), Seconds(100.0))
    (tmp_path / "launch-2.json").write_text("{")
    read = Tombstones(tmp_path)
    read.read(Seconds(200.0))
    assert "launch-1" in read
    assert "launch-2" not in read
    assert not (tmp_path / "launch-2.json").exists()


def test_old_tombstones_go_while_the_worker_lives(tmp_path):
    stones = Tombstones(tmp_path)
    stones.add(LaunchId("launch-1"), Seconds(100.0))
    stones.add(LaunchId("launch-2"), Seconds(100.0 + TOMBSTONE_LASTS - 1))
    assert "launch-1" in stones
    stones.add(LaunchId("launch-3"), Seconds(100.0 + TOMBSTONE_LASTS))
    assert "launch-1" not in stones
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["launch-2.json", "launch-3.json"]


def test_a_node_file_comes_back():
    told = NodeFile(instance="a", session=3, epoch=7)
    assert parse_node_file(msgspec.json.encode(told)) == told
    assert parse_node_file(b'{"instance":"a","session":3,"epoch":7,"v":2}') is None
