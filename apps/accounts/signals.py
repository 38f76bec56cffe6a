"""What the accounts tell those above them."""

from typing import Final

from django.dispatch import Signal

keys_changed: Final = Signal()
"""Inference keys were made or revoked. Sent inside the transaction, with `now`."""
