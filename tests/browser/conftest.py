"""The people and the Redis of the console's tests, for those that drive a browser."""

from tests.apps.console.conftest import person, ticking

__all__ = ["person", "ticking"]
