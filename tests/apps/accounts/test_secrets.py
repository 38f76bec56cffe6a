"""Secrets are random, recognisable, and told from typing errors without looking anything up."""

import re

import pytest

from apps.accounts import secrets


def test_a_key_is_recognised_by_its_beginning():
    key = secrets.new_key()
    assert re.fullmatch(r"llmgw-[0-9A-Za-z]{38}", key.text)
    assert key.text.startswith(key.prefix)
    assert len(key.prefix) == 12
    assert re.fullmatch(r"[0-9a-f]{64}", key.sha256)


def test_a_token_names_its_id():
    token = secrets.new_token()
    assert re.fullmatch(r"llmgw_[0-9A-Za-z]{8}_[0-9A-Za-z]{38}", token.text)
    assert secrets.prefix_of_token(token.text) == token.prefix == token.text[:14]


def test_no_two_are_alike():
    assert len({secrets.new_key().text for _ in range(100)}) == 100


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text[:-1],
        lambda text: text + "x",
        lambda text: text.replace("_", "-"),
        lambda text: text[:20] + ("a" if text[20] != "a" else "b") + text[21:],
        lambda text: "",
        lambda text: "llmgw_",
        lambda text: "Bearer " + text,
        lambda text: text[:-1] + "é",
        lambda text: "\ud800" + text,
    ],
)
def test_what_was_cut_or_mistyped_is_no_token(spoil):
    assert secrets.prefix_of_token(spoil(secrets.new_token().text)) is None
