"""New ids, made at the doors and handed on."""

from uuid import uuid4


def new_id() -> str:
    """Return an id that nobody had before."""
    return uuid4().hex
