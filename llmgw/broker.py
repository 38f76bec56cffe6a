"""How every Celery app of ours talks through Redis, and comes back soon after Redis was away."""

import warnings
from typing import Any, Final

from celery import signals
from celery.app.amqp import AMQP
from celery.exceptions import CPendingDeprecationWarning
from kombu import Connection

FIRST_RETRY_S: Final = 0.25
LONGEST_RETRY_S: Final = 1.0


class PatientConnection(Connection):
    """Tries again every second for ever, where kombu's own waits would grow to half a minute."""

    def ensure_connection(self, *args: Any, **how: Any) -> Any:
        """Connect, however long it takes."""
        patience = {"interval_start": FIRST_RETRY_S, "interval_step": 0.25, "interval_max": LONGEST_RETRY_S}
        return super().ensure_connection(*args, **{**patience, **how})

    def get_transport_cls(self) -> Any:
        """Use our own channels."""
        from llmgw.channels import Transport  # noqa: PLC0415  # loads redis, which beat and commands may never need

        return Transport


class Amqp(AMQP):
    """Celery's way to its broker, over our connections."""

    Connection = PatientConnection


AMQP_CLASS: Final = "llmgw.broker:Amqp"
"""For `Celery(…, amqp=AMQP_CLASS)`."""

SETTINGS: Final[dict[str, Any]] = {
    "result_backend": None,
    "task_ignore_result": True,
    "task_serializer": "json",
    "accept_content": ["json"],
    "task_create_missing_queues": True,
    "worker_prefetch_multiplier": 1,
    "worker_send_task_events": False,
    "worker_hijack_root_logger": False,
    "broker_connection_retry_on_startup": True,
    "broker_connection_max_retries": None,
    "broker_connection_timeout": 2,
    "broker_transport_options": {
        # Tasks are short; the restore sweeps run every second, so that what a killed worker held comes back at once.
        "visibility_timeout": 60,
        "unacked_restore_interval": 1,
        "unacked_restore_throttle": 1,
        # A Redis that hangs, or a cable that was pulled, is noticed within seconds.
        "socket_keepalive": True,
        "socket_connect_timeout": 2,
        "socket_timeout": 5,
        "health_check_interval": 5,
    },
    "timezone": "UTC",
}
"""What all our Celery apps have in common; an app adds its broker, its queue and its tasks."""


@signals.worker_ready.connect
def _silence(**_: Any) -> None:
    """Spare the log a paragraph at each lost connection, on long tasks, which we have none of."""
    warnings.filterwarnings("ignore", category=CPendingDeprecationWarning)
