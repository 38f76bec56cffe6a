"""What a bandwidth test between two nodes came to, as one end of it tells."""

from enum import StrEnum

import msgspec

from llmgw.core.units import Seconds


class Role(StrEnum):
    """Which end of a test."""

    SERVER = "server"
    CLIENT = "client"


class Verdict(StrEnum):
    """What the figure is worth."""

    GOOD = "good"
    """90 % of the port's rate, or more."""
    SLOW = "slow"
    """75 to 90 %."""
    FAILED = "failed"
    """Less, or no figure at all."""
    UNRATED = "unrated"
    """There is a figure, and the port's rate is not known."""


class BandwidthResult(msgspec.Struct, frozen=True, kw_only=True):
    """One end's account of one test."""

    code: str
    """`bandwidth.good`, `bandwidth.slow`, `bandwidth.low`, `bandwidth.unrated`, or why there is no figure."""
    verdict: Verdict
    role: Role
    port: str
    """Of this node: `mlx5_0:1`."""
    peer: str | None = None
    """The address that a client was given."""
    gid_index: int | None = None
    """Of this node's address, for RoCE."""
    duration_s: int | None = None
    at: Seconds | None = None
    """When it began."""
    gbps: float | None = None
    """The average, in 10⁹ bits per second."""
    expected_gbps: float | None = None
    """The rate of this node's port."""
    ratio: float | None = None
    text: str = ""
    """What was found, or why nothing was, in one line."""
    cure: str = ""
    """What to do; empty for a good result."""
    literal: str = ""
    """The tool's own words where there is no figure, cut."""
