"""The state folder: one holder, a version we know, secrets that only their owner can read."""

import os
import subprocess
import sys

import pytest

from llmgw.local import identity, state
from llmgw.local.state import Refused, StateFolder

HOLD = """
import sys
from pathlib import Path
from llmgw.local.state import StateFolder
held = StateFolder(Path(sys.argv[1])).hold()
print("held", flush=True)
input()
"""


@pytest.fixture
def folder(tmp_path):
    folder = StateFolder(tmp_path / "deep" / "state")
    assert folder.prepare() is None
    return folder


def test_it_is_made_for_its_owner_alone(folder):
    assert folder.path.stat().st_mode & 0o777 == 0o700
    assert folder.read("version") == str(state.VERSION)
    assert folder.prepare() is None


def test_a_secret_is_made_once_and_readable_by_its_owner_only(folder):
    made = folder.secret("secret_key")
    assert len(made) > 30
    assert folder.secret("secret_key") == made
    assert (folder.path / "secret_key").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("told", ["2", "999", "1-beta", "not a number"])
def test_a_newer_one_is_refused_with_what_to_do(folder, told):
    folder.write("version", told)
    refused = folder.prepare()
    assert isinstance(refused, Refused)
    assert refused.code == "state.newer"
    assert f"version {told}" in refused.what
    assert "--state" in refused.cure
    assert folder.read("version") == told, "a refused folder stays as it is"


def test_one_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").touch()
    refused = StateFolder(tmp_path / "file" / "state").prepare()
    assert isinstance(refused, Refused)
    assert refused.code == "state.not-writable"


def test_a_full_disk_is_refused(folder, monkeypatch):
    monkeypatch.setattr(state, "LEAST_FREE", 2**80)
    refused = folder.prepare()
    assert isinstance(refused, Refused)
    assert refused.code == "state.disk-full"


def test_it_has_one_holder_who_is_named(folder):
    assert folder.running() is None
    with folder.hold():
        assert folder.running() == identity.identify(os.getpid())
        second = StateFolder(folder.path).hold()
        assert isinstance(second, Refused)
        assert second.what == f"another `up` (pid {os.getpid()}) runs on the state folder {folder.path}"
    assert not folder.is_locked()
    assert folder.running() is None


def test_a_killed_holder_holds_nothing(folder):
    argv = [sys.executable, "-c", HOLD, str(folder.path)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == b"held\n"
        assert folder.is_locked()
        holder.kill()
    assert not folder.is_locked()


def test_left_over_are_those_that_still_run(folder):
    with subprocess.Popen(["/bin/sleep", "60"]) as sleeper:
        known = identity.identify(sleeper.pid)
        assert known is not None
        folder.write_bytes(folder.record("web"), identity.to_json(known))
        folder.write_bytes(folder.record("beat"), identity.to_json(identity.Identity(sleeper.pid, 1.0, known.argv)))
        folder.write_bytes(folder.record("torn"), b"{")
        assert dict(folder.left_over()) == {"web": known}
        assert [file.stem for file in (folder.path / "run").iterdir()] == ["web"], "records of nobody are removed"
        assert identity.end(known, 5.0)
    assert not list(folder.left_over())
