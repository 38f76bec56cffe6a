"""The control plane's Celery app."""

import os

from celery import Celery

from llmgw.core import wire

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "llmgw.settings")

from django.conf import settings

from llmgw.schedule import beat_schedule

app = Celery("llmgw")
app.conf.update(
    broker_url=settings.REDIS_URL,
    result_backend=None,
    task_ignore_result=True,
    task_serializer="json",
    accept_content=["json"],
    task_default_queue=wire.CONTROL_QUEUE,
    task_create_missing_queues=True,
    worker_prefetch_multiplier=1,
    worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    # Tasks are short; the restore sweeps run every second, so that what a killed worker held comes back at once.
    broker_transport_options={
        "visibility_timeout": 60,
        "unacked_restore_interval": 1,
        "unacked_restore_throttle": 1,
        "socket_keepalive": True,
    },
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_send_task_events=False,
    timezone="UTC",
    beat_schedule=beat_schedule(settings.LLMGW_HEARTBEAT_S, settings.LLMGW_RECONCILE_S),
    beat_max_loop_interval=1,
)
app.autodiscover_tasks()
