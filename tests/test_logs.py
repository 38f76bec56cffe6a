"""The log: one line an event, the same for every library, and no secret in it."""

import json
import logging
import os
import pty
import subprocess
import sys
from datetime import datetime, timedelta

import pytest

from llmgw import logs

PLANTED = "pL4nt3d-s3cr3t-m4rk"
SAY = """
import logging, structlog
from llmgw import logs
logs.configure("node")
structlog.get_logger("workers.supervisor").info("launch started", launch_id="l-1", replica="smollm2/1")
logging.getLogger("django.request").warning("Not Found: %s", "/nowhere")
try:
    1 / 0
except ZeroDivisionError:
    structlog.get_logger().exception("pass failed")
"""


def run(code, **environment):
    told = {**os.environ, **environment}
    done = subprocess.run([sys.executable, "-c", code], env=told, check=True, capture_output=True, text=True)
    assert not done.stdout, "standard output is for what a command was asked for"
    return done.stderr.splitlines()


def test_json_where_no_terminal_is():
    ours, django, failure = (json.loads(line) for line in run(SAY))
    assert list(ours)[:4] == ["ts", "level", "process", "event"]
    assert ours | {"ts": ""} == {
        "ts": "",
        "level": "info",
        "process": "node",
        "event": "launch started",
        "logger": "workers.supervisor",
        "launch_id": "l-1",
        "replica": "smollm2/1",
    }
    assert datetime.fromisoformat(ours["ts"]).utcoffset() == timedelta(0)
    assert (django["level"], django["event"]) == ("warning", "Not Found: /nowhere")
    assert "ZeroDivisionError" in failure["exception"]


def test_text_when_asked_for():
    ours, django, *failure = run(SAY, LLMGW_LOG="text")
    assert ours[9:] == "node     launch started  launch_id=l-1 replica=smollm2/1"
    assert django[9:] == "node     warning: Not Found: /nowhere"
    assert failure[0][9:] == "node     error: pass failed"
    assert failure[-1][9:] == "node     ZeroDivisionError: division by zero"


def test_text_with_colour_on_a_terminal():
    ours, theirs = pty.openpty()
    subprocess.run([sys.executable, "-c", SAY], stderr=theirs, check=True)
    os.close(theirs)
    said = os.read(ours, 65536).decode()
    os.close(ours)
    assert "launch started" in said
    assert "\x1b[33mwarning: Not Found" in said


def test_an_outage_is_told_in_a_line():
    code = """
import logging
from llmgw import logs
logs.configure("control")
class OperationalError(Exception): ...
try:
    raise OperationalError("refused")
except OperationalError:
    logging.getLogger("celery").warning("lost", exc_info=True)
    logging.getLogger("celery").warning("cannot send: refused\\nstack", exc_info=True)
"""
    lost, unsent = run(code, LLMGW_LOG="text")
    assert lost[9:] == "control  warning: lost  error=refused"
    assert unsent[9:] == "control  warning: cannot send: refused"


@pytest.mark.parametrize(
    "said",
    [
        f"redis://:{PLANTED}@10.0.0.1:6379/0 refused",
        f"postgres://llmgw:{PLANTED}@db/llmgw",
        f"Authorization: Bearer {PLANTED}",
        f"authorization=Basic {PLANTED}=",
        f"password={PLANTED} tried",
        f'{{"api_key": "{PLANTED}"}}',
        f"got 'token': '{PLANTED}'",
        f"GET /sign-in/{PLANTED}/ HTTP/1.1",
        f"GET https://cdn/model.gguf?X-Amz-Signature={PLANTED}&x=1",
        f"key llmgw-{PLANTED}-0123456789",
        f"key llmgw_{PLANTED}_0123456789",
        f"hf_{PLANTED.replace('-', '')}0123456789",
        f"-----BEGIN PRIVATE KEY-----\n{PLANTED}\n-----END PRIVATE KEY-----",
    ],
)
def test_text_that_holds_a_secret_is_redacted(said):
    cleaned = logs.redacted({"event": said, "deep": [{"in": (said,)}]})
    assert PLANTED not in repr(cleaned)
    assert PLANTED.replace("-", "") not in repr(cleaned)
    assert logs.GONE in cleaned["event"]


@pytest.mark.parametrize(
    "key", ["password", "db_password", "SECRET_KEY", "token", "api_token", "Authorization", "cookie", "inference_key"]
)
def test_what_is_named_a_secret_is_redacted(key):
    assert logs.redacted({"outer": {key: PLANTED}}) == {"outer": {key: logs.GONE}}


def test_what_is_no_secret_stays():
    fields = {
        "event": "pass done: https://router.example:8080/v1 took 3 ms, key demo used",
        "prompt_tokens": 12,
        "token": 7,
        "monkey": "business",
        "argv": ["llama-server", "--model", "/srv/llmgw-node/weights"],
        "password": None,
    }
    assert logs.redacted(fields) == fields


def test_secrets_are_gone_from_both_forms_and_from_tracebacks():
    code = f"""
import logging, structlog
from llmgw import logs
logs.configure("web")
log = structlog.get_logger()
log.info("redis://:{PLANTED}@h", api_key="{PLANTED}")
try:
    raise ValueError("password={PLANTED}")
except ValueError:
    log.exception("failed")
    logging.getLogger("x").exception("at postgres://u:{PLANTED}@h")
"""
    for form in ("text", "json"):
        said = "\n".join(run(code, LLMGW_LOG=form))
        assert PLANTED not in said
        assert said.count(logs.GONE) >= 4


@pytest.mark.parametrize(
    ("level", "environment", "expected"),
    [
        ("", {}, ["plain"]),
        ("", {"LLMGW_LOG_LEVEL": "debug"}, ["detail", "plain", "library"]),
        ("debug", {"LLMGW_LOG_LEVEL": "error"}, ["detail", "plain", "library"]),
        ("error", {"LLMGW_LOG_LEVEL": "debug"}, []),
    ],
)
def test_a_level_that_is_given_goes_before_the_environment_s_for_every_logger(level, environment, expected):
    code = f"""
import logging, structlog
from llmgw import logs
logs.configure("node", {level!r})
structlog.get_logger("ours").debug("detail")
structlog.get_logger("ours").info("plain")
logging.getLogger("kombu").info("library")
"""
    environment = {"LLMGW_LOG_LEVEL": "", "LLMGW_LOG": "json", **environment}
    assert [json.loads(line)["event"] for line in run(code, **environment)] == expected


def test_handlers_of_others_stay_and_ours_is_one():
    root = logging.getLogger()
    before = list(root.handlers), root.level
    for process in ("web", "web"):
        logs.configure(process)
    ours = [handler for handler in root.handlers if isinstance(handler, logs.Handler)]
    assert len(ours) == 1
    assert [handler for handler in root.handlers if handler not in ours] == before[0]
    root.removeHandler(ours[0])
    root.setLevel(before[1])
