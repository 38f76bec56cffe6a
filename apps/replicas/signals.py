"""What the replicas app tells the apps above it."""

from django.dispatch import Signal

routes_changed = Signal()
"""Sent inside the transaction in which a shard enters or leaves READY; no arguments."""
