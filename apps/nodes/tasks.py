"""What beat asks of the nodes' app."""

from datetime import UTC, datetime

from celery import shared_task

from apps.nodes import heartbeats


@shared_task(name="llmgw.nodes.heartbeat")  # schedule.HEARTBEAT, which apps may not import; a test compares them
def heartbeat() -> None:
    """Judge the ticks so far, and send the next."""
    heartbeats.sweep(datetime.now(UTC))
