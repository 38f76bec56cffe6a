"""Beat and the control worker, as real processes, on a Redis that dies and comes back."""

import subprocess
import sys

import pytest
import redis

from llmgw import schedule
from llmgw.core import wire

CELERY = [sys.executable, "-m", "celery", "-A", "llmgw.celery", "-q"]
WORKER = ["worker", "-Q", wire.CONTROL_QUEUE, "-P", "threads", "-c", "2", "--without-gossip", "--without-mingle"]
BACK_WITHIN_S = 5.0
"""About one second is usual; the rest is for a machine with other things to do."""

pytestmark = pytest.mark.slow


@pytest.fixture
def ticks(processes, own_redis, tmp_path, eventually):
    """Start both on a database of their own; return how many ticks were sent, 0 while Redis is away."""
    told = {
        "REDIS_URL": own_redis.url,
        "DATABASE_URL": f"sqlite:///{tmp_path}/control.sqlite3",
        "LLMGW_HEARTBEAT_S": "0.5",
        "LLMGW_LOG": "text",
    }
    assert processes.manage("migrate", "-v", "0", env=told).wait(60) == 0
    with (tmp_path / "log").open("wb") as log:
        how = {"env": told, "stdout": log, "stderr": subprocess.STDOUT}
        processes.start([*CELERY, *WORKER, "--without-heartbeat"], **how)
        processes.start([*CELERY, "beat", "--pidfile="], **how)

    def count():
        try:
            with own_redis.client() as client:
                return int(client.get(wire.TICK_KEY) or 0)
        except redis.ConnectionError:
            return 0

    eventually(lambda: count() >= 2, timeout=60)
    return count


@pytest.mark.parametrize("away_s", [0.0, 7.0])
def test_both_are_back_at_work_soon_after_redis(ticks, own_redis, eventually, tmp_path, away_s):
    own_redis.kill()
    said = tmp_path / "log"
    # Long enough for waits that grow to have grown.
    eventually(lambda: said.read_text().count("Cannot connect") >= away_s, timeout=30)
    own_redis.start()
    before = ticks()
    eventually(lambda: ticks() > before + 1, timeout=BACK_WITHIN_S)
    assert not {"Traceback", "CPendingDeprecationWarning"} & set(said.read_text().split()), "an outage is a line or two"


def test_beat_loads_no_django():
    told = "import sys; sys.argv = ['celery', 'beat']; import llmgw.celery; print('django.db' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", told], check=True, capture_output=True).stdout == b"False\n"


def test_what_beat_sends_the_control_worker_has():
    from llmgw.celery import app

    app.loader.import_default_modules()
    scheduled = {entry["task"] for entry in schedule.beat_schedule(2.0, 5.0).values()}
    assert scheduled | {wire.REPORT_TASK} <= set(app.tasks)
