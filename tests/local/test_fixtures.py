"""The tests' own ground: servers are real, the database is the one asked for, nothing is left behind."""

import os
import sys

import psutil
import pytest
import redis
from django.conf import settings
from django.db import connection


def test_redis_is_real_and_empty(redis_url):
    with redis.Redis.from_url(redis_url) as client:
        assert client.dbsize() == 0
        client.set("left", "over")
    assert redis_url == settings.REDIS_URL


def test_redis_is_emptied_between_tests(redis_url):
    with redis.Redis.from_url(redis_url) as client:
        assert client.get("left") is None


def test_a_redis_of_its_own_keeps_what_it_was_told(own_redis):
    with own_redis.client() as client:
        client.set("kept", "yes")
    own_redis.kill()
    own_redis.start()
    with own_redis.client() as client:
        assert client.get("kept") == "yes"


@pytest.mark.django_db
def test_the_database_is_the_one_asked_for(request):
    asked = {"sqlite": "sqlite", "postgres": "postgresql"}[request.config.getoption("database")]
    assert connection.vendor == asked
    assert request.node.get_closest_marker("database")
    assert "memory" not in str(connection.settings_dict["NAME"])


def test_the_state_folder_is_not_the_repository_s():
    assert settings.STATE_DIR.parent != settings.BASE_DIR
    assert os.environ["LLMGW_STATE"] == str(settings.STATE_DIR)


def test_what_a_program_starts_is_ended_with_it(processes, eventually):
    sleeper = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(99)'], "
    processes.start([sys.executable, "-c", sleeper + "start_new_session=True)"]).wait()
    (orphan,) = eventually(processes.alive)
    processes.end()
    assert not psutil.pid_exists(orphan.pid) or orphan.status() == psutil.STATUS_ZOMBIE
