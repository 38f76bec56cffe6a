"""What the catalog tells those above it."""

from typing import Final

from django.dispatch import Signal

catalog_changed: Final = Signal()
"""Models were declared, changed or retired. Sent inside the transaction, with `names: tuple[str, ...]` and `now`."""
