"""The one log: every line says whose it is, events look alike, and secrets are gone whoever tells them."""

import io
import json

from llmgw import logs
from llmgw.local.log import Log


def told(*lines, as_json=False):
    out = io.StringIO()
    log = Log(out, as_json=as_json)
    for line in lines:
        log.pass_on("web", line)
    return out.getvalue().splitlines()


def test_an_event_is_shown_as_its_process_would_on_a_terminal():
    event = {"ts": "2026-12-01T12:00:00Z", "level": "warning", "process": "?", "event": "slow", "node": "n1"}
    (line,) = told(json.dumps(event).encode())
    assert line[9:] == "web      warning: slow  node=n1"


def test_every_line_of_a_traceback_says_whose_it_is():
    event = {"ts": "2026-12-01T12:00:00Z", "level": "error", "event": "failed", "exception": "Traceback\n  File\nOops"}
    lines = told(json.dumps(event).encode())
    assert [line[9:] for line in lines] == [
        "web      error: failed",
        "web      Traceback",
        "web        File",
        "web      Oops",
    ]


def test_plain_words_and_what_only_looks_like_an_event():
    lines = told(b"Segmentation fault", b'{"not": "an event"}', b"{torn", b"", b"   ", b"\xff\xfe")
    said = [line[18:] for line in lines]
    assert said[:3] == ["Segmentation fault", '{"not": "an event"}', "{torn"]
    assert len(said) == 4


def test_redis_speaks_without_its_own_clock():
    (line,) = told(b"123:M 01 Dec 2026 12:00:00.123 # Fatal error")
    assert line[9:] == "web      warning: Fatal error"


def test_a_very_long_event_is_still_an_event():
    event = {"ts": "2026-12-01T12:00:00Z", "level": "error", "event": "failed", "exception": "x\n" * 50_000}
    assert told(json.dumps(event).encode())[0][9:] == "web      error: failed"


def test_secrets_are_gone():
    (line,) = told(b"cannot reach redis://:hunter22@10.0.0.1:6379/0")
    assert "hunter22" not in line
    assert logs.GONE in line


def test_as_json_every_line_is_an_object():
    lines = told(b"plain words", json.dumps({"ts": "", "event": "e", "key_count": 2}).encode(), as_json=True)
    plain, event = (json.loads(line) for line in lines)
    assert (plain["process"], plain["event"]) == ("web", "plain words")
    assert event == {"ts": "", "process": "web", "event": "e", "key_count": 2}
