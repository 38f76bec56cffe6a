"""What is typed to make a secret, read so that a slip of the hand, or an empty variable, never makes a wider one."""

from argparse import ArgumentTypeError
from typing import Final

LONGEST_DAYS: Final = 3650
LONGEST_NAME: Final = 100


def name(typed: str) -> str:
    """Read what a secret is called."""
    if not (0 < len(typed) <= LONGEST_NAME and typed.isprintable() and typed.strip() == typed):
        raise ArgumentTypeError(f"a name has 1 to {LONGEST_NAME} printable characters, and no space at its ends")
    return typed


def models(typed: str) -> list[str]:
    """Read names with commas between them."""
    names = [each.strip() for each in typed.split(",") if each.strip()]
    if not names:
        raise ArgumentTypeError("no model is named: give names with commas between, or leave --models out for all")
    return names


def days(typed: str) -> int:
    """Read for how many days a secret is good, 0 for ever."""
    if not typed.isdecimal() or int(typed) > LONGEST_DAYS:
        raise ArgumentTypeError(f"use 1 to {LONGEST_DAYS} days, or 0 for ever")
    return int(typed)
