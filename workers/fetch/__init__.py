"""Bringing weights onto the node: found, checked for room, fetched, verified; half a file never looks like a model."""

from workers.fetch.failure import FetchFailed
from workers.fetch.fetcher import Fetcher

__all__ = ["FetchFailed", "Fetcher"]
