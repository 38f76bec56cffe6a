"""A state folder that takes nothing more, for which a file in the way of a folder stands here."""

import pytest

from llmgw.core.wire import AnswerKind
from llmgw.core.world import State


def test_a_launch_that_cannot_be_written_down_is_refused_and_the_next_one_starts(running):
    launches = running.settings.state / "launches"
    launches.write_text("in the way")
    answer, status = running.launch()
    assert (answer.kind, answer.code, status) == (AnswerKind.REFUSED, "order.not-kept", None)
    assert str(launches) in answer.text
    launches.unlink()
    assert running.launch(launch="launch-2")[0].kind is AnswerKind.TAKEN
    running.heard.wait(State.READY, "launch-2")


def test_a_forgotten_launch_makes_room_before_it_takes_some(running):
    running.launch()
    running.heard.wait(State.READY)
    running.stop()
    running.heard.wait(State.STOPPED)
    tombstones = running.settings.state / "tombstones"
    tombstones.write_text("in the way")
    with pytest.raises(OSError, match="tombstones"):
        running.forget()
    assert not (running.folder() / "engine.log").exists()
    assert running.status().state is State.STOPPED
    tombstones.unlink()
    assert running.forget()[0].kind is AnswerKind.TAKEN
