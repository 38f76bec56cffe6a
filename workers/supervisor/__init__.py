"""Keeps promised engines alive and known: launches, watches, drains and ends them, and finds them after a restart."""

from workers.supervisor.identity import Identity, StateHeld, StateRefused, StateUnreadable
from workers.supervisor.supervisor import Supervisor

__all__ = ["Identity", "StateHeld", "StateRefused", "StateUnreadable", "Supervisor"]
