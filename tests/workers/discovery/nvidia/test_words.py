"""Words of the driver's tools: values, nothing of the kind, and failures, in every spelling."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.core.units import GIB, MIB
from workers.discovery.nvidia import words
from workers.discovery.nvidia.words import Failed

READERS = (
    words.whole,
    words.celsius,
    words.watts,
    words.megahertz,
    words.percent,
    words.amount,
    words.flag,
    words.lower,
    words.dashed,
    words.action,
    words.licence,
    words.card_uuid,
    words.instance_uuid,
)


@pytest.mark.parametrize(
    "word",
    [
        "N/A",
        "[N/A]",
        "[Not Supported]",
        "Not Supported",
        "Requested functionality has been deprecated",
        "[Requested functionality has been deprecated]",
        "Function Not Found",
        "[Not Found]",
        "Argument Version Mismatch",
        "",
        "  \n\t ",
        "[]",
        "-",
        None,
    ],
)
def test_nothing_of_the_kind_is_no_failure(word):
    assert words.read(word) is None


@pytest.mark.parametrize(
    "word",
    [
        "Unknown Error",
        "[Unknown Error]",
        "ERR!",
        "GPU is lost",
        "[GPU is lost]",
        "GPU requires reset",
        "[GPU requires restart]",
        "Insufficient Permissions",
        "[Insufficient Permissions]",
        "Timeout",
        "Corrupted infoROM",
        "Insufficient External Power",
        "The operating system has blocked the request.",
        "Unable to determine the device handle",
    ],
)
def test_a_failure_keeps_the_drivers_words(word):
    assert words.read(word) == Failed(word.strip("[]"))


@pytest.mark.parametrize("word", ["None", "0", "P0", "Disabled", "[not.a.word]x", "NVIDIA Error Ltd", "errors"])
def test_what_only_looks_like_one_is_a_value(word):
    assert words.read(word) == word


@pytest.mark.parametrize(
    ("reader", "word", "value"),
    [
        (words.celsius, "36 C", 36),
        (words.celsius, "-2 C", -2),
        (words.watts, "66.92 W", 66.92),
        (words.watts, "66.92", 66.92),
        (words.percent, " 40 % ", 40),
        (words.megahertz, "1410 MHz", 1410),
        (words.whole, "16x", 16),
        (words.whole, "96 bank(s)", 96),
        (words.whole, "4", 4),
        (words.amount, "81920 MiB", 80 * GIB),
        (words.amount, "81920", 80 * GIB),
        (words.amount, "1.5 GiB", 1536 * MIB),
        (words.amount, "512 KB", 512 * 1024),
        (words.flag, "Enabled", True),
        (words.flag, "Not Active", False),
        (words.flag, "Yes", True),
        (words.action, "None", "none"),
        (words.action, "GPU_RESET", "gpu-reset"),
        (words.action, "Reset", "gpu-reset"),
        (words.action, "Reboot", "node-reboot"),
        (words.action, "Drain P2P", "drain-p2p"),
        (words.action, "Drain and Reset", "drain-and-reset"),
        (words.licence, "Licensed (Expiry: 2026-7-7 16:1:44 GMT)", "licensed"),
        (words.licence, "Unlicensed (Unrestricted)", "unlicensed (unrestricted)"),
        (words.dashed, "Exclusive_Process", "exclusive-process"),
    ],
)
def test_units_and_manners_of_speech(reader, word, value):
    assert reader(word) == value


@pytest.mark.parametrize(
    ("reader", "word"),
    [
        (words.celsius, "36 W"),
        (words.watts, "36 C"),
        (words.watts, "nan W"),
        (words.whole, "9" * 5000),
        (words.amount, "-1 MiB"),
        (words.amount, "12 parsecs"),
        (words.flag, "perhaps"),
        (words.card_uuid, "4711"),
        (words.instance_uuid, "GPU-4711"),
    ],
)
def test_what_is_not_of_the_kind_is_told_as_it_is(reader, word):
    assert reader(word) == Failed(word)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("GPU is lost", "GPU is lost"),
        (" [GPU requires reset]", "GPU requires reset"),
        ("GPU is lost. Reboot the system", "GPU is lost"),
        ("python gpu is lost.py", None),
        ("N/A", None),
    ],
)
def test_a_card_says_by_itself_that_it_is_lost(text, said):
    assert words.says_lost(text) == said


@given(st.text(max_size=60))
def test_no_word_is_too_odd(text):
    words.read(text)
    words.count(text)
    words.says_lost(text)
    for reader in READERS:
        reader(text)


@given(st.from_regex(r"[-+0-9.,eE%xMiBCW° ]{0,40}", fullmatch=True))
def test_no_number_is_too_odd(text):
    for reader in READERS:
        reader(text)
