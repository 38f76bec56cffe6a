"""An engine's log: its last lines, and its bound."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from workers.supervisor import logfile


@pytest.fixture
def log(tmp_path):
    return tmp_path / "engine.log"


def test_noise_is_left_out_unless_there_is_nothing_else(tmp_path):
    log = tmp_path / "engine.log"
    log.write_text("loaded\nnoise 1\nnoise 2\n")
    assert logfile.tail(log, 2, lambda line: line.startswith("noise")) == ("loaded",)
    assert logfile.tail(log, 2, lambda _: True) == ("noise 1", "noise 2")


def test_the_last_lines_oldest_first(log):
    log.write_text("one\n\ntwo\nthree\n")
    assert logfile.tail(log, 2) == ("two", "three")


def test_no_log_has_no_lines(log):
    assert logfile.tail(log, 5) == ()


def test_lines_are_cut(log):
    log.write_text("x" * 5000)
    (line,) = logfile.tail(log, 5)
    assert len(line) == 500
    assert line.endswith("…")


def test_only_the_end_of_a_large_log_is_read(log):
    log.write_bytes(b"early\n" + b"x" * 200_000 + b"\nlate\n")
    assert logfile.tail(log, 50)[-1] == "late"
    assert "early" not in logfile.tail(log, 50)


def test_escapes_and_control_characters_are_taken_out():
    assert logfile.clean(b"\x1b[31mred\x1b[0m\x07 alert\r\n\x00tail") == ("red alert", "tail")


def test_of_a_progress_bar_the_last_state_is_kept():
    assert logfile.clean(b"loading 10%\rloading 50%\rloading 99%\nready") == ("loading 99%", "ready")


@given(raw=some.binary(max_size=300))
def test_any_output_becomes_printable_lines(raw):
    for line in logfile.clean(raw):
        assert line
        assert not any(ord(letter) < 32 or 0x7F <= ord(letter) < 0xA0 for letter in line.replace("\t", ""))


def test_a_log_is_bounded_and_its_writer_goes_on(log):
    with log.open("ab", buffering=0) as engine:
        for number in range(1000):
            engine.write(b"line %d\n" % number)
        assert logfile.bound(log, 1000)
        assert log.stat().st_size == 0
        assert logfile.older(log).stat().st_size == 1000
        engine.write(b"after\n")
    assert log.read_bytes() == b"after\n"
    assert logfile.tail(log, 2) == ("line 999", "after")


def test_a_small_log_is_left(log):
    log.write_text("few words")
    assert not logfile.bound(log, 1000)
    assert not logfile.older(log).exists()


def test_a_log_is_bounded_though_its_end_cannot_be_kept(log):
    log.write_bytes(b"a line\n" * 1000)
    log.with_name("engine.log.1.new").mkdir()  # stands for a full disk
    assert logfile.bound(log, 100)
    assert log.stat().st_size == 0
