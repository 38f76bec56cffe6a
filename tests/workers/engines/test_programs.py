"""Which program an engine is here."""

import sys

from tests.fakes.machine import FakeMachine
from workers.engines import programs
from workers.settings import NodeSettings

PLAIN = NodeSettings(id="n1")
NAMED = NodeSettings(id="n1", llama_server="/opt/llama-server")


def test_the_one_that_the_settings_name_comes_first():
    machine = FakeMachine(programs={"/opt/llama-server": "/opt/llama-server", "llama-server": "/usr/bin/llama-server"})
    assert programs.find("llamacpp", NAMED, machine) == ("/opt/llama-server",)


def test_one_that_is_named_and_missing_is_not_replaced_quietly():
    machine = FakeMachine(programs={"llama-server": "/usr/bin/llama-server"}, modules=frozenset({"xllamacpp"}))
    assert programs.find("llamacpp", NAMED, machine) is None


def test_then_the_one_on_path_then_the_package():
    on_path = FakeMachine(programs={"llama-server": "/usr/bin/llama-server"}, modules=frozenset({"xllamacpp"}))
    assert programs.find("llamacpp", PLAIN, on_path) == ("/usr/bin/llama-server",)
    package = FakeMachine(modules=frozenset({"xllamacpp"}))
    assert programs.find("llamacpp", PLAIN, package) == (sys.executable, "-m", programs.RUNNER)
    assert programs.find("llamacpp", PLAIN, FakeMachine()) is None


def test_an_unknown_engine_is_not_installed():
    assert programs.find("other", PLAIN, FakeMachine()) is None
