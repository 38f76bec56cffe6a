"""A process is known by pid, start and command line; nobody else is ever signalled."""

import os
import signal
import subprocess
import sys

import pytest

from llmgw.local import identity
from llmgw.local.identity import Identity

DEAF = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("deaf", flush=True)
time.sleep(60)
"""


@pytest.fixture
def sleeper():
    with subprocess.Popen(["/bin/sleep", "60"]) as process:
        yield process
        process.kill()


def known_as(process):
    known = identity.identify(process.pid)
    assert known is not None
    return known


def test_it_survives_its_file(sleeper, tmp_path):
    known = known_as(sleeper)
    file = tmp_path / "record.json"
    file.write_bytes(identity.to_json(known))
    assert identity.read(file) == known
    assert known.command() == f"/bin/sleep 60 (pid {sleeper.pid})"


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"\xff"])
def test_a_torn_file_names_nobody(tmp_path, content):
    file = tmp_path / "record.json"
    file.write_bytes(content)
    assert identity.read(file) is None


def test_another_process_with_that_pid_is_left_alone(sleeper):
    known = known_as(sleeper)
    for other in (Identity(known.pid, known.started + 1, known.argv), Identity(known.pid, known.started, ("other",))):
        assert not identity.is_alive(other)
        assert identity.end(other, 0.1)
    assert sleeper.poll() is None


def test_ending_asks_first(sleeper):
    assert identity.end(known_as(sleeper), 5.0)
    assert sleeper.wait(5) == -signal.SIGTERM


def test_ending_insists():
    deaf = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", deaf], stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        known = known_as(process)
        assert not identity.ask_to_end(known, 0.1)
        assert identity.end(known, 0.1)
        assert process.wait(5) == -signal.SIGKILL


def test_what_remains_of_a_process_is_nobody(sleeper):
    known = known_as(sleeper)
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert not identity.is_alive(known)
