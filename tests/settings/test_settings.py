"""Settings: embedded defaults and the state folder, overridden by the environment alone."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

SHOW = """
import json
from django.conf import settings
database = settings.DATABASES["default"]
print(json.dumps({
    "state": str(settings.STATE_DIR), "redis": settings.REDIS_URL, "secret": settings.SECRET_KEY,
    "debug": settings.DEBUG, "engine": database["ENGINE"].rpartition(".")[2], "name": str(database["NAME"]),
    "host": database["HOST"], "user": database["USER"], "password": database["PASSWORD"],
    "options": database.get("OPTIONS", {}), "hosts": settings.ALLOWED_HOSTS,
}))
"""


@pytest.fixture
def settings_with(tmp_path):
    """Read the settings in a process of its own, in an environment that holds nothing else of ours."""

    def read(**given):
        bare = {name: value for name, value in os.environ.items() if name in {"PATH", "HOME", "LANG"}}
        told = bare | {"DJANGO_SETTINGS_MODULE": "llmgw.settings", "LLMGW_STATE": str(tmp_path / "state")} | given
        shown = subprocess.run([sys.executable, "-c", SHOW], env=told, check=True, capture_output=True, text=True)
        return json.loads(shown.stdout)

    return read


def test_by_default_all_is_in_the_state_folder(settings_with, tmp_path):
    found = settings_with()
    assert found["state"] == str(tmp_path / "state")
    assert (found["engine"], found["name"]) == ("sqlite3", str(tmp_path / "state" / "llmgw.sqlite3"))
    assert found["options"]["transaction_mode"] == "IMMEDIATE"
    assert found["redis"] == "redis://127.0.0.1:6379/0"
    assert not found["debug"]
    assert "*" not in found["hosts"]


def test_what_up_keeps_in_the_state_folder_is_used(settings_with, tmp_path):
    state = tmp_path / "state"
    state.mkdir()
    (state / "redis_url").write_text("redis://:kept@127.0.0.1:1234/0\n")
    (state / "secret_key").write_text("kept\n")
    found = settings_with()
    assert (found["redis"], found["secret"]) == ("redis://:kept@127.0.0.1:1234/0", "kept")
    given = settings_with(REDIS_URL="redis://other:6379/1", LLMGW_SECRET_KEY="given")
    assert (given["redis"], given["secret"]) == ("redis://other:6379/1", "given")


def test_one_url_changes_the_database(settings_with):
    found = settings_with(DATABASE_URL="postgres://gw:p%40ss@db.example:5433/llmgw")
    assert (found["engine"], found["host"], found["name"]) == ("postgresql", "db.example", "llmgw")
    assert (found["user"], found["password"]) == ("gw", "p@ss")
    assert "transaction_mode" not in found["options"]


def test_what_is_set_to_nothing_is_not_set(settings_with):
    assert settings_with(DATABASE_URL="", REDIS_URL="", LLMGW_SECRET_KEY="") == settings_with()


def test_a_database_of_another_kind_is_refused_without_its_password(settings_with):
    with pytest.raises(subprocess.CalledProcessError) as refused:
        settings_with(DATABASE_URL="oracle://gw:hunter22@db/llmgw")
    assert "DATABASE_URL must begin with postgres:// or sqlite:///" in refused.value.stderr
    assert "hunter22" not in refused.value.stderr


def test_a_database_without_tables_is_no_traceback(tmp_path):
    env = {**os.environ, "LLMGW_STATE": str(tmp_path), "DJANGO_SETTINGS_MODULE": "llmgw.settings"}
    env.pop("DATABASE_URL", None)
    done = subprocess.run(
        [sys.executable, "manage.py", "nodes"], env=env, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "manage.py up" in done.stderr
