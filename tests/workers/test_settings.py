"""A node's settings: the file, the environment over it, and what is said of each mistake."""

import dataclasses
from pathlib import Path

import pytest

from workers.settings import KEYS, NodeSettings, read_settings

GOOD = {"LLMGW_NODE_ID": "n1", "LLMGW_NODE_REDIS_URL": "redis://127.0.0.1:6379/0", "LLMGW_NODE_STATE": "/srv/state"}


def written(folder, text):
    file = folder / "node.toml"
    file.write_text(text, "utf-8")
    return file


def wrong(file, environ, **how):
    found = read_settings(file, environ, **how)
    assert isinstance(found, tuple)
    return [problem.text() for problem in found]


def test_a_file_says_it_all(tmp_path):
    file = written(
        tmp_path,
        """
        id = "gpu07"
        redis_url = "rediss://:secret@10.0.0.5:6380/1"
        state = "state"
        address = "10.0.0.7"
        cpu_threads = 4
        cpu_slots = 1
        llama_server = "/opt/llama-server"
        engine_ports = [21000, 21999]
        engine_log_bytes = 1048576
        memory_reserve_bytes = 0
        nvml = "off"
        labels = {rack = "a"}
        hf_endpoint = "http://127.0.0.1:1234"
        hf_token_file = "/etc/llmgw/token"
        offline = true
        log_level = "debug"
        """,
    )
    settings = read_settings(file, {})
    assert isinstance(settings, NodeSettings)
    assert settings.state == tmp_path / "state", "a relative path is meant from the file's folder"
    assert settings.engine_host == "10.0.0.7", "engines listen on the node's address unless told otherwise"
    assert settings.engine_ports == (21000, 21999)
    assert settings.labels == {"rack": "a"}
    assert (settings.cpu_threads, settings.cpu_slots, settings.offline) == (4, 1, True)
    assert settings.hf_token_file == Path("/etc/llmgw/token")


def test_the_environment_wins(tmp_path):
    file = written(tmp_path, 'id = "n1"\nredis_url = "redis://127.0.0.1/0"\nstate = "/srv/a"\noffline = true\n')
    environ = {
        "LLMGW_NODE_STATE": "/srv/b",
        "LLMGW_NODE_OFFLINE": "false",
        "LLMGW_NODE_ENGINE_PORTS": "21000-21010",
        "LLMGW_NODE_LABELS": "rack=a, zone=b",
        "LLMGW_NODE_CPU_SLOTS": "3",
        "LLMGW_NODE_CPU_THREADS": "",
        "LLMGW_NODE_SETTINGS": "not a setting",
        "LLMGW_LOG": "json",
    }
    settings = read_settings(file, environ)
    assert isinstance(settings, NodeSettings)
    assert (settings.state, settings.offline, settings.cpu_slots) == (Path("/srv/b"), False, 3)
    assert (settings.engine_ports, settings.labels) == ((21000, 21010), {"rack": "a", "zone": "b"})
    assert settings.cpu_threads is None, "an empty variable says nothing"


def test_nothing_but_the_environment_is_enough():
    assert isinstance(read_settings(None, GOOD), NodeSettings)


def test_what_is_missing_is_told_with_its_variable():
    told = wrong(None, {})
    assert [text.split(": ")[1] for text in told] == ["id", "redis_url", "state"]
    assert "LLMGW_NODE_REDIS_URL" in told[1]


def test_a_command_may_do_with_less():
    assert isinstance(read_settings(None, {}, required=()), NodeSettings)


@pytest.mark.parametrize(
    ("line", "key", "cure"),
    [
        ("cpu_slots = '2'", "cpu_slots", "give a whole number from 0 to 1024"),
        ("cpu_slots = true", "cpu_slots", "whole number"),
        ("cpu_slots = -1", "cpu_slots", "whole number"),
        ("cpu_threads = 0", "cpu_threads", "from 1 to 4096"),
        ("engine_ports = [21000]", "engine_ports", "first and the last port"),
        ("engine_ports = [21999, 21000]", "engine_ports", "first and the last port"),
        ("engine_ports = [80, 90]", "engine_ports", "1024 to 65535"),
        ("engine_ports = '21000-21999'", "engine_ports", "first and the last port"),
        ("labels = {rack = 1}", "labels", "table of texts"),
        ("labels = []", "labels", "table of texts"),
        ("offline = 'yes'", "offline", "true or false"),
        ("nvml = 'on'", "nvml", "auto, off"),
        ("hf_endpoint = 'hub'", "hf_endpoint", "http://"),
        ("log_level = 'loud'", "log_level", "debug, info"),
        ("address = 'a b'", "address", "host name"),
        ("hf_token_file = 3", "hf_token_file", "a path"),
        ("cpu_slot = 2", "cpu_slot", "use one of: id,"),
        ("id = 'a/b'", "id", "letters, digits"),
        ("redis_url = 'amqp://127.0.0.1'", "redis_url", "redis://"),
        ("redis_url = 'redis://127.0.0.1:port/0'", "redis_url", "redis://"),
        ("state = ''", "state", "a path"),
    ],
)
def test_a_mistake_names_file_key_and_cure(tmp_path, line, key, cure):
    file = written(tmp_path, line)
    (told,) = wrong(file, {}, required=())
    assert told.startswith(f"{file}: {key}: ")
    assert cure in told


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("LLMGW_NODE_CPU_SLOTS", "two"),
        ("LLMGW_NODE_OFFLINE", "maybe"),
        ("LLMGW_NODE_ENGINE_PORTS", "21000"),
        ("LLMGW_NODE_ENGINE_PORTS", "a-b"),
        ("LLMGW_NODE_LABELS", "rack"),
        ("LLMGW_NODE_CPU_SLOT", "2"),
    ],
)
def test_a_mistake_in_the_environment_names_the_variable(variable, value):
    (told,) = wrong(None, {**GOOD, variable: value})
    assert told.startswith(f"{variable}: ")


def test_every_mistake_is_told_at_once(tmp_path):
    file = written(tmp_path, 'cpu_slots = "a"\nnonsense = 1\n')
    assert len(wrong(file, {"LLMGW_NODE_OFFLINE": "x"})) == 3 + len(("id", "redis_url", "state"))


def test_a_file_that_cannot_be_read(tmp_path):
    (absent,) = wrong(tmp_path / "none.toml", GOOD)
    assert "No such file" in absent
    assert "--settings" in absent
    (torn,) = wrong(written(tmp_path, "id = "), GOOD)
    assert "is not TOML" in torn


def test_no_password_is_repeated(tmp_path):
    url = "redis://:planted@10.0.0.5:port/0"
    told = wrong(written(tmp_path, f"redis_url = '{url}'"), {}, required=())
    settings = read_settings(None, {**GOOD, "LLMGW_NODE_REDIS_URL": "redis://:planted@10.0.0.5/0"})
    assert "planted" not in f"{told} {settings!r}"


def test_every_field_can_be_said():
    assert set(KEYS) == {field.name for field in dataclasses.fields(NodeSettings)}


def test_the_settings_in_the_readme_are_those_that_there_are(tmp_path):
    readme = Path("workers/README.md").read_text("utf-8")
    example = readme.split("```toml\n")[1].split("```")[0]
    settings = read_settings(written(tmp_path, example), {})
    assert isinstance(settings, NodeSettings)
    bare = NodeSettings(id="gpu07", redis_url="redis://10.0.0.5:6379/0")
    assert settings == bare, "what it shows as left out is what is left out"
    assert {line.lstrip("# ").split(" = ")[0] for line in example.splitlines() if " = " in line} == set(KEYS)
